"""Tests that share a server, a Java machine or a Docker daemon share a process; the longest begin first."""

from __future__ import annotations

import re
import subprocess

from tests.scheduling import GENERATED, GROUPS, IN_PROCESS, LONGEST, group, turn
from tools.images.targets import ROOT


def test_every_name_in_the_schedule_exists() -> None:
    assert [path for path in (*IN_PROCESS, *GROUPS, *LONGEST) if not (ROOT / path).exists()] == []


def test_a_file_with_servers_stays_in_one_process_and_a_simulation_does_not() -> None:
    assert group("tests/cluster/test_chaos.py::test_a") == group("tests/cluster/test_chaos.py::test_b[1]")
    assert group("tests/spark/test_sink.py::test_a") == group("tests/spark/test_jobs.py::test_b")
    assert group("tests/deploy/test_images.py::test_a") == group("tests/kubernetes/test_parts.py::test_b")
    simulated = {group(f"{GENERATED[1]}test_a.py::test_every_promise_holds[{seed}]") for seed in range(100)}
    assert len(simulated) > 4


def test_waiting_tests_start_before_tests_that_need_the_processor() -> None:
    order = [
        "tests/spark/test_sink.py::test_a",
        f"{LONGEST[0]}::test_a",
        f"{LONGEST[1]}::test_a",
        "tests/deploy/test_images.py::test_a",
        "tests/integration/test_topics.py::test_a",
        "tests/simulation/test_power_loss.py::test_a",
        "tests/unit/sim/test_loop.py::test_a",
    ]
    assert sorted(sorted(order), key=turn) == order


def test_each_tier_is_what_its_target_says() -> None:
    """What measures the machine runs apart from the others, and after them."""

    def printed(target: str) -> list[str]:
        command = ["make", "--dry-run", "--no-print-directory", target, "ARGS=-k cursor"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return [part for part in done.stdout.split(";") if "-m pytest" in part]

    (default,) = printed("test")
    assert "-n " in default
    assert '-m "not full and not nightly" -k cursor' in default
    spread, alone = printed("test-full")
    assert '-m "(not nightly) and not alone" -k cursor' in spread
    assert '-m "(not nightly) and alone" -k cursor' in alone
    assert " -n " in spread
    assert " -n " not in alone


def test_tests_that_run_alone_are_in_the_full_tier() -> None:
    alone = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^(pytestmark|@pytest).*mark\.alone", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    marks = "pytestmark = [pytest.mark.alone, pytest.mark.full]"
    assert alone
    assert [path for path in alone if marks not in path.read_text(encoding="utf-8")] == []
