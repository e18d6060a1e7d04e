"""Clusters side by side: Apache's configuration, the pauses of a publisher, and the table."""

from __future__ import annotations

from pathlib import Path

from magnetar.standalone.cluster_config import ClusterBrokerConfig

from bench import report
from bench.brokers import ANCHOR, APACHE_PULSAR, MAGNETAR
from bench.clusters import apache_settings, kills
from bench.clusters.quorums import ACK_QUORUM, ENSEMBLE, SESSION_MS, WRITE_QUORUM
from bench.clusters.run import Run
from bench.clusters.scenarios import KILL_BOOKIE, QUICK, all_scenarios
from bench.results import Results
from bench.target import Target


def settings(text: str) -> dict[str, str]:
    """The settings of a file, none of which it gives twice."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines)
    return found


def results() -> Results:
    machine = {"cpu": "a CPU", "cores": "2", "memory": "8 GiB", "kernel": "6.1", "python": "3.11.0"}
    brokers = {MAGNETAR: "abc", APACHE_PULSAR: "4.0.7"}
    return Results("python -m bench.clusters", True, "2026-01-01T00:00:00Z", machine, brokers)


def test_a_broker_of_the_cluster_keeps_three_copies_and_what_the_standalone_has_switched_on() -> None:
    found = settings(apache_settings.broker((ANCHOR / "standalone.conf").read_text(), 1, 2, 3))
    assert found["metadataStoreUrl"] == found["configurationMetadataStoreUrl"] == "zk:127.0.0.1:3"
    assert (found["brokerServicePort"], found["webServicePort"]) == ("1", "2")
    assert found["managedLedgerDefaultEnsembleSize"] == str(ENSEMBLE)
    assert found["managedLedgerDefaultWriteQuorum"] == str(WRITE_QUORUM)
    assert found["managedLedgerDefaultAckQuorum"] == str(ACK_QUORUM)
    assert found["metadataStoreSessionTimeoutMillis"] == str(SESSION_MS)
    assert found["acknowledgmentAtBatchIndexLevelEnabled"] == "true"
    assert not [key for key in found if key.startswith("journal")]


def test_both_clusters_keep_as_many_copies_as_ours_does_by_default() -> None:
    ledgers = ClusterBrokerConfig().managed_ledger
    assert (
        ledgers.ensemble_size,
        ledgers.write_quorum,
        ledgers.ack_quorum,
    ) == (ENSEMBLE, WRITE_QUORUM, ACK_QUORUM)


def test_a_bookie_syncs_and_has_directories_of_its_own() -> None:
    shared = (ANCHOR.parent / "bookkeeper" / "bookie.conf").read_text()
    found = settings(apache_settings.bookie(shared, Path("/data/bookie-1"), 1, 2))
    assert found["journalSyncData"] == "true"
    assert found["bookiePort"] == "1"
    assert found["metadataServiceUri"] == "zk+hierarchical://127.0.0.1:2/ledgers"
    assert found["journalDirectories"] == "/data/bookie-1/journal"
    assert found["ledgerDirectories"] == "/data/bookie-1/ledgers"


def test_zookeeper_listens_on_loopback_only() -> None:
    found = settings(apache_settings.zookeeper(Path("/data"), 2181))
    assert (found["clientPortAddress"], found["clientPort"]) == ("127.0.0.1", "2181")


def test_pauses_before_and_after_a_kill_are_told_apart() -> None:
    before, after = kills.pauses([0.0, 0.25, 0.5, 1.5, 1.75], killed=1.0)
    assert (before, after) == (0.25, 1.0)
    assert kills.pauses([], killed=1.0) == (0.0, 0.0)


def test_a_pause_is_judged_by_that_of_the_other_cluster() -> None:
    found = results()
    found.add(KILL_BOOKIE.key, MAGNETAR, {"longest pause": 40.0})
    found.add(KILL_BOOKIE.key, APACHE_PULSAR, {"longest pause": 30_000.0})
    (row,) = report.rows(found, all_scenarios(QUICK))
    assert row[1:3] == ("longest pause", "40.0 ms")
    assert row[-1] == "floor met"


def test_a_run_counts_the_steps_of_the_loads_that_were_chosen() -> None:
    alone = Run(QUICK, results(), None, frozenset(["produce-1k", KILL_BOOKIE.key]))
    assert alone.step_count() == 2 + 2 + 1


def test_costs_of_all_processes_of_a_cluster_are_added_up() -> None:
    process = Target("pulsar://127.0.0.1:1", pid=1)
    twice = Target("pulsar://127.0.0.1:1", pid=1, more_pids=(1,))
    assert twice.rss_bytes() == 2 * process.rss_bytes()
