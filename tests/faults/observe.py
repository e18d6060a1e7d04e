"""What a test sees of a server from outside: its metrics, its log lines, its memory."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from tests.integration.harness import StandaloneServer


def metric(server: StandaloneServer, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels; 0 when there are none."""
    with urllib.request.urlopen(f"{server.endpoint.http_url}/metrics", timeout=10) as response:
        text = response.read().decode()
    total = 0.0
    for line in text.splitlines():
        if line.startswith((name + " ", name + "{")) and all(
            f'{key}="{value}"' in line for key, value in labels.items()
        ):
            total += float(line.rpartition(" ")[2])
    return total


def log_lines(server: StandaloneServer, event: str) -> list[dict[str, Any]]:
    """The JSON log lines of this event, over all starts of the server."""
    lines = server.log_path.read_text(errors="replace").splitlines()
    parsed = (json.loads(line) for line in lines if line.startswith("{") and event in line)
    return [line for line in parsed if line.get("event") == event]


def resident_mib(server: StandaloneServer) -> float:
    """Memory of the process that is in RAM now."""
    return _status_kib(server, "VmRSS") / 1024


def peak_resident_mib(server: StandaloneServer) -> float:
    """The most it ever was."""
    return _status_kib(server, "VmHWM") / 1024


def descriptors(server: StandaloneServer) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def cpu_seconds(server: StandaloneServer) -> float:
    """User and system time so far, at 100 ticks a second."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _status_kib(server: StandaloneServer, key: str) -> int:
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise AssertionError(f"no {key} in the status of process {server.pid}")
