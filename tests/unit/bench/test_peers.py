"""The comparison with NATS and Kafka: command lines, figures, pairs and aims."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.brokers import MAGNETAR
from bench.figures import Figure
from bench.peers import programs, report
from bench.peers.loads import (
    DRAIN,
    IDLE,
    KAFKA,
    LOADS,
    NATS,
    ONE_IN_FLIGHT,
    START,
    Load,
    arguments,
    figures_of,
)
from bench.peers.programs import Programs
from bench.peers.run import Contestant, contestants, group, order
from bench.peers.servers import kafka_configuration, nats_configuration
from bench.results import Results

LOAD = {load.key: load for load in LOADS}


def words(load: Load, server: str, *, synced: bool, quick: bool = False) -> dict[str, str]:
    """Options of the generator with their values; a flag has the value ""."""
    given = arguments(load, server, synced=synced, quick=quick)
    following = [*given[1:], "-"]
    return {
        word: "" if value.startswith("-") else value
        for word, value in zip(given, following, strict=True)
        if word.startswith("-")
    }


def test_every_server_takes_the_same_load() -> None:
    for load in LOADS:
        told = [words(load, server, synced=False) for server in load.servers]
        for one in told:
            one.pop("-peer")
            one.pop("-share", None)
        assert all(one == told[0] for one in told)


def test_nats_gets_fewer_messages_where_it_syncs_each() -> None:
    load = LOAD["produce-1k"]
    assert words(load, NATS, synced=True)["-n"] == str(load.each_synced)
    assert words(load, NATS, synced=False)["-n"] == str(load.messages)
    assert words(load, MAGNETAR, synced=True)["-n"] == str(load.messages)


def test_a_backlog_of_synced_nats_is_filled_by_batches() -> None:
    told = words(LOAD[DRAIN], NATS, synced=True)
    assert int(told["-n"]) * int(told["-batch"]) == LOAD[DRAIN].messages


def test_kafka_syncs_and_shares_as_its_load_says() -> None:
    assert "-flush1" in words(LOAD["queue-tail"], KAFKA, synced=True)
    assert "-share" in words(LOAD["queue-tail"], KAFKA, synced=True)
    assert not {"-flush1", "-share"} & words(LOAD["tail"], KAFKA, synced=False).keys()
    assert not {"-flush1", "-share"} & words(LOAD["queue-tail"], MAGNETAR, synced=True).keys()


def test_quick_sends_less() -> None:
    load = LOAD["produce-1k"]
    assert int(words(load, MAGNETAR, synced=True, quick=True)["-n"]) == load.messages // 10


def phase(name: str, messages: int, seconds: float) -> str:
    return json.dumps(
        {"phase": name, "messages": messages, "seconds": seconds, "p50": 0.5, "p99": 2.0, "p999": 3.0}
    )


def test_figures_are_those_of_the_phase_that_counts() -> None:
    output = "\n".join((phase("produce", 1_000, 1.0), phase("consume", 1_000, 2.0)))
    assert figures_of(LOAD["tail"], output, 0.01) == {
        "messages/s": 500.0,
        "end to end p50": 0.5,
        "server CPU per million": pytest.approx(10.0),
    }
    assert figures_of(LOAD[ONE_IN_FLIGHT], output, 0.0) == {"ack p50": 0.5, "ack p99": 2.0}


def test_output_without_the_phase_is_an_error() -> None:
    with pytest.raises(ValueError, match="consume"):
        figures_of(LOAD["tail"], phase("produce", 1_000, 1.0), 0.0)


def test_programs_that_lack_are_left_out() -> None:
    everything = contestants(Programs(Path("g"), Path("n"), Path("k")))
    assert len(everything) == 6
    alone = contestants(Programs(Path("g"), "`go` is not installed", "`java` is not installed"))
    assert {one.server for one in alone} == {MAGNETAR}


def test_both_of_kafka_share_a_process() -> None:
    assert Contestant(KAFKA, False).process == Contestant(KAFKA, True)
    assert Contestant(NATS, False).process == Contestant(NATS, False)


def test_the_order_turns_round() -> None:
    sides = [Contestant(MAGNETAR, True), Contestant(NATS, True)]
    assert order(sides, 0) == sides
    assert order(sides, 1) == sides[::-1]


def test_ratios_are_taken_round_by_round() -> None:
    assert report.ratio_of([100.0, 10.0, 60.0], [50.0, 10.0, 20.0]) == 2.0
    assert report.ratio_of([100.0, 50.0], [50.0]) == 1.5
    assert report.ratio_of([100.0], []) is None


def test_aims() -> None:
    rate = report.with_aim(DRAIN, Figure("messages/s", "/s"), synced=True)
    assert report.aim_cell(rate, [50.0], [100.0]) == "Kafka's: **missed** by 2.00 times"
    assert report.aim_cell(rate, [100.0], [50.0]) == "Kafka's: met"
    assert report.aim_cell(rate, [100.0], []) == "Kafka's: not paired"
    latency = Figure("ack p50", "ms", "lower")
    assert report.with_aim(ONE_IN_FLIGHT, latency, synced=True) == latency
    unsynced = report.with_aim(ONE_IN_FLIGHT, latency, synced=False)
    assert report.aim_cell(unsynced, [0.1], []) == "0.12 ms: met"


def test_tables_hold_what_was_measured() -> None:
    results = Results(
        "command", False, "now", dict.fromkeys(("cores", "cpu", "memory", "kernel", "python"), ""), {}
    )
    results.add(group(START, synced=True), MAGNETAR, {"start": 0.5})
    results.add(group(START, synced=True), NATS, {"start": 0.05})
    results.add(group(IDLE, synced=True), MAGNETAR, {"resident memory": 30.0})
    first, second = report.rows(results, synced=True)
    assert first[1:] == ("start", "0.50 s", "0.05 s", "10", "", "", "0.4 s: **missed** by 1.25 times")
    assert second[-1] == "35 MB: met"
    text = report.markdown(results)
    assert report.TITLES[True] in text
    assert report.TITLES[False] not in text


def test_configurations_listen_on_loopback() -> None:
    synced = nats_configuration(Path("/d"), 1, synced=True)
    assert "sync_interval: always" in synced
    assert "sync_interval" not in nats_configuration(Path("/d"), 1, synced=False)
    assert '"127.0.0.1:1"' in synced
    assert "listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:3" in kafka_configuration(
        Path("/d"), 2, 3
    )


def test_versions_are_read_from_what_is_built() -> None:
    assert programs.nats_version()[0].isdigit()
    assert programs.kafka_version()[0].isdigit()


def test_a_load_names_each_figure_once() -> None:
    for load in LOADS:
        keys = [figure.key for figure in load.figures]
        assert len(keys) == len(set(keys))
