"""A disk whose writes and syncs fail on command: a shim that is compiled and preloaded into the server."""

from __future__ import annotations

import errno
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

SOURCE = Path(__file__).with_name("failing_disk.c")
LOG: Final = "/segments/"
"""Part of the path of every file of the log."""
METADATA: Final = "metadata.sqlite"
"""Part of the path of the metadata file and its WAL."""


class FailingDisk:
    """Faults for servers that are started with `environment`."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            pytest.skip("needs a C compiler (cc) for the shim that makes writes and syncs fail")
        self._faults = directory / "faults"
        self._faults.mkdir()
        library = directory / "failing_disk.so"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"],
            check=True,
            timeout=60,
        )
        self.environment = {"LD_PRELOAD": str(library), "DISK_FAULTS": str(self._faults)}

    def fail(self, call: str, path_part: str, *, number: int = errno.EIO, once: bool = False) -> None:
        """From now on `call` (fdatasync, fsync, pwritev) fails for files with `path_part` in their path."""
        draft = self._faults / "draft"
        draft.write_text(f"{path_part} {number} {int(once)}")
        draft.rename(self._faults / call)

    def failed_once(self, call: str) -> bool:
        """Whether the one failure that was ordered has happened."""
        return not (self._faults / call).exists()

    def work(self, call: str) -> None:
        """`call` works again."""
        (self._faults / call).unlink(missing_ok=True)
