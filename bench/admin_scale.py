"""The admin API and the metrics page of a broker with ten thousand topics, and what messages notice of it.

All figures are taken by clients: seconds from the request to the last byte, and the longest that a message
took from its place in the schedule to its consumer while others asked for figures without a pause. What it
took longer than the longest without requests is the stall that requests caused.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from statistics import median
from typing import Final
from urllib.parse import urlsplit

from bench.connection import Connection
from bench.figures import percentile
from bench.frames import SendTemplate
from bench.loads import Measured
from bench.paced import Paced, produce_at
from bench.target import Target, new_topic

AT_ONCE: Final = 500
PAGE: Final = 1_000
RATE: Final = 500.0
ROUNDS: Final = 3
"""Rounds with messages alone and with admin requests, in turns; the median counts."""
ANSWER_SECONDS_MAX: Final = 120
METRICS: Final = "/metrics"
_ASK_AGAIN: Final = """
import os, socket, sys
os.nice(19)
host, port, path = sys.argv[1:]
taken = bytearray(1 << 20)
while True:
    with socket.create_connection((host, int(port)), timeout=120) as asking:
        asking.sendall(f"GET {path} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n".encode())
        received = asking.recv_into(taken)
        if not taken.startswith(b"HTTP/1.1 200 "):
            sys.exit(f"{path}: {bytes(taken[:received])!r}")
        while asking.recv_into(taken):
            pass
"""
"""The requesting process uses little of the cores it shares with broker and clients: elsewhere it runs on
another machine."""


@dataclass(frozen=True, slots=True)
class AdminScale:
    """Make `topics` with one subscription each, and one of `partitions`; then ask for figures of all."""

    topics: int
    partitions: int
    seconds: float
    """Seconds of messages without requests, and with repeated requests for each of two pages."""

    def __call__(self, target: Target) -> Measured:
        assert target.http_url is not None, "the broker serves HTTP"
        prefix, partitioned = new_topic(), new_topic()
        names = [f"{prefix}-{number}" for number in range(self.topics)]
        http = _Http(target.http_url)
        http.put_partitions(partitioned, self.partitions)
        _make(target.service_url, names)
        _make(target.service_url, [f"{partitioned}-partition-{number}" for number in range(self.partitions)])
        everything = self.topics + self.partitions
        figures = {
            "topics": float(everything),
            "pages": http.pages(everything),
            "call by call": http.one_by_one(names),
            "partitioned stats": http.seconds(f"{_path(partitioned)}/partitioned-stats"),
            "broker stats": http.seconds("/admin/v2/broker-stats/topics"),
            "scrape": min(http.seconds(METRICS) for _ in range(3)),
        }
        http.close()
        pages = {"alone": None, "while scraped": METRICS, "while paged": f"{_pages_path()}?limit={PAGE}"}
        runs: dict[str, list[list[float]]] = {name: [] for name in pages}
        for _ in range(ROUNDS):
            for name, page in pages.items():
                runs[name].append(self._messages(target, page).end_to_end_ms)
        for name, taken in runs.items():
            figures[f"longest {name}"] = median(max(run) for run in taken)
            figures[f"p99.9 {name}"] = median(percentile(run, 0.999) for run in taken)
            if name != "alone":
                # What is left is the asking's: a machine with as many busy processes as cores has its own.
                figures[f"stalled {name}"] = max(0.0, figures[f"longest {name}"] - figures["longest alone"])
        return Measured(figures, {})

    def _messages(self, target: Target, page: str | None) -> Paced:
        """Messages by a schedule, while a process of its own reads `page` without a pause."""
        assert target.http_url is not None, "the broker serves HTTP"
        asking = None if page is None else _ask_again(target.http_url, page)
        # Of a non-persistent topic: a slow sync of the disk is not to be taken for a busy broker.
        topic = new_topic().replace("persistent://", "non-persistent://")
        consumer, producer = Connection(target.service_url), Connection(target.service_url)
        try:
            consumer.subscribe(topic)
            producer.open_producer(topic)
            return produce_at(
                producer.hand_over(),
                consumer.hand_over(),
                SendTemplate(1_024),
                rate=RATE,
                entries=int(RATE * (self.seconds + 1)),
                discard=int(RATE),
            )
        finally:
            producer.close()
            consumer.close()
            if asking is not None:
                asked = asking.poll() is None
                asking.kill()
                asking.wait()
                if not asked:
                    raise RuntimeError(f"{page} was not asked for all the time")


def _ask_again(http_url: str, path: str) -> subprocess.Popen[bytes]:
    parts = urlsplit(http_url)
    arguments = [parts.hostname or "", str(parts.port), path]
    return subprocess.Popen([sys.executable, "-c", _ASK_AGAIN, *arguments], stdin=subprocess.DEVNULL)


def _make(service_url: str, names: Sequence[str]) -> None:
    connection = Connection(service_url)
    for first in range(0, len(names), AT_ONCE):
        some = names[first : first + AT_ONCE]
        connection.subscribe_all(some, 1)
        connection.close_consumers(1, len(some))
    connection.close()


def _path(topic: str) -> str:
    return f"/admin/v2/{topic.replace('://', '/')}"


def _pages_path() -> str:
    return "/admin/magnetar/v1/namespaces/public/default/topics/stats"


class _Http:
    """One connection that is kept alive, as clients' are."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_SECONDS_MAX)

    def seconds(self, path: str) -> float:
        started = time.perf_counter()
        self._get(path)
        return time.perf_counter() - started

    def pages(self, topics: int) -> float:
        """Seconds for all topics of the namespace, page by page."""
        started, seen = time.perf_counter(), 0
        while seen < topics:
            page = json.loads(self._get(f"{_pages_path()}?offset={seen}&limit={PAGE}"))
            seen += len(page["topics"])
            if not page["topics"]:
                raise RuntimeError(f"{seen} of {topics} topics are on the pages")
        return time.perf_counter() - started

    def one_by_one(self, topics: Sequence[str]) -> float:
        started = time.perf_counter()
        for topic in topics:
            self._get(f"{_path(topic)}/stats")
        return time.perf_counter() - started

    def put_partitions(self, topic: str, count: int) -> None:
        self._ask("PUT", f"{_path(topic)}/partitions", str(count))

    def close(self) -> None:
        self._connection.close()

    def _get(self, path: str) -> bytes:
        return self._ask("GET", path, None)

    def _ask(self, method: str, path: str, body: str | None) -> bytes:
        self._connection.request(method, path, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        read = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {read[:200]!r}")
        return read
