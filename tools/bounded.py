"""Runs commands with timeouts, and blocks that must not be interrupted; for install and build tools."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

_END_SECONDS: Final = 10.0


class Ended(NamedTuple):
    """Result of a command."""

    why_failed: str | None
    """The error line; None if the command succeeded."""
    printed: str
    errors: str
    """Its standard error."""


def run(
    command: Sequence[str],
    seconds_max: float,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Ended:
    """Run a command that may need a network.

    Its child processes end with it: after the timeout, and when this process is terminated.
    """
    name = Path(command[0]).name
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=printed, stderr=said,
                env=environment, cwd=directory, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return Ended(str(error), "", "")
        try:
            code = process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            _end_group(process)
            return Ended(f"{name} took longer than {seconds_max:g} s", _text(printed), _text(said))
        except BaseException:
            _end_group(process)
            raise
        output, errors = _text(printed), _text(said)
    if code == 0:
        return Ended(None, output, errors)
    lines = (errors.strip() or output.strip()).splitlines() or [f"{name} ended with {code}"]
    # Debian's programs print the cause in their first error line, others in their last line.
    return Ended(next((line for line in lines if line.startswith("E: ")), lines[-1]), output, errors)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
            break
    with contextlib.suppress(ProcessLookupError):  # Child processes that outlived their parent.
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer termination signals to the end of the block, so that nothing is left incomplete."""
    asked: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda got, _: asked.append(got)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    if asked:
        sys.exit(128 + asked[0])
