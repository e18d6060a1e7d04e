"""The benchmarks of a cluster work and print their figures; how high those are is not a test's business."""

from __future__ import annotations

import pytest

from tests.integration.test_bench import run_bench


@pytest.mark.full
def test_the_bench_of_a_cluster_makes_topics_and_loads_them_again() -> None:
    figures = run_bench("cluster", "topics", "--topics=60")
    assert figures["topics"] == 60
    assert figures["made/s"] > 0
    assert figures["loaded again s"] > 0


@pytest.mark.nightly
def test_the_bench_of_a_takeover_waits_for_every_topic() -> None:
    figures = run_bench("cluster", "takeover", "--takeover-topics=20")
    assert 0 < figures["first topic s"] <= figures["p50 s"] <= figures["last topic s"]


@pytest.mark.nightly
def test_the_bench_of_workers_sees_what_a_message_costs_each() -> None:
    figures = run_bench("workers", "--seconds=1", "--rate=200")
    for name in ("1 worker", "2 workers"):
        assert figures[f"{name}: CPU us per message"] > 0


@pytest.mark.nightly
def test_the_bench_of_interruptions_sees_publishers_wait_and_go_on() -> None:
    figures = run_bench("interruptions", "broker-stopped", "--rounds=1")
    assert 0 < figures["broker-stopped: of half of them ms"] <= figures["broker-stopped: longest ms"]
