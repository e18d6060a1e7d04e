"""Real file systems with a known amount of space: tmpfs, or ext4 on a loop device. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

BALLAST = "ballast"


class SmallDisk:
    """A mounted file system and the ballast file that fills it; unmounted when `cleanup` closes."""

    def __init__(self, kind: str, mount_point: Path, size_mib: int, cleanup: ExitStack) -> None:
        self.path = mount_point
        mount_point.mkdir()
        if kind == "tmpfs":
            _run_or_skip("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(mount_point))
        else:
            image = mount_point.with_suffix(".img")
            image.write_bytes(b"")
            os.truncate(image, size_mib << 20)
            _run_or_skip("mkfs.ext4", "-q", "-m", "0", str(image))
            _run_or_skip("mount", "-o", "loop", str(image), str(mount_point))
        cleanup.callback(subprocess.run, ["umount", "-l", str(mount_point)], check=False)

    @property
    def free_bytes(self) -> int:
        stats = os.statvfs(self.path)
        return stats.f_bavail * stats.f_frsize

    def leave_free(self, byte_count: int) -> None:
        """Grow the ballast until this much is free (or, rounded to blocks, a little less)."""
        with (self.path / BALLAST).open("ab", buffering=0) as file:
            while (excess := self.free_bytes - byte_count) > 0:
                try:
                    file.write(b"\xaa" * min(excess, 1 << 20))
                except OSError:
                    return
                os.fsync(file.fileno())

    def free_up(self) -> None:
        """Remove the ballast."""
        (self.path / BALLAST).unlink()


def _run_or_skip(*command: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]} to make a small file system")
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if result.returncode != 0:
        pytest.skip(f"needs a small file system, and {' '.join(command)} said: {result.stderr.strip()}")
