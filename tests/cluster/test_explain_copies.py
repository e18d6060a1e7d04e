"""Ledgers, bookies and bundles of real processes are explained: a bookie dies, and its entries move."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pulsar
import pytest
from click.testing import CliRunner
from magnetar.cli.main import main

from tests.cluster.whole_cluster import WholeCluster
from tests.integration.harness import Endpoint, eventually, temporary_directory
from tests.integration.rest import Rest

QUICK = {
    "metadataStoreSessionTimeoutMillis": "3000",
    "magnetarAutoRecoverySessionTimeoutMs": "3000",
    "lostBookieRecoveryDelay": "1",
    "openLedgerRereplicationGracePeriod": "2000",
    "rwRereplicateBackoffMs": "200",
}
BROKERS = {"metadataStoreSessionTimeoutMillis": "30000"}
TOPIC = "persistent://public/default/copies"


def run(endpoint: Endpoint, *arguments: str) -> Any:
    done = CliRunner().invoke(main, ["explain", "--admin-url", endpoint.http_url, "--json", *arguments])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def codes(found: Any) -> list[str]:
    return [each["code"] for each in found["reasons"]]


@pytest.mark.full
def test_a_dead_bookie_is_named_until_its_entries_have_another_place() -> None:
    directory = temporary_directory()
    with WholeCluster.serving(
        directory, brokers=2, discoveries=0, broker_settings=BROKERS, bookie_settings=QUICK
    ) as cluster:
        first, second = (broker.endpoint for broker in cluster.brokers)
        client = pulsar.Client(first.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        client.subscribe(TOPIC, "keeps").close()
        producer = client.create_producer(TOPIC)
        for _ in range(20):
            producer.send(b"x" * 100)
        producer.close()
        Rest(first).do("PUT", f"/{TOPIC.replace('://', '/')}/unload")
        ledgers = run(first, "storage", TOPIC)["ledgers"]
        ledger = next(str(each["ledgerId"]) for each in ledgers if each["closed"] and each["entries"])

        for endpoint in (first, second):
            found = run(endpoint, "ledger", ledger)
            assert (codes(found), found["state"], found["topic"]) == (["replicated"], "CLOSED", TOPIC)
            assert codes(run(endpoint, "bookie", "bookie-2")) == ["writable"]
        place = run(first, "topic", TOPIC)
        for endpoint in (first, second):
            bundle = run(endpoint, "bundle", f"public/default/{place['bundle']}")
            assert (bundle["broker"], bundle["unreachable"]) == (place["broker"], "")
            assert codes(bundle)[0] == "owned"
            assert [each["code"] for each in bundle["splits"]] in (["split"], ["single_topic"])
            assert TOPIC in [each["topic"] for each in bundle["topics"]]

        cluster.bookies[1].kill()

        def stuck() -> bool:
            return {"member_down", "marked", "no_bookie"} <= set(codes(run(second, "ledger", ledger)))

        eventually(stuck, "three bookies, of which one is dead, cannot take its place", 60)
        found = run(first, "ledger", ledger)
        (down,) = [each for each in found["reasons"] if each["code"] == "member_down"]
        assert down["data"] == {"bookie": "bookie-2"}
        assert [each["copies"] for each in found["lacking"]] == [1]
        bookie = run(first, "bookie", "bookie-2")
        assert codes(bookie)[:2] == ["down", "under_replicated"]
        assert bookie["unreachable"] == {}

        fourth = cluster.add_bookie()
        fourth.launch()
        fourth.wait_until_healthy()

        def whole() -> bool:
            return codes(run(second, "ledger", ledger)) == ["replicated"]

        eventually(whole, "the new bookie has the entries", 60)
        found = run(first, "ledger", ledger)
        assert "bookie-4" in {name for each in found["fragments"] for name in each["bookies"]}
        assert found["lacking"] == []
        client.close()
    shutil.rmtree(directory, ignore_errors=True)
