"""Commands that may hang, and those that may not be broken off: for tools that install and build."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_END_SECONDS: Final = 10.0


def why_failed(command: list[str], environment: Mapping[str, str], seconds_max: float) -> str | None:
    """Run a command that may want a network; the line that says why it failed, None if it did not.

    All that it starts ends with it: after so many seconds, and when this process is told to end.
    """
    name = Path(command[0]).name
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, env=environment,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return str(error)
        try:
            code = process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            _end_group(process)
            return f"{name} took longer than {seconds_max:g} s"
        except BaseException:
            _end_group(process)
            raise
        if code == 0:
            return None
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
    # apt-get says why in the first of its errors, others in their last line.
    return next(
        (line for line in lines if line.startswith("E: ")), (lines or [f"{name} ended with {code}"])[-1]
    )


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
            break
    with contextlib.suppress(ProcessLookupError):  # those that outlive who started them
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that ask for an end wait for that of the block: nothing is left half-done."""
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
