"""A broker under measurement: where load goes, and the process whose costs are counted."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.harness import ROOT, StandaloneServer, temporary_directory

RESULTS = ROOT / "bench" / "results"
_LAG_BUCKET = re.compile(r'^magnetar_event_loop_lag_seconds_bucket\{.*\ble="([^"]+)".*\} (\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a broker listens, and its process (None when unknown)."""

    service_url: str
    http_url: str | None = None
    pid: int | None = None
    trust_certs: str = ""
    """Authorities (PEM file) of a service URL with TLS."""

    more_pids: tuple[int, ...] = ()
    """The other processes of a cluster, whose costs count too."""

    def cpu_seconds(self) -> float:
        """User and system time of the processes so far; 0.0 when they are unknown."""
        return sum(map(_cpu_seconds, self._pids))

    def rss_bytes(self) -> int:
        """Resident memory of the processes; 0 when they are unknown."""
        return sum(map(_rss_bytes, self._pids))

    def metrics(self) -> str:
        """The metrics page."""
        with urllib.request.urlopen(f"{self.http_url}/metrics", timeout=60) as response:
            return str(response.read().decode())

    def loop_lag_buckets(self) -> dict[float, float]:
        """Cumulative counts by upper bound in seconds, of Magnetar's event loop so far."""
        return {float(bound): float(count) for bound, count in _LAG_BUCKET.findall(self.metrics())}

    @property
    def _pids(self) -> tuple[int, ...]:
        return self.more_pids if self.pid is None else (self.pid, *self.more_pids)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def add_target_arguments(parser: argparse.ArgumentParser) -> None:
    """--against and --pid."""
    parser.add_argument("--against", metavar="URL", help="measure this broker instead of starting a Magnetar")
    parser.add_argument("--pid", type=int, help="with --against: the broker's process, for CPU and memory")


@contextmanager
def target(options: argparse.Namespace) -> Iterator[Target]:
    """The broker that the options name, or a fresh standalone with default settings."""
    if options.against:
        yield Target(options.against, None, options.pid)
        return
    directory = temporary_directory()
    server = StandaloneServer(directory)
    try:
        server.start()
        yield Target(server.endpoint.service_url, server.endpoint.http_url, server.pid)
        server.stop()
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def new_topic() -> str:
    """Return the name of a new topic."""
    return f"persistent://public/default/bench-{uuid.uuid4().hex[:12]}"


def report(name: str, figures: dict[str, Any]) -> None:
    """Print figures and append them as one line of JSON to bench/results/<name>.jsonl."""
    width = max(map(len, figures))
    for key, value in figures.items():
        shown = (
            f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
        )
        print(f"  {key:<{width}}  {shown}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    line = {"benchmark": name, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **figures}
    with (RESULTS / f"{name}.jsonl").open("a") as out:
        out.write(json.dumps(line) + "\n")
