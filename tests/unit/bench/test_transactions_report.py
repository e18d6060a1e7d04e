"""Figures of transactions: what the program's answers mean, and the table that is made of them."""

from __future__ import annotations

import pytest

from bench.brokers import APACHE_PULSAR, MAGNETAR
from bench.results import Results
from bench.transactions import recovery, report
from bench.transactions.program import COMMIT_P99, CPU, MESSAGES, RATE, cycle_figures, publish_figures
from bench.transactions.run import COORDINATOR, INSIDE, LOADS, OUTSIDE, QUICK, RECOVERY, Run


def results() -> Results:
    machine = {"cpu": "a CPU", "cores": "2", "memory": "8 GiB", "kernel": "6.1", "python": "3.11.0"}
    return Results("python -m bench.transactions", True, "2026-01-01T00:00:00Z", machine, {MAGNETAR: "abc"})


def test_answers_become_rates_milliseconds_and_cpu_of_one_transaction() -> None:
    figures = cycle_figures(["500", "2.5", "1500", "9000", "4000", "20000"], cpu_s=1.0)
    assert list(figures.values()) == [200.0, 1.5, 9.0, 4.0, 20.0, 2.0]
    assert figures[RATE] == 200.0
    assert figures[CPU] == 2.0
    assert list(publish_figures(["1000", "0.5"], cpu_s=0.1).values()) == [2_000.0, 100.0]


def test_a_load_in_which_nothing_ended_is_refused() -> None:
    with pytest.raises(ValueError, match="measure for longer"):
        cycle_figures(["0", "2.5", "0", "0", "0", "0"], cpu_s=1.0)


def test_the_table_tells_medians_ratio_verdict_and_command() -> None:
    found = results()
    for ours, theirs in ((100.0, 40.0), (120.0, 50.0), (110.0, 60.0)):
        found.add("cycle-1-16", MAGNETAR, {RATE: ours, COMMIT_P99: 6.0})
        found.add("cycle-1-16", APACHE_PULSAR, {RATE: theirs, COMMIT_P99: 10.0})
    rate, p99 = report.rows(found)
    title, command = (
        "1 published + 1 acknowledged, 16 in flight",
        "`python -m bench.transactions --only cycles`",
    )
    assert rate == [title, RATE, "110 [100, 120]", "50.0 [40.0, 60.0]", "2.20", "target met", command]
    assert p99[4:6] == ["0.60", "**target missed** by 1.20 times"]


def test_the_recovery_of_a_coordinator_is_judged_by_its_seconds_and_without_an_anchor() -> None:
    found = results()
    found.add(COORDINATOR, MAGNETAR, {recovery.SERVING: 0.5, recovery.FIRST_END: 1.5, recovery.MORE: 1.0})
    assert [row[5] for row in report.rows(found)] == ["", "target met", ""]


def test_publishing_inside_is_told_by_publishing_outside() -> None:
    found = results()
    found.add(OUTSIDE, MAGNETAR, {MESSAGES: 1_000.0})
    assert report.inside_by_outside(found, MAGNETAR) is None
    found.add(INSIDE, MAGNETAR, {MESSAGES: 800.0})
    assert report.inside_by_outside(found, MAGNETAR) == 0.8
    assert report.markdown(found)[-1].endswith(": Magnetar 0.80.")


def test_a_load_of_many_messages_has_inputs_for_whole_transactions_for_all_of_its_time() -> None:
    (load,) = [one for one in LOADS if one.key == "cycle-100-16"]
    words = load.words("topic", 3.0)
    assert words[:4] == ("cycle", "topic", 100, 16)
    assert int(str(words[-1])) >= 100 * 600


def test_a_run_counts_the_steps_of_the_parts_that_were_chosen() -> None:
    assert Run(QUICK, results(), None, [RECOVERY]).step_count() == 2
    assert Run(QUICK, results(), None, ["cycles"]).step_count() == 1 + 4
