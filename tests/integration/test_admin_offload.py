"""Offload as operators see it, over HTTP and by commands, with a job that only says what it did."""

from __future__ import annotations

import json
import secrets
import urllib.request
from collections.abc import Iterator

import pulsar
import pytest
from click.testing import CliRunner
from magnetar.cli.main import main
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import CompleteRequest, Ledger

from tests.integration.clients import publish
from tests.integration.harness import Endpoint, StandaloneServer, eventually
from tests.integration.rest import Rest

LOCATION = "file:///nonexistent/magnetar-cold"
SERVER_SETTINGS = {
    "magnetarOffloadLocation": LOCATION,
    "magnetarOffloadCheckIntervalSeconds": "1",
    "magnetarOffloadRefreshIntervalSeconds": "1",
}
FIRST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
SECRET = "s3ManagedLedgerOffloadCredentialSecret"


@pytest.fixture
def jobs(server: StandaloneServer) -> Iterator[OffloadChannel]:
    """What a job calls."""
    with OffloadChannel(server.jobs_address) as channel:
        yield channel


def closed_ledgers(rest: Rest, client: pulsar.Client, namespace: str, count: int) -> list[int]:
    """A topic `t` with so many closed ledgers, which a subscription keeps; their ids."""
    path = f"/persistent/{namespace}/t"
    rest.do("PUT", f"{path}/subscription/keeps", "earliest")
    for number in range(count):
        publish(client, f"persistent://{namespace}/t", [b"%d" % number] * 3)
        rest.do("PUT", f"{path}/unload")
    return [each["ledgerId"] for each in rest.get(f"{path}/internalStats")["ledgers"]]


def run_job(jobs: OffloadChannel, ledger: Ledger) -> str:
    """Take a ledger and say that its objects are whole; returns the attempt as hexadecimal digits."""
    attempt = secrets.token_bytes(16)
    jobs.begin(ledger.topic, ledger.creation_id, ledger.ledger_id, attempt)
    jobs.complete(
        CompleteRequest(
            topic=ledger.topic,
            creation_id=ledger.creation_id,
            ledger_id=ledger.ledger_id,
            attempt=attempt,
            entries=ledger.entries,
            rows=ledger.entries,
            object_bytes=77,
            manifest_sha256=bytes(32),
        )
    )
    return attempt.hex()


def test_from_a_wish_over_a_failure_to_the_end(
    rest: Rest, namespace: str, client: pulsar.Client, jobs: OffloadChannel, endpoint: Endpoint
) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    first, second = closed_ledgers(rest, client, namespace, 2)
    assert rest.get(f"{path}/offload")["status"] == "NOT_RUN"
    for _ in range(2):
        rest.do("PUT", f"{path}/offload", {"ledgerId": second, "entryId": 0, "partitionIndex": -1})
    assert rest.get(f"{path}/offload")["status"] == "RUNNING"

    (ledger,) = jobs.wanted([topic]).ledgers
    assert (ledger.ledger_id, ledger.offload.location) == (first, LOCATION)
    attempt = secrets.token_bytes(16)
    jobs.begin(topic, ledger.creation_id, first, attempt)
    assert rest.get(f"{path}/offload")["status"] == "RUNNING"
    jobs.fail(topic, ledger.creation_id, first, attempt, "no room left")
    status = rest.get(f"{path}/offload")
    assert (status["status"], status["lastError"]) == ("ERROR", "no room left")
    eventually(lambda: rest.get(f"{path}/stats")["lastOffloadFailureTimeStamp"] > 0, "a failure is told")

    rest.do("PUT", f"{path}/offload", {"ledgerId": second, "entryId": 0, "partitionIndex": -1})
    status = rest.get(f"{path}/offload")
    assert (status["status"], status["lastError"]) == ("RUNNING", ""), "it is to be tried again"
    uuid = run_job(jobs, ledger)
    status = rest.get(f"{path}/offload")
    assert (status["status"], status["firstUnoffloadedMessage"]["ledgerId"]) == ("SUCCESS", second)

    def offloaded() -> list[bool]:
        return [each["offloaded"] for each in rest.get(f"{path}/internalStats")["ledgers"]]

    eventually(lambda: offloaded() == [True, False], "the topic's owner learns of it")
    info = rest.get(f"{path}/internal-info")["ledgers"][0]
    assert (info["isOffloaded"], info["offloadedContextUuid"].replace("-", "")) == (True, uuid)
    stats = rest.get(f"{path}/stats")
    assert stats["lastOffloadLedgerId"] == first
    assert stats["lastOffloadSuccessTimeStamp"] > 1_700_000_000_000
    assert stats["lastOffloadFailureTimeStamp"] == 0, "another job has succeeded since"
    assert 0 < stats["offloadedStorageSize"] < stats["storageSize"]
    with urllib.request.urlopen(f"{endpoint.http_url}/metrics") as page:
        lines = page.read().decode().splitlines()
    (line,) = [each for each in lines if each.startswith("pulsar_storage_offloaded_size{") and topic in each]
    assert int(line.rpartition(" ")[2]) == stats["offloadedStorageSize"]
    labels = f'cluster="{endpoint.cluster}",namespace="{namespace}"'
    assert f"brk_ledgeroffloader_offload_error_total{{{labels}}} 1.0" in lines
    assert any(each.startswith("magnetar_offload_completed_object_bytes_total{") for each in lines)

    scan = rest.get(f"/namespaces/{namespace}/scanOffloadedLedgers")
    (found,) = scan["objects"]
    assert (found["topic"], found["ledgerId"], found["status"]) == (topic, first, "MISSING")
    assert scan["errors"] >= 1


def test_policies_offload_ledgers_automatically(
    rest: Rest, namespace: str, client: pulsar.Client, jobs: OffloadChannel
) -> None:
    topic = f"persistent://{namespace}/t"
    ledgers = closed_ledgers(rest, client, namespace, 3)
    assert not jobs.wanted([topic]).ledgers
    policies = {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": "/nonexistent/own"}
    rest.do("POST", f"/namespaces/{namespace}/offloadPolicies", policies)
    rest.do("PUT", f"/namespaces/{namespace}/offloadThreshold", 1)

    def wanted() -> list[int]:
        return [each.ledger_id for each in jobs.wanted([topic]).ledgers]

    eventually(lambda: sorted(wanted()) == ledgers, "every closed ledger is beyond a byte")
    locations = {each.offload.location for each in jobs.wanted([topic]).ledgers}
    assert locations == {"file:///nonexistent/own"}
    assert rest.get(f"/persistent/{namespace}/t/offload")["status"] == "RUNNING"


def test_the_commands_of_offload(
    rest: Rest, namespace: str, client: pulsar.Client, jobs: OffloadChannel, endpoint: Endpoint
) -> None:
    topic = f"persistent://{namespace}/t"
    (ledger_id,) = closed_ledgers(rest, client, namespace, 1)

    def run(line: str) -> str:
        done = CliRunner().invoke(main, ["admin", "--admin-url", endpoint.http_url, *line.split()])
        assert done.exit_code == 0, (line, done.stderr)
        return done.stdout

    assert run(f"topics offload {topic} -s 10M") == "Nothing to offload\n"
    assert f"messages before {ledger_id}:3" in run(f"topics offload {topic} -s 0")
    assert json.loads(run(f"topics offload-status {topic}"))["status"] == "RUNNING"
    (ledger,) = jobs.wanted([topic]).ledgers
    run_job(jobs, ledger)
    assert json.loads(run(f"topics offload-status {topic} -w"))["status"] == "SUCCESS"


def test_credentials_are_refused_wherever_they_are_given(rest: Rest, namespace: str) -> None:
    policies = {"managedLedgerOffloadDriver": "aws-s3", "s3ManagedLedgerOffloadBucket": "b", SECRET: "hush"}
    reason = rest.refused(412, "POST", f"/namespaces/{namespace}/offloadPolicies", policies)
    assert "AWS_SECRET_ACCESS_KEY" in reason
    assert "hush" not in reason
    assert rest.get(f"/namespaces/{namespace}/offloadPolicies") is None
    rest.refused(400, "PUT", f"/persistent/{namespace}/t/offload")
    rest.refused(404, "PUT", f"/persistent/{namespace}/t/offload", FIRST)
