"""Kernel counters of a process, and facts about the machine."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, in steps of a clock tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_bytes(pid: int) -> int:
    """Anonymous resident memory: what is not a file's page cache."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"no RssAnon of process {pid}")


def available_bytes(meminfo: str) -> int:
    """Memory that can be had without swapping, from the text of /proc/meminfo."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ValueError("no MemAvailable in /proc/meminfo")


def file_system(mounts: str, directory: Path) -> str:
    """The type of the file system that holds `directory`, from the text of /proc/self/mounts."""
    found, longest = "unknown", -1
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split()
        parts = len(Path(point).parts)
        if directory.is_relative_to(point) and parts >= longest:  # of two mounts at a place the later is seen
            found, longest = kind, parts
    return found
