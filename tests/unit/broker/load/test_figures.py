"""What the leader keeps: counts of bundles and loads of brokers, by themselves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.load.cluster_load import SETTLE_S, ClusterLoad
from magnetar.broker.load.config import LoadConfig, ReportConfig
from magnetar.broker.load.load_report import (
    BYTES_A_MESSAGE,
    OwnedLoad,
    Usage,
    is_news,
    make_report,
    usage_percent,
    work,
)
from magnetar.broker.load.owner_counts import EXPECTED_S, OwnerCounts, Run
from magnetar.broker.load.process_usage import CpuMeter, machine_bytes, resident_bytes
from magnetar.common.control.control_pb2 import Load, LoadReport

from tests.unit.broker.load.clusters import bundle

A: Run = ("a", 1)
B: Run = ("b", 1)


def report(percent: float, *loads: float, broker_id: str = "a", run: int = 1) -> LoadReport:
    owned = [OwnedLoad(*bundle(at), 1, Load(message_rate_in=load)) for at, load in enumerate(loads)]
    usage = Usage(percent, 0, 0)
    return make_report(broker_id, run, usage, owned, bundles_max=100, taken_ms=0, draining=False)


steps = st.lists(
    st.tuples(
        st.sampled_from(["changed", "expect", "expect_no_more"]),
        st.integers(0, 5),
        st.sampled_from([None, A, B]),
    ),
    max_size=40,
)


@given(steps)
def test_counts_are_those_of_what_metadata_says_and_what_is_expected(
    taken: list[tuple[str, int, Run | None]],
) -> None:
    counts = OwnerCounts()
    actual: dict[int, Run | None] = {}
    expected: dict[int, Run] = {}
    for what, number, run in taken:
        if what == "changed":
            counts.changed(bundle(number), run)
            actual[number] = run
            expected.pop(number, None)
        elif what == "expect" and run is not None:
            counts.expect(bundle(number), run, now=0.0)
            expected[number] = run
        else:
            counts.expect_no_more(bundle(number))
            expected.pop(number, None)
        now = Counter(run for run in {**actual, **expected}.values() if run is not None)
        assert {run: counts.bundles(run) for run in (A, B)} == {run: now[run] for run in (A, B)}
        assert dict(counts.of_namespace(bundle(0)[0])) == dict(now)
    counts.forget_expected(EXPECTED_S - 1)
    assert counts.bundles(A) == Counter({**actual, **expected}.values())[A]
    counts.forget_expected(EXPECTED_S)
    assert counts.bundles(A) == Counter(actual.values())[A]


def test_assigned_bundles_count_until_a_report_includes_them() -> None:
    load = ClusterLoad(LoadConfig())
    load.report(report(20.0, 1.0, 1.0), now=0.0)
    load.given(bundle(9), "a", now=1.0)
    assert load.usage_of("a", 1.0) == (30.0, 0), "what an average bundle takes"
    load.report(report(20.0, 1.0, 1.0), now=2.0)
    assert load.usage_of("a", 2.0)[0] == 30.0
    load.report(report(26.0, 1.0, 1.0, 1.0), now=1.0 + SETTLE_S)
    assert load.usage_of("a", 11.0)[0] == 26.0
    load.given(bundle(9), "a", now=12.0)
    load.not_given(bundle(9), "a")
    assert load.usage_of("a", 12.0)[0] == 26.0
    load.given(bundle(9), "a", now=12.0)
    load.given(bundle(8), "a", now=20.0)
    load.given(bundle(9), "a", now=30.0)
    assert load.usage_of("a", 79.0)[0] > load.usage_of("a", 80.0)[0] > 26.0, "no news is no news"
    assert load.usage_of("a", 90.0)[0] == 26.0


def test_a_broker_without_a_report_is_taken_for_an_average_one_and_what_it_is_given_counts() -> None:
    load = ClusterLoad(LoadConfig())
    assert load.usage_of("new", 0.0) == (0.0, 0)
    load.report(report(40.0, *[1.0] * 8), now=0.0)
    assert load.usage_of("new", 0.0)[0] == 40.0
    load.given(bundle(9), "new", now=0.0)
    assert load.usage_of("new", 0.0)[0] == 45.0
    load.report(report(1.0, broker_id="new"), now=1.0)
    assert load.usage_of("new", 1.0)[0] == 6.0
    assert load.reported(["a", "new"])
    assert not load.reported(["a", "c"])
    load.keep({"a": 2, "new": 1})
    assert [each.broker_id for each in load.brokers(2.0)] == ["new"]


def test_a_known_bundle_is_expected_to_take_what_it_takes_now() -> None:
    load = ClusterLoad(LoadConfig())
    load.report(report(40.0, 3.0, 1.0), now=0.0)
    assert load.expected_share(bundle(0)) == pytest.approx(30.0)
    assert load.expected_share(bundle(7)) == 10.0


def test_steady_load_follows_slowly_and_moves_count_at_once() -> None:
    load = ClusterLoad(LoadConfig())
    load.report(report(20.0, 1.0), now=-1_000.0)
    load.report(report(80.0, 1.0), now=10.0)
    [now] = load.brokers(10.0)
    [later] = load.brokers(70.0)
    assert now.steady == pytest.approx(20.0)
    assert later.steady == pytest.approx(26.0)
    assert now.usage == 80.0
    load.moved(bundle(0), 15.0, "a", "nobody")
    [moved] = load.brokers(70.0)
    assert moved.steady == pytest.approx(11.0)
    assert moved.usage == 65.0
    load.report(report(90.0, 1.0, run=2), now=80.0)
    assert load.brokers(80.0)[0].steady == 90.0, "another run begins anew"


def test_at_first_steady_load_is_the_average_of_what_was_reported() -> None:
    load = ClusterLoad(LoadConfig())
    load.report(report(20.0, 1.0), now=0.0)
    assert load.brokers(0.0)[0].steady == 20.0
    load.report(report(80.0, 1.0), now=30.0)
    load.report(report(50.0, 1.0), now=60.0)
    assert load.brokers(60.0)[0].steady == pytest.approx(50.0)
    assert load.brokers(90.0)[0].steady == pytest.approx(50.0)
    load.report(report(0.0, 1.0), now=90.0)
    assert load.brokers(135.0)[0].steady == pytest.approx(50.0 * 90 / 135)


def test_reports_that_are_too_old_and_bundles_that_are_none_count_no_more() -> None:
    load = ClusterLoad(LoadConfig())
    odd = report(20.0, 1.0)
    odd.loads.add(namespace="not a namespace", bundle="0x1")
    load.report(odd, now=0.0)
    [known] = load.brokers(1_800.0)
    assert [share.bundle for share in known.shares] == [bundle(0)]
    assert load.brokers(1_801.0) == []
    assert [(each.broker_id, age) for each, age in load.reports(1_801.0)] == [("a", 1_801.0)]


def test_work_adds_messages_bytes_and_what_stands_idle() -> None:
    assert work(Load(message_rate_in=3, byte_rate_out=2 * BYTES_A_MESSAGE)) == 5
    assert 0 < work(Load(topics=1)) < 1
    assert work(Load(topics=1, consumers=1)) > work(Load(topics=1))


def test_a_broker_s_load_is_that_of_its_most_used_resource_by_weight() -> None:
    full = report(30.0, 1.0)
    full.memory_bytes, full.memory_bytes_max = 60, 100
    full.total.byte_rate_in, full.total.byte_rate_out = 25e6, 100e6
    assert usage_percent(full, ReportConfig()) == 30.0
    assert usage_percent(full, ReportConfig(memory_weight=1.0)) == 60.0
    assert usage_percent(full, ReportConfig(nic_gbps=1.0)) == 80.0
    assert usage_percent(full, ReportConfig(nic_gbps=1.0, bandwidth_out_weight=0.1)) == 30.0
    assert usage_percent(full, ReportConfig(nic_gbps=0.2, bandwidth_out_weight=0)) == 100.0


def test_news_is_what_changed_by_more_than_the_threshold() -> None:
    config = ReportConfig()
    before = report(20.0, 100.0)
    assert not is_news(before, report(29.0, 109.0), config)
    assert is_news(before, report(30.0, 100.0), config)
    assert is_news(before, report(20.0, 112.0), config)
    assert is_news(before, report(20.0, 100.0, 0.0), config), "a bundle more"
    other = report(20.0, 100.0)
    other.loads[0].bundle = str(bundle(1)[1])
    other.loads[0].namespace = str(bundle(1)[0])
    assert is_news(before, other, config), "another bundle"
    many, same = (report(20.0, 60.0, 40.0, 30.0) for _ in range(2))
    del many.loads[2:], same.loads[1:2]
    assert not is_news(many, same, config), "the most loaded ones of more than are reported change places"


def test_the_processor_time_of_this_process_is_measured_between_two_questions() -> None:
    times = iter([(10.0, 1.0), (10.4, 1.4), (12.0, 2.0), (12.0, 2.0), (12.4, 2.4), (14.0, 6.0)])
    current = (0.0, 0.0)

    def tick() -> float:
        nonlocal current
        current = next(times)
        return current[0]

    meter = CpuMeter(tick, lambda: current[1])
    assert meter.percent() == 0.0, "too soon to say, although it was busy all the time"
    assert meter.percent() == 50.0
    assert meter.percent() == 50.0
    assert meter.percent() == 50.0, "too soon for another answer"
    assert meter.percent() == 200.0
    assert 0 < resident_bytes() < machine_bytes()
