"""`magnetar top`, `magnetar lag` and `magnetar debug bundle` against a real broker."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from click.testing import CliRunner
from magnetar.cli.main import main
from magnetar.testing.standalone_process import StandaloneProcess

from tests.integration.rest import Rest

SECRET = "bm8tc2VjcmV0LWluLXRoZS1idW5kbGUtMDEyMzQ1Njc4OTAxMjM0NQ=="
PASSWORD = "no-password-in-the-bundle"


def run(rest: Rest, *arguments: str) -> str:
    done = CliRunner().invoke(main, [*arguments, "--admin-url", rest.endpoint.http_url])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def namespace(rest: Rest, client: pulsar.Client) -> str:
    """A namespace with topics `busy` and `idle`; `slow` has 5 messages of `busy` unacknowledged."""
    name = rest.new_namespace()
    consumer = client.subscribe(f"persistent://{name}/busy", "slow")
    client.subscribe(f"persistent://{name}/idle", "quick")
    producer = client.create_producer(f"persistent://{name}/busy")
    for _ in range(5):
        producer.send(b"x")
    for _ in range(5):
        consumer.receive(10_000)
    return name


def test_topics_and_subscriptions_are_printed_once(rest: Rest, namespace: str) -> None:
    found = json.loads(run(rest, "top", "topics", "-n", namespace, "--sort", "backlog", "--json"))
    assert [row["topic"].rpartition("/")[2] for row in found["rows"]] == ["busy", "idle"]
    assert (found["rows"][0]["msgBacklog"], found["rows"][0]["producers"], found["total"]) == (5, 1, 2)
    lines = run(rest, "top", "subscriptions", "-n", namespace, "--filter", "slow").splitlines()
    assert lines[0].split("\t")[:4] == ["topic", "subscription", "type", "msgBacklog"]
    assert lines[1].split("\t")[1:4] == ["slow", "Exclusive", "5"]
    table = run(rest, "top", "subscriptions", "-n", namespace, "--output", "table")
    assert "2 of 2" in table or "1-2 of 2" in table


@pytest.mark.parametrize("view", ["brokers", "bookies", "namespaces", "topics"])
def test_every_view_is_printed_by_each_of_its_columns(rest: Rest, view: str) -> None:
    from magnetar.cli.top.live_table import VIEWS

    for column in VIEWS[view].columns:
        found = json.loads(run(rest, "top", view, "--sort", column.key, "--json"))
        assert found["unreachable"] == {}
    if view == "brokers":
        assert found["rows"][0]["residentBytes"] > 0


def test_consumers_and_explanations_of_the_live_view(rest: Rest, namespace: str) -> None:
    from magnetar.cli.admin.target import Target
    from magnetar.cli.top.admin_source import read_explanation, read_sample
    from magnetar.cli.top.live_table import opened, question_of

    target = Target("", "", "json", rest.endpoint.http_url)
    topics = question_of("topics", namespace=namespace)
    row = next(row for row in read_sample(target, topics).rows if row["topic"].endswith("busy"))
    subscriptions = opened(topics, row)
    assert subscriptions is not None
    (slow,) = read_sample(target, subscriptions).rows
    explained = read_explanation(target, subscriptions, slow)
    assert explained is not None
    assert "waiting_for_acks" in explained.reasons[0][0]
    consumers = opened(subscriptions, slow)
    assert consumers is not None
    sample = read_sample(target, consumers)
    assert (sample.total, sample.rows[0]["msgOutCounter"]) == (1, 5)
    place = read_explanation(target, topics, row)
    assert place is not None
    assert "busy, in bundle" in place.heading


def test_lag_says_how_far_and_why(rest: Rest, namespace: str) -> None:
    found = json.loads(run(rest, "lag", namespace, "--over", "0.5", "--json"))
    slow, quick = found["subscriptions"]
    assert (slow["subscription"], slow["backlog"], slow["drain_s"]) == ("slow", 5, None)
    assert slow["codes"] == ["waiting_for_acks"]
    assert 0 <= slow["oldest_s"] < 120
    assert (quick["subscription"], quick["backlog"], quick["oldest_s"], quick["codes"]) == (
        "quick",
        0,
        None,
        [],
    )
    table = run(rest, "lag", namespace, "--over", "0.5", "--output", "table")
    assert "worst first" in table
    assert "never" in table


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """A standalone whose configuration has secrets in several settings."""
    settings = {
        "tokenSecretKey": f"data:;base64,{SECRET}",
        "brokerClientAuthenticationParameters": f"token:{PASSWORD}",
    }
    server = StandaloneProcess(tmp_path_factory.mktemp("guarded"), settings)
    try:
        server.start()
        yield server
    finally:
        server.close()


def test_no_secret_of_the_configuration_is_in_a_bundle(guarded: StandaloneProcess, tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text(f"tokenSecretKey=data:;base64,{SECRET}\nrefused password={PASSWORD}\n")
    path = tmp_path / "bundle.tar.gz"
    arguments = ["debug", "bundle", "--admin-url", guarded.admin_url, "--file", str(path), "--log", str(log)]
    done = CliRunner().invoke(main, arguments, env={**os.environ, "MAGNETAR_TOKEN": PASSWORD})
    assert done.exit_code == 0, done.output
    files: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            files[member.name.partition("/")[2]] = file.read()
    whole = b"\n".join(files.values()).decode()
    assert SECRET not in whole
    assert PASSWORD not in whole
    manifest: Any = json.loads(files["manifest.json"])
    assert not manifest["failed"], manifest["failed"]
    tasks = json.loads(files["broker/tasks.json"])
    assert tasks["tasks"] == sum(each["count"] for each in tasks["groups"])
    assert "MainThread" in {each["name"] for each in tasks["threads"]}
    settings = json.loads(files["broker/configuration.json"])
    assert settings["tokenSecretKey"] == "(hidden)"
    assert settings["brokerServicePort"]
    assert b"magnetar_" in files["broker/metrics.txt"]
