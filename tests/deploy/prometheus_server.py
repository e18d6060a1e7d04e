"""A real Prometheus for tests and pictures: on a free loopback port, in a directory of its own.

with PrometheusServer.running(directory, targets, rules=path) as prometheus:
    prometheus.query('sum(up{job="bookie"})')
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from magnetar.testing.free_ports import free_ports

from tests.integration.harness import LOG_TAIL_BYTES, eventually, launched, spawn
from tools.deploy_setup import prometheus_program

SCRAPE_EVERY_S: Final = 1
START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 40.0


@dataclass(frozen=True, slots=True)
class Series:
    """One of an answer: its labels, and its values by time, in seconds since 1970."""

    labels: dict[str, str]
    points: list[tuple[float, float]]

    @property
    def value(self) -> float:
        """The last one."""
        return self.points[-1][1]

    @property
    def says_something(self) -> bool:
        """Whether any value is a number: quantiles of nothing are not."""
        return any(not math.isnan(value) for _, value in self.points)


class PrometheusServer:
    """One Prometheus that scrapes every second. Raises AssertionError where there is none."""

    def __init__(
        self, directory: Path, targets: Mapping[str, Sequence[str]], cluster: str, rules: Path | None = None
    ) -> None:
        """`targets` are host:port by job, `cluster` is the label that all of them have."""
        program = prometheus_program()
        assert program is not None, "there is no prometheus: run 'make deploy-setup'"
        self.directory = directory
        self.log_path = directory / "prometheus.log"
        self._program = program
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._config = directory / "prometheus.yml"
        self._config.write_text(yaml.safe_dump(configuration(targets, cluster, rules)))

    @staticmethod
    @contextlib.contextmanager
    def running(
        directory: Path, targets: Mapping[str, Sequence[str]], cluster: str, rules: Path | None = None
    ) -> Iterator[PrometheusServer]:
        """A server that answers, ended with what it has written."""
        server = PrometheusServer(directory, targets, cluster, rules)
        try:
            server.start()
            yield server
        finally:
            server.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers; fails with its log."""
        command = [
            str(self._program),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]
        launched[self.log_path] = self
        with self.log_path.open("ab") as log:
            self._process = spawn(command, log, self.directory)
        eventually(self._ready, "Prometheus answers", START_SECONDS_MAX)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that does not end it; idempotent."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def query(self, expr: str) -> list[Series]:
        """The series of an expression now. Raises AssertionError with Prometheus' own words."""
        found = self._get("query", {"query": expr})["result"]
        return [Series(one["metric"], [_point(one["value"])]) for one in found]

    def query_range(self, expr: str, start_s: float, end_s: float, step_s: float) -> list[Series]:
        """The series of an expression over a time."""
        options = {"query": expr, "start": f"{start_s}", "end": f"{end_s}", "step": f"{step_s}"}
        found = self._get("query_range", options)["result"]
        return [Series(one["metric"], [_point(point) for point in one["values"]]) for one in found]

    def targets_up(self) -> int:
        """How many targets were scraped without an error the last time."""
        return sum(one["health"] == "up" for one in self._get("targets", {})["activeTargets"])

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        alerts = self._get("alerts", {})["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def log_tail(self) -> str:
        """The end of what it printed, for failure reports."""
        text = self.log_path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return f"--- end of {self.log_path}\n{text}"

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"Prometheus ended\n{self.log_tail()}"
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _get(self, path: str, options: Mapping[str, str]) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(options)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{options}: {error.read().decode()}") from None
        assert answer["status"] == "success", (options, answer)
        return answer["data"]


def configuration(targets: Mapping[str, Sequence[str]], cluster: str, rules: Path | None) -> dict[str, Any]:
    """As deploy/prometheus.yml has it, for targets of the test's own."""
    return {
        "global": {"scrape_interval": f"{SCRAPE_EVERY_S}s", "evaluation_interval": f"{SCRAPE_EVERY_S}s"},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [
            {
                "job_name": job,
                "honor_labels": True,
                "static_configs": [{"targets": list(addresses), "labels": {"cluster": cluster}}],
            }
            for job, addresses in targets.items()
        ],
    }


def _point(point: list[Any]) -> tuple[float, float]:
    return float(point[0]), float(point[1])
