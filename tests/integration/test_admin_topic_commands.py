"""`magnetar admin topics` and `schemas`: the verbs of storage, lookups and schemas, against a broker."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pytest
from click.testing import CliRunner, Result
from magnetar.cli.main import main

from tests.integration.clients import publish
from tests.integration.harness import Endpoint
from tests.integration.rest import Rest

Try = Callable[[str], Result]
Asked = Callable[[str], Any]


@pytest.fixture
def attempt(endpoint: Endpoint) -> Try:
    """Runs a command line, whatever comes of it."""

    def act(line: str) -> Result:
        return CliRunner().invoke(main, ["admin", "--admin-url", endpoint.http_url, *shlex.split(line)])

    return act


@pytest.fixture
def asked(attempt: Try) -> Asked:
    """Runs a command line, which has to succeed; returns the JSON that it printed, None for nothing."""

    def act(line: str) -> Any:
        done = attempt(line)
        assert done.exit_code == 0, (line, done.stderr)
        return json.loads(done.stdout) if done.stdout else None

    return act


def test_topic_storage_is_shown(
    asked: Asked, attempt: Try, rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    rest.do("PUT", f"{path}/subscription/s", "earliest")
    publish(client, topic, [b"a", b"b", b"c"])
    ledger = asked(f"topics info-internal {topic}")["ledgers"][0]["ledgerId"]
    assert asked(f"topics get-message-id {topic} -d 2001-01-01T00:00:00Z")["entryId"] == 0
    assert asked(f"topics get-message-id {topic} -d 1")["ledgerId"] == ledger
    assert attempt(f"topics get-message-id {topic} -d yesterday").exit_code == 2
    size = rest.get(f"{path}/stats")["storageSize"]
    assert asked(f"topics get-backlog-size {topic}") == size
    assert asked(f"topics get-backlog-size {topic} -m {ledger}:2") == 0
    assert asked(f"topics analyze-backlog {topic} -s s")["messages"] == 3
    assert asked(f"topics analyze-backlog {topic} -s s -p {ledger}:2")["messages"] == 1
    figures = asked(f"topics stats {topic} -gpb -sbs -etb -ep -ec")
    assert figures["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] > 0
    assert asked(f"topics stats-internal {topic} -m")["numberOfEntries"] == 3
    assert asked(f"topics trim-topic {topic}") is None
    assert asked(f"topics truncate {topic}") is None
    assert asked(f"topics get-backlog-size {topic}") == 0


def test_missing_topic_is_refused_with_the_reason(
    asked: Asked, attempt: Try, rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    topic = f"persistent://{namespace}/t"
    rest.do("PUT", f"/persistent/{namespace}/t/subscription/s")
    assert asked(f"topics compaction-status {topic} -w")["status"] == "NOT_RUN"
    assert asked(f"topics offload-status {topic} -w")["status"] == "NOT_RUN"
    assert attempt(f"topics offload {topic} -s 10M").stdout == "Nothing to offload\n"
    publish(client, topic, [b"a" * 100])
    rest.do("PUT", f"/persistent/{namespace}/t/unload")
    line = f"topics set-replicated-subscription-status {topic} -s s -e"
    done = attempt(line)
    assert (done.exit_code, "HTTP 405" in done.stderr) == (1, True), (line, done.stderr)
    done = attempt(f"topics offload {topic} -s 1")
    assert (done.exit_code, "magnetarOffloadLocation" in done.stderr) == (1, True), "nowhere to go"
    assert asked(f"topics set-replicated-subscription-status {topic} -s s -d") is None
    assert asked(f"topics get-replicated-subscription-status {topic} -s s") == {topic: False}
    assert attempt(f"topics set-replicated-subscription-status {topic} -s s").exit_code == 2


def test_a_compaction_is_started_waited_for_and_explained(
    asked: Asked, attempt: Try, namespace: str, client: pulsar.Client
) -> None:
    topic = f"persistent://{namespace}/t"
    publish(client, topic, [b"value"])
    assert attempt(f"topics compact {topic}").stdout == f"Topic compaction requested for {topic}\n"
    found = asked(f"topics compaction-status {topic} -w")
    assert found["status"] == "SUCCESS"
    assert "left 1 messages out" in found["explanation"]
    gone = attempt(f"topics compact {topic}-none")
    assert (gone.exit_code, "HTTP 404" in gone.stderr) == (1, True)


def test_lookups(asked: Asked, attempt: Try, rest: Rest, namespace: str, endpoint: Endpoint) -> None:
    rest.do("PUT", f"/persistent/{namespace}/t")
    rest.do("PUT", f"/persistent/{namespace}/p/partitions", 2)
    url = attempt(f"topics lookup persistent://{namespace}/t").stdout.strip().strip('"')
    assert url.startswith("pulsar://")
    names = [f"persistent://{namespace}/p-partition-{index}" for index in range(2)]
    assert asked(f"topics partitioned-lookup persistent://{namespace}/p") == dict.fromkeys(names, url)
    assert asked(f"topics partitioned-lookup persistent://{namespace}/p -s") == {url: names}
    assert "0x" in attempt(f"topics bundle-range persistent://{namespace}/t").stdout


def test_schemas(asked: Asked, attempt: Try, rest: Rest, namespace: str, tmp_path: Path) -> None:
    rest.do("PUT", f"/persistent/{namespace}/t")
    topic, file = f"persistent://{namespace}/t", tmp_path / "schema.json"
    definition = '{"type":"record","name":"U","fields":[]}'
    file.write_text(json.dumps({"type": "AVRO", "schema": definition, "properties": {"a": "b"}}))
    assert attempt(f"schemas get {topic}").exit_code == 1
    assert asked(f"schemas upload {topic} -f {file}") == {"version": 0}
    assert asked(f"schemas compatibility {topic} -f {file}")["compatibility"] is True
    string = tmp_path / "string.json"
    string.write_text('{"type": "STRING", "schema": ""}')
    refused = attempt(f"schemas compatibility {topic} -f {string}")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["compatibility"] is False
    assert "FULL" in attempt(f"schemas upload {topic} -f {string}").stderr
    found = asked(f"schemas get {topic}")
    assert (found["type"], found["data"], found["properties"]) == ("AVRO", definition, {"a": "b"})
    assert asked(f"schemas get {topic} -v 0") == found
    assert asked(f"schemas get {topic} -a") == [found]
    assert attempt(f"schemas get {topic} -a -v 0").exit_code == 2
    assert asked(f"schemas metadata {topic}")["info"]["version"] == 0
    assert asked(f"schemas delete {topic}") is None
    assert asked(f"schemas get {topic} -v 0") == found, "messages keep theirs"
    assert asked(f"schemas delete {topic} -f") is None
    assert attempt(f"schemas get {topic} -v 0").exit_code == 1
    file.write_text("no JSON")
    assert attempt(f"schemas upload {topic} -f {file}").exit_code == 2
    module = tmp_path / "extracted_readings.py"
    module.write_text("from dataclasses import dataclass\n\n@dataclass\nclass Reading:\n    value: int\n")
    extract = f"schemas extract {topic} -c extracted_readings:Reading --path {tmp_path} --type json"
    assert asked(f"{extract} --dry-run")["type"] == "JSON"
    assert attempt(f"schemas get {topic}").exit_code == 1, "a dry run uploads nothing"
    assert asked(extract) == {"version": 0}
    assert json.loads(asked(f"schemas get {topic}")["data"])["name"] == "Reading"
    assert attempt(f"schemas extract {topic}").exit_code == 2
