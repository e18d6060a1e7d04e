"""`make test` leaves no test out, runs none twice, fails when one of its runs does, and leaves no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import results_of
from tools import run_tests
from tools.run_tests import (
    ALONE,
    DEPLOY,
    FAILED,
    FAST,
    IN_PROCESS,
    NOTHING_CHOSEN,
    ROOT,
    SPARK,
    Results,
    closing_line,
    exit_code,
    goes_on,
    runs,
    settled,
    worth_a_second_try,
)

INTERRUPTED, MISUSED = 2, 4


def files(arguments: list[str]) -> set[Path]:
    """Those of tests that a run with these arguments collects."""
    paths = [ROOT / one for one in arguments if one.startswith("tests")]
    left_out = [ROOT / one.removeprefix("--ignore=") for one in arguments if one.startswith("--ignore=")]
    return {
        file
        for path in paths
        for file in ([path] if path.suffix else path.rglob("test_*.py"))
        if not any(file.is_relative_to(one) for one in left_out)
    }


def test_every_file_of_tests_is_in_exactly_one_run() -> None:
    there = sorted((ROOT / "tests").rglob("test_*.py"))
    assert sorted(file for arguments in runs("all", []).values() for file in files(arguments)) == there
    assert files(runs("fast", [])["fast"]) == files([*FAST])
    assert files(runs("bookies", [])["over bookies"]) == files(["tests/integration"])
    assert all((ROOT / one).exists() for one in (*IN_PROCESS, *SPARK, *ALONE, *DEPLOY))


def test_what_measures_the_machine_has_it_to_itself_and_a_file_of_tests_its_server() -> None:
    in_process, with_servers, spark, alone, deploy = runs("all", []).values()
    assert "-n" in in_process
    assert "loadfile" in with_servers
    assert "-n" not in alone
    assert "-n" not in spark, "one Java machine for all of them"
    assert files(spark) == files(["tests/spark"])
    assert "-n" not in deploy, "one Docker daemon, and ports that are the same in each run"
    assert files(deploy) == files(["tests/deploy", "tests/kubernetes"])
    assert {file.relative_to(ROOT).parts[1] for file in files(with_servers)} >= {"cluster", "faults", "soak"}


@pytest.mark.parametrize("choice", [["-k", "cursor"], ["-x"], ["-m", "not full"], ["-k", "tests"]])
def test_what_chooses_no_path_goes_to_each_run(choice: list[str]) -> None:
    assert [arguments[-len(choice) :] for arguments in runs("all", choice).values()] == [choice] * 5


@pytest.mark.parametrize(
    "choice", [["tests/faults", "-s"], ["-x", "tests/unit/sim/test_loop.py::test_a", "-k", "time"], ["tests"]]
)
def test_paths_are_all_that_is_run(choice: list[str]) -> None:
    assert list(runs("all", choice).values()) == [choice]


def test_one_run_that_fails_is_a_failure_whatever_the_others_say() -> None:
    assert exit_code([FAILED, 0, 0]) == FAILED
    assert exit_code([0, 0, FAILED]) == FAILED
    assert exit_code([NOTHING_CHOSEN, FAILED]) == FAILED
    assert exit_code([INTERRUPTED]) == INTERRUPTED
    assert exit_code([0, 0, 0]) == 0


def test_that_nothing_was_chosen_counts_only_where_no_run_had_anything() -> None:
    assert exit_code([NOTHING_CHOSEN, 0]) == 0
    assert exit_code([0, NOTHING_CHOSEN]) == 0
    assert exit_code([NOTHING_CHOSEN, NOTHING_CHOSEN]) == NOTHING_CHOSEN


def test_the_next_run_follows_a_failure_but_no_interrupt_no_misuse_and_no_order_to_stop() -> None:
    assert goes_on(FAILED, ["-k", "cursor"])
    assert goes_on(NOTHING_CHOSEN, [])
    assert not goes_on(FAILED, ["-x"])
    assert not goes_on(FAILED, ["--maxfail=1"])
    assert not goes_on(INTERRUPTED, [])
    assert not goes_on(MISUSED, [])


def test_the_last_line_is_as_pytest_writes_it_and_about_all_runs() -> None:
    good = Results({"passed": 6_000, "deselected": 1}, [])
    bad = Results({"failed": 1, "passed": 700, "error": 2}, ["FAILED a", "ERROR b", "ERROR c"])
    assert good + bad == Results(
        {**dict.fromkeys(("skipped", "xfailed", "xpassed", "warnings"), 0)}
        | {"failed": 1, "passed": 6_700, "deselected": 1, "error": 2},
        bad.failures,
    )
    assert closing_line(good + bad, 3_725.5).strip("=") == (
        " 1 failed, 6700 passed, 1 deselected, 2 errors in 3725.50s (1:02:05) "
    )
    assert closing_line(Results({"passed": 1, "warnings": 1}, []), 9).strip("=") == (
        " 1 passed, 1 warning in 9.00s "
    )
    assert closing_line(Results({}, []), 0.5).strip("=") == " no tests ran in 0.50s "


def test_the_results_of_a_run_name_its_failures() -> None:
    class Report:
        nodeid = "tests/test_a.py::test_b"

    results = results_of({"": [Report()], "passed": [Report()] * 3, "error": [Report()]})
    assert results.counts["passed"] == 3
    assert results.failures == ["ERROR tests/test_a.py::test_b"]


def test_a_few_failures_that_depend_on_the_machine_are_worth_a_second_try() -> None:
    twice = Results(
        {}, ["FAILED tests/cluster/test_a.py::test_b[1 2]", "ERROR tests/cluster/test_a.py::test_b[1 2]"]
    )
    assert worth_a_second_try(twice, 1) == ["tests/cluster/test_a.py::test_b[1 2]"]
    assert worth_a_second_try(twice, 0) == []
    of_spark = Results({}, ["FAILED tests/spark/test_b.py::test_e"])
    assert worth_a_second_try(twice + of_spark, 2) == [
        "tests/cluster/test_a.py::test_b[1 2]",
        "tests/spark/test_b.py::test_e",
    ]
    assert worth_a_second_try(twice + Results({}, ["FAILED tests/unit/test_c.py::test_d"]), 9) == []
    assert worth_a_second_try(twice + Results({}, ["ERROR pytest ended with exit code 3"]), 9) == []


def test_a_second_try_settles_what_failed_and_nothing_else() -> None:
    first = Results(
        {"passed": 10, "failed": 2, "error": 1, "skipped": 1}, ["FAILED a", "FAILED b", "ERROR b"]
    )
    one_left = settled(first, Results({"passed": 1, "failed": 1}, ["FAILED b"]))
    assert one_left.counts == {"passed": 11, "failed": 1, "error": 0, "skipped": 1}
    assert one_left.failures == ["FAILED b"]
    assert settled(first, Results({"passed": 2}, [])).counts["passed"] == 12
    assert settled(first, Results({"passed": 1, "skipped": 1}, [])) == first, (
        "what was skipped has proven nothing"
    )


@pytest.mark.parametrize(("tries", "code"), [("1", 0), ("0", FAILED), ("", FAILED)])
def test_what_passes_only_at_the_second_try_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tries: str, code: int
) -> None:
    disturbed = "tests/cluster/test_a.py::test_b"
    started: list[list[str]] = []

    def run(arguments: list[str]) -> tuple[int, Results]:
        """The second of five has a failure, which is not there when that test has the machine to itself."""
        started.append(arguments)
        if len(started) == 2:
            return FAILED, Results({"failed": 1, "passed": 4}, [f"FAILED {disturbed}"])
        return 0, Results({"passed": 1}, [])

    monkeypatch.setattr(run_tests, "pytest", run)
    monkeypatch.setattr(run_tests, "adopt_orphans", lambda: None)
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "all"])
    monkeypatch.setenv("TEST_SECOND_TRIES", tries)
    with pytest.raises(SystemExit) as ended:
        run_tests.main()
    printed = capsys.readouterr().out
    assert ended.value.code == code
    assert started[5:] == ([] if code else [[disturbed]])
    assert f"FAILED {disturbed}" in printed
    assert (f"at the second try: 1 of 1 passed, to be looked into: {[disturbed]}" in printed) == (code == 0)
    assert ("= 9 passed in" in printed) == (code == 0)


def test_a_second_try_that_is_skipped_leaves_the_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the tests on a Kubernetes node are when no time is left for them."""
    late = "tests/kubernetes/test_a.py::test_b"
    answers = [(FAILED, Results({"failed": 1}, [f"FAILED {late}"])), (0, Results({"skipped": 1}, []))]
    monkeypatch.setattr(run_tests, "pytest", lambda arguments: answers.pop(0))
    monkeypatch.setattr(run_tests, "runs", lambda scope, arguments: {"deploy": [late]})
    monkeypatch.setattr(run_tests, "adopt_orphans", lambda: None)
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "all"])
    monkeypatch.setenv("TEST_SECOND_TRIES", "3")
    with pytest.raises(SystemExit) as ended:
        run_tests.main()
    assert ended.value.code == FAILED
    printed = capsys.readouterr().out
    assert "at the second try: 0 of 1 passed" in printed
    assert "= 1 failed in" in printed


LEAVES_A_PROCESS = """
import subprocess, sys, time

def test_that_never_ends():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open({told!r}, "w") as told:
        told.write(f"{{child.pid}}\\n")
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives orphans to an ancestor of choice")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_early_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM to all of it, or SIGKILL to pytest, which then cannot end anything by itself."""
    told, test = tmp_path / "told", tmp_path / "test_endless.py"
    test.write_text(LEAVES_A_PROCESS.format(told=str(told)))
    command = [
        sys.executable,
        str(ROOT / "tools" / "run_tests.py"),
        "all",
        str(test),
        "-p",
        "no:cacheprovider",
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as runner:
        while not (told.exists() and told.read_text().endswith("\n")):
            assert runner.poll() is None
            time.sleep(0.01)
        child = int(told.read_text())
        assert Path(f"/proc/{child}").exists()
        if number == signal.SIGTERM:
            runner.terminate()
        else:
            os.kill(parent_of(child), number)
        printed, _ = runner.communicate(timeout=60)
    assert not Path(f"/proc/{child}").exists()
    assert "left behind by a test, ended:" in printed
    assert runner.returncode not in (0, NOTHING_CHOSEN)


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
