"""The tests, in runs of pytest one after the other: `make test` and all the targets that begin like it.

Those in IN_PROCESS start no servers and are bound by the processor: pytest-xdist spreads them over the cores.
The others start servers, clients and disks of their own and mostly wait for them: two files at a time. Those
of Spark start servers too, but share one Java machine, which uses every core by itself: one file after the
other. Those in ALONE measure the machine or need all of it, and have it to themselves. Those of deployment
start containers, which outlive a test's process: last, one file after the other.

The first argument is `all`, `fast` or `bookies`, the rest goes to each pytest; where it names files or
directories, they are all that is run, and in one process. After several runs their failures are named again,
and the last line is one like pytest's own, about all of them. Processes that a run leaves behind are ended
and named.

With TEST_SECOND_TRIES=N in the environment, up to N failures outside IN_PROCESS are tried once more, alone on
the machine, and those that pass then are named in a line of their own: what depends on a machine that others
use too shall not decide whether a change is taken, and shall not go unseen either.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
FAST: Final = ("tests/repository", "tests/unit", "tests/property")
IN_PROCESS: Final = (*FAST, "tests/simulation")
SPARK: Final = ("tests/spark",)
DEPLOY: Final = ("tests/deploy", "tests/kubernetes")
ALONE: Final = (
    "tests/faults/test_hostile_clients.py",
    "tests/faults/test_pauses.py",
    "tests/integration/test_busy_loop.py",
)
WORKERS_MAX: Final = 4
"""Each keeps what it imports and collects: a machine with 64 cores should not run out of memory."""
_WORKERS: Final = ("-n", "auto", "--maxprocesses", str(WORKERS_MAX))
SPREAD: Final = (*_WORKERS, "--dist", "worksteal")
BY_FILE: Final = (*_WORKERS, "--dist", "loadfile", "--no-loadscope-reorder")
"""A file stays in one process, with the server that its tests share; the long ones come first as they are."""

STRAYS_SECONDS_MAX: Final = 30.0
"""For what a run left behind to end by itself."""
FAILED: Final = 1
NOTHING_CHOSEN: Final = 5
"""pytest's exit code where `-k` or `-m` leaves no test of a run."""

OUTCOMES: Final = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "error")
"""As pytest names and orders them."""
RESULTS_VARIABLE: Final = "TEST_RESULTS_FILE"
"""Names the file to which a run of pytest writes its `Results`."""

SECOND_TRIES_VARIABLE: Final = "TEST_SECOND_TRIES"

_TAKES_A_VALUE: Final = ("-k", "-m", "-p", "-o", "-c", "-n", "-W", "--ignore", "--deselect", "--junitxml")
_STOPS_AT_A_FAILURE: Final = ("-x", "--exitfirst", "--maxfail")
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class Results(NamedTuple):
    """What became of the tests of one run, or of several."""

    counts: dict[str, int]
    failures: list[str]
    """The lines that name them."""

    def __add__(self, other: object) -> Results:
        assert isinstance(other, Results)
        counts = {one: self.counts.get(one, 0) + other.counts.get(one, 0) for one in OUTCOMES}
        return Results(counts, self.failures + other.failures)


def runs(scope: str, arguments: list[str]) -> dict[str, list[str]]:
    """What pytest is started with, by what the run is called."""
    if _names_tests(arguments):
        return {"chosen": arguments}
    if scope == "fast":
        return {"fast": [*SPREAD, *FAST, *arguments]}
    if scope == "bookies":
        return {"over bookies": [*BY_FILE, "-k", "bookies", "tests/integration", *arguments]}
    others = ["tests", *(f"--ignore={path}" for path in (*IN_PROCESS, *SPARK, *ALONE, *DEPLOY))]
    return {
        "in process": [*SPREAD, *IN_PROCESS, *arguments],
        "with servers": [*BY_FILE, *others, *arguments],
        "spark": [*SPARK, *arguments],
        "alone": [*ALONE, *arguments],
        "deploy": [*DEPLOY, *arguments],
    }


def _names_tests(arguments: list[str]) -> bool:
    return any(
        before not in _TAKES_A_VALUE
        and not argument.startswith("-")
        and (ROOT / argument.split("::")[0]).exists()
        for before, argument in pairwise(["", *arguments])
    )


def goes_on(code: int, arguments: list[str]) -> bool:
    """Whether there is a next run after this exit code: not when interrupted, misused or told to stop."""
    if code == FAILED:
        return not any(argument.startswith(_STOPS_AT_A_FAILURE) for argument in arguments)
    return code in (0, NOTHING_CHOSEN)


def exit_code(codes: list[int]) -> int:
    """Of all runs: that nothing was chosen in one counts only where it is so in each."""
    chosen = [code for code in codes if code != NOTHING_CHOSEN]
    return next((code for code in chosen if code), 0) if chosen else NOTHING_CHOSEN


def worth_a_second_try(results: Results, most: int) -> list[str]:
    """The failed tests, where they are no more than so many and each depends on the machine."""
    names = sorted({line.partition(" ")[2] for line in results.failures})
    return (
        [] if len(names) > most or any(name.startswith((*IN_PROCESS, "pytest ")) for name in names) else names
    )


def settled(first: Results, again: Results) -> Results:
    """What became of all tests when those that failed were tried again; a skipped test has proven nothing."""
    if again.counts.get("skipped", 0):
        return first
    counts = {**first.counts, "failed": again.counts.get("failed", 0), "error": again.counts.get("error", 0)}
    counts["passed"] = first.counts.get("passed", 0) + first.counts.get("failed", 0) - counts["failed"]
    return Results(counts, again.failures)


def closing_line(results: Results, seconds: float) -> str:
    """Like pytest's own, which is what those look for who read the end of a log."""
    told = []
    for outcome in OUTCOMES:
        if count := results.counts.get(outcome, 0):
            name = "errors" if outcome == "error" and count > 1 else outcome
            told.append(f"{count} {name if count > 1 else name.removesuffix('s')}")
    hours, minutes = divmod(int(seconds) // 60, 60)
    clock = f" ({hours}:{minutes:02}:{int(seconds) % 60:02})" if seconds >= 60 else ""
    return f" {', '.join(told) or 'no tests ran'} in {seconds:.2f}s{clock} ".center(80, "=")


def pytest(arguments: list[str]) -> tuple[int, Results]:
    """Run it to its end. It hears the terminal's interrupt itself, and ends what its tests have started."""
    command = ["-m", "pytest", *arguments]
    print("python", shlex.join(command), flush=True)
    with tempfile.TemporaryDirectory(prefix="magnetar-test-") as directory:
        told = Path(directory) / "results"
        environment = {**os.environ, RESULTS_VARIABLE: str(told)}
        with subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=environment, preexec_fn=_in_the_child
        ) as process:
            signal.signal(signal.SIGINT, lambda *_: None)
            signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
            code = process.wait()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_what_is_left()
        if told.exists():
            return code, Results(**json.loads(told.read_text()))
    broken = code not in (0, NOTHING_CHOSEN)
    return code, Results({"error": int(broken)}, [f"ERROR pytest ended with exit code {code}"] * broken)


def _in_the_child() -> None:
    """It dies with its parent, and hears interrupts, though a shell may have started all of this without."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """What the children of this process leave behind becomes its own; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_what_is_left() -> list[str]:
    """End every child there is, which has to be a stray: it is asked to, and killed when it takes too long.

    A Docker daemon takes its containers and what it has changed on this machine with it, when it is asked.
    Returns the commands of those that still ran.
    """
    asked: dict[int, str] = {}
    deadline = time.monotonic() + STRAYS_SECONDS_MAX
    while left := _children():
        for pid, command in left.items():
            if command and pid not in asked:
                print(f"left behind by a test, ended: {command}", flush=True)
                asked[pid] = command
                os.kill(pid, signal.SIGTERM)
            elif command and time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.02)
    return [*asked.values()]


def _children() -> dict[int, str]:
    """Commands by process; that of a zombie is empty."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if int((path / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def main() -> None:
    scope, *arguments = sys.argv[1:]
    adopt_orphans()
    codes: list[int] = []
    told: list[str] = []
    everything = Results({}, [])
    began = time.monotonic()
    for name, chosen in runs(scope, arguments).items():
        if codes and not goes_on(codes[-1], arguments):
            told.append(f"{name}: not run")
            continue
        started = time.monotonic()
        code, results = pytest(chosen)
        codes.append(code)
        everything += results
        how = {0: "passed", NOTHING_CHOSEN: "none chosen"}.get(code, f"FAILED (exit code {code})")
        told.append(f"{name}: {how} in {time.monotonic() - started:.0f} s")
    tries = int(os.environ.get(SECOND_TRIES_VARIABLE) or 0)
    if goes_on(codes[-1], arguments) and (names := worth_a_second_try(everything, tries)):
        print("", *everything.failures, "once more, alone:", sep="\n")
        code, again = pytest(names)
        everything = settled(everything, again)
        codes = [code or FAILED * bool(everything.failures)]
        passed = sorted(set(names) - {line.partition(" ")[2] for line in everything.failures})
        told.append(f"at the second try: {len(passed)} of {len(names)} passed, to be looked into: {passed}")
    if len(told) > 1:
        print("", *everything.failures, f"tests {'; '.join(told)}", sep="\n")
        print(closing_line(everything, time.monotonic() - began), flush=True)
    sys.exit(exit_code(codes))


if __name__ == "__main__":
    main()
