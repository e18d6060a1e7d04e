"""A server sweeps files by itself: orphans, and the objects of topics that are deleted, but nothing else."""

from __future__ import annotations

import os
import secrets
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import CompleteRequest
from magnetar.ledger.cold.layout import MANIFEST_NAME, part_name
from magnetar.ledger.cold.marker import MARKER_NAME, claim
from magnetar.ledger.cold.objects import open_store

from tests.integration.clients import publish
from tests.integration.harness import Endpoint, StandaloneServer, eventually
from tests.integration.rest import Rest

SERVER_SETTINGS = {"magnetarOffloadSweepIntervalSeconds": "1", "magnetarOffloadGraceSeconds": "0"}


@pytest.fixture
def jobs(server: StandaloneServer) -> Iterator[OffloadChannel]:
    """What a job calls."""
    with OffloadChannel(server.jobs_address) as channel:
        yield channel


def figure(endpoint: Endpoint, name: str) -> float:
    """A metric with no label but the cluster."""
    with urllib.request.urlopen(f"{endpoint.http_url}/metrics") as page:
        lines = page.read().decode().splitlines()
    (line,) = [each for each in lines if each.startswith(f'{name}{{cluster="{endpoint.cluster}"}} ')]
    return float(line.rpartition(" ")[2])


def files(directory: Path) -> set[Path]:
    """Also while directories go."""
    return {Path(at) / name for at, _, names in os.walk(directory) for name in names}


def put(directory: Path, *names: str) -> set[Path]:
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).write_bytes(b"x")
    return files(directory)


def test_orphans_and_objects_of_deleted_topics_go_and_offloaded_ledgers_stay(
    rest: Rest,
    namespace: str,
    client: pulsar.Client,
    jobs: OffloadChannel,
    endpoint: Endpoint,
    tmp_path: Path,
) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    policies = {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": str(tmp_path)}
    rest.do("POST", f"/namespaces/{namespace}/offloadPolicies", policies)
    rest.do("PUT", f"{path}/subscription/keeps", "earliest")
    publish(client, topic, [b"a", b"b"])
    rest.do("PUT", f"{path}/unload")

    (ledger,) = jobs.want(topic)
    first, second = secrets.token_bytes(16), secrets.token_bytes(16)
    place = (topic, ledger.creation_id, ledger.ledger_id)
    begun = jobs.begin(*place, first)
    claim(open_store(tmp_path.as_uri()), begun.instance_id)
    given_up = tmp_path / begun.offload.path
    put(given_up, part_name(0))
    jobs.fail(*place, first, "to see what is left of it")
    directory = tmp_path / jobs.begin(*place, second).offload.path
    kept = put(directory, part_name(0), MANIFEST_NAME)
    note, mark = tmp_path / "README.txt", tmp_path / MARKER_NAME
    note.write_text("nobody's attempt")
    jobs.complete(
        CompleteRequest(
            topic=topic,
            creation_id=ledger.creation_id,
            ledger_id=ledger.ledger_id,
            attempt=second,
            entries=ledger.entries,
            rows=ledger.entries,
            object_bytes=2,
            manifest_sha256=bytes(32),
        )
    )
    eventually(
        lambda: files(tmp_path) == {*kept, note, mark} and not given_up.exists(),
        "what was given up goes, and then its directory",
    )
    assert figure(endpoint, "magnetar_offload_orphans") == 0

    rest.do("DELETE", f"{path}?force=true")
    eventually(lambda: files(tmp_path) == {note, mark}, "the objects go with the topic")
    eventually(lambda: figure(endpoint, "magnetar_offload_deletions_left") == 0, "and the deletion is done")
    assert figure(endpoint, "magnetar_offload_orphans") == 0
    assert note.read_text() == "nobody's attempt"
