"""The tests, in two runs one after the other: what `make test`, `make test-full` and `make test-fast` start.

Those in IN_PROCESS start no servers and are bound by the processor: pytest-xdist spreads them over the cores.
The others run one at a time with the machine to themselves, since their servers, clients and disks have time
limits that a busy neighbor could make them miss. The first argument is `all` or `fast`, the rest goes to
pytest, both times; where it names files or directories, they are all that is run, and in one process.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FAST: Final = ("tests/repository", "tests/unit", "tests/property")
IN_PROCESS: Final = (*FAST, "tests/simulation")
WORKERS_MAX: Final = 4
"""Each keeps what it imports and collects: a machine with 64 cores should not run out of memory."""
SPREAD: Final = ("-n", "auto", "--maxprocesses", str(WORKERS_MAX), "--dist", "worksteal")

FAILED: Final = 1
NOTHING_CHOSEN: Final = 5
"""pytest's exit code where `-k` or `-m` leaves no test of a run."""

_TAKES_A_VALUE: Final = ("-k", "-m", "-p", "-o", "-c", "-n", "-W", "--ignore", "--deselect", "--junitxml")
_STOPS_AT_A_FAILURE: Final = ("-x", "--exitfirst", "--maxfail")


def runs(scope: str, arguments: list[str]) -> dict[str, list[str]]:
    """What pytest is started with, by what the run is called."""
    if _names_tests(arguments):
        return {"chosen": arguments}
    if scope == "fast":
        return {"fast": [*SPREAD, *FAST, *arguments]}
    others = ["tests", *(f"--ignore={directory}" for directory in IN_PROCESS)]
    return {
        "in process": [*SPREAD, *IN_PROCESS, *arguments],
        "with servers": [*others, *arguments],
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


def pytest(arguments: list[str]) -> int:
    """Run it to its end; it hears the terminal's interrupt itself, and ends what its tests have started."""
    command = ["-m", "pytest", *arguments]
    print("python", shlex.join(command), flush=True)
    with subprocess.Popen([sys.executable, *command], cwd=ROOT) as process:
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        return process.wait()


def main() -> None:
    scope, *arguments = sys.argv[1:]
    codes: list[int] = []
    told: list[str] = []
    for name, chosen in runs(scope, arguments).items():
        if codes and not goes_on(codes[-1], arguments):
            told.append(f"{name}: not run")
            continue
        started = time.monotonic()
        codes.append(pytest(chosen))
        how = {0: "passed", NOTHING_CHOSEN: "none chosen"}.get(codes[-1], f"FAILED (exit code {codes[-1]})")
        told.append(f"{name}: {how} in {time.monotonic() - started:.0f} s")
    if len(told) > 1:
        print(f"tests {'; '.join(told)}", flush=True)
    sys.exit(exit_code(codes))


if __name__ == "__main__":
    main()
