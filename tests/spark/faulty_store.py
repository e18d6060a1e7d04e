"""A file system that fails when it is told to, in whichever process it is used: `faulty:///directory`.

What is to fail stands in files of the directory that FAULTS_DIRECTORY names, which driver, tasks and test
share. Each is used up by one call, which takes it by renaming it. Names are `<call>.<how>.<anything>`:

- before: the call fails and does nothing;
- after: it does everything, then fails;
- torn: a write leaves half of the bytes under the object's name, then fails;
- hang: the call waits until the test lets it go on (`release`), or fails after a minute.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fsspec.implementations.local import LocalFileSystem
from magnetar.ledger.cold.marker import MARKER_NAME

VARIABLE: Final = "FAULTS_DIRECTORY"
SCHEME: Final = "faulty"
HANGS_S_MAX: Final = 120.0
CALLS: Final = ("put_file", "pipe_file", "cat_file", "info", "ls", "rm_file", "mark", "look_at_mark")
"""The last two are what `pipe_file` and `cat_file` are called for the location's mark."""


class Faults:
    """What a test plans, and what came of it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory

    def plan(self, call: str, how: str, times: int = 1) -> None:
        """The next so many calls fail so."""
        assert call in CALLS, call
        for number in range(times):
            (self.directory / f"{call}.{how}.{time.monotonic_ns()}-{number}").touch()

    def clear(self) -> None:
        """Nothing fails any more, and what hangs goes on."""
        for path in self.directory.iterdir():
            path.unlink(missing_ok=True)

    def release(self) -> None:
        """What hangs goes on."""
        for path in self.directory.glob("hanging.*"):
            path.unlink(missing_ok=True)

    def hanging(self) -> list[int]:
        """The processes in which a call hangs."""
        return [int(path.name.split(".")[1]) for path in self.directory.glob("hanging.*")]

    def left(self) -> int:
        """Failures that no call has met yet."""
        return sum(not path.name.startswith(("hanging.", "taken.")) for path in self.directory.iterdir())


class FaultyFileSystem(LocalFileSystem):  # type: ignore[misc]
    """Files of this machine; see above."""

    protocol = SCHEME
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, str):
            path = path.removeprefix(f"{SCHEME}://")
        return super()._strip_protocol(path)

    def put_file(self, lpath: str, rpath: str, **options: Any) -> Any:
        def write(share: float) -> None:
            data = Path(lpath).read_bytes()
            _write(rpath, data[: int(len(data) * share)])

        return _trouble("put_file", lambda: write(1), lambda: write(0.5))

    def pipe_file(self, path: str, value: bytes, **options: Any) -> Any:
        call = "mark" if path.endswith(MARKER_NAME) else "pipe_file"
        return _trouble(call, lambda: _write(path, value), lambda: _write(path, value[: len(value) // 2]))

    def cat_file(self, path: str, **options: Any) -> Any:
        call = "look_at_mark" if path.endswith(MARKER_NAME) else "cat_file"
        return _trouble(call, lambda: LocalFileSystem.cat_file(self, path, **options))

    def info(self, path: str, **options: Any) -> Any:
        return _trouble("info", lambda: LocalFileSystem.info(self, path, **options))

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        plain = LocalFileSystem()  # it asks `info` of each file: that is no call of its own
        return _trouble("ls", lambda: plain.ls(path, detail=detail, **options))

    def rm_file(self, path: str) -> Any:
        return _trouble("rm_file", lambda: os.remove(path))


def _write(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_bytes(data)


def _trouble(call: str, act: Callable[[], Any], torn: Callable[[], Any] = lambda: None) -> Any:
    how = _take(call)
    if how == "hang":
        _hang()
        return act()
    if how == "torn":
        torn()
    if how == "after":
        act()
    if how:
        raise OSError(f"injected: {call} fails ({how})")
    return act()


def _take(call: str) -> str:
    """How this call fails; empty: it does not."""
    directory = os.environ.get(VARIABLE)
    if not directory or not os.path.isdir(directory):
        return ""
    for path in sorted(Path(directory).glob(f"{call}.*")):
        taken = path.with_name(f"taken.{path.name}")
        try:
            path.rename(taken)
        except FileNotFoundError:
            continue  # another call was quicker
        return path.name.split(".")[1]
    return ""


def _hang() -> None:
    mark = Path(os.environ[VARIABLE]) / f"hanging.{os.getpid()}.{time.monotonic_ns()}"
    mark.touch()
    deadline = time.monotonic() + HANGS_S_MAX
    while mark.exists():
        if time.monotonic() > deadline:
            raise OSError("injected: nobody let it go on")
        time.sleep(0.02)
