"""`make test` leaves no test out, runs none twice, and fails when one of its runs does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.run_tests import FAILED, FAST, IN_PROCESS, NOTHING_CHOSEN, ROOT, exit_code, goes_on, runs

INTERRUPTED, MISUSED = 2, 4


def directories(arguments: list[str]) -> set[str]:
    """Those under tests/ that a run with these arguments collects."""
    there = {path.parent.relative_to(ROOT).parts[1] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    left_out = {Path(one).name for one in arguments if one.startswith("--ignore=")}
    if "tests" in arguments:
        return there - left_out
    return there & {Path(one).name for one in arguments if one.startswith("tests/")}


def test_every_directory_of_tests_is_in_exactly_one_run() -> None:
    in_process, with_servers = (directories(arguments) for arguments in runs("all", []).values())
    assert in_process == {Path(one).name for one in IN_PROCESS}
    assert with_servers >= {"cluster", "faults", "integration", "soak"}
    assert not in_process & with_servers
    assert all((ROOT / one).is_dir() for one in IN_PROCESS)


def test_only_tests_without_servers_share_the_machine() -> None:
    spread, alone = runs("all", []).values()
    assert "-n" in spread
    assert "-n" not in alone
    (fast,) = runs("fast", []).values()
    assert directories(fast) == {Path(one).name for one in FAST}


@pytest.mark.parametrize("choice", [["-k", "cursor"], ["-x"], ["-m", "not full"], ["-k", "tests"]])
def test_what_chooses_no_path_goes_to_each_run(choice: list[str]) -> None:
    assert [arguments[-len(choice) :] for arguments in runs("all", choice).values()] == [choice, choice]


@pytest.mark.parametrize(
    "choice", [["tests/faults", "-s"], ["-x", "tests/unit/sim/test_loop.py::test_a", "-k", "time"], ["tests"]]
)
def test_paths_are_all_that_is_run(choice: list[str]) -> None:
    assert list(runs("all", choice).values()) == [choice]


def test_one_run_that_fails_is_a_failure_whatever_the_other_says() -> None:
    assert exit_code([FAILED, 0]) == FAILED
    assert exit_code([0, FAILED]) == FAILED
    assert exit_code([NOTHING_CHOSEN, FAILED]) == FAILED
    assert exit_code([INTERRUPTED]) == INTERRUPTED
    assert exit_code([0, 0]) == 0


def test_that_nothing_was_chosen_counts_only_where_no_run_had_anything() -> None:
    assert exit_code([NOTHING_CHOSEN, 0]) == 0
    assert exit_code([0, NOTHING_CHOSEN]) == 0
    assert exit_code([NOTHING_CHOSEN, NOTHING_CHOSEN]) == NOTHING_CHOSEN


def test_the_second_run_follows_a_failure_but_no_interrupt_no_misuse_and_no_order_to_stop() -> None:
    assert goes_on(FAILED, ["-k", "cursor"])
    assert goes_on(NOTHING_CHOSEN, [])
    assert not goes_on(FAILED, ["-x"])
    assert not goes_on(FAILED, ["--maxfail=1"])
    assert not goes_on(INTERRUPTED, [])
    assert not goes_on(MISUSED, [])
