"""One run of the benchmark as data: kept as JSON in bench/results/, rendered by report.py and plots.py."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.target import RESULTS
from tests.integration.harness import ROOT


@dataclass(slots=True)
class Results:
    """Figures by scenario, figure and broker; one value a round."""

    command: str
    quick: bool
    began: str
    machine: dict[str, str]
    brokers: dict[str, str]
    """Version by name, in the order of the report."""
    figures: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    curves: dict[str, dict[str, dict[str, list[list[float]]]]] = field(default_factory=dict)
    """Latency curves at figures.QUANTILES: scenario, curve, broker, one a round."""
    failures: list[str] = field(default_factory=list)
    load_averages: list[float] = field(default_factory=list)
    """Load average of the last minute, before each round: the benchmark's own load is in it."""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, scenario: str, broker: str, figures: dict[str, float]) -> None:
        for key, value in figures.items():
            self.figures.setdefault(scenario, {}).setdefault(key, {}).setdefault(broker, []).append(value)

    def add_curves(self, scenario: str, broker: str, curves: dict[str, list[float]]) -> None:
        for key, values in curves.items():
            self.curves.setdefault(scenario, {}).setdefault(key, {}).setdefault(broker, []).append(values)

    def values(self, scenario: str, figure: str, broker: str) -> list[float]:
        return self.figures.get(scenario, {}).get(figure, {}).get(broker, [])

    def save(self, kind: str = "run") -> Path:
        RESULTS.mkdir(parents=True, exist_ok=True)
        path = RESULTS / f"{kind}-{self.began.replace(':', '')}.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path


def load(path: Path) -> Results:
    return Results(**json.loads(path.read_text()))


def together(runs: Sequence[Results]) -> Results:
    """Runs of different loads on one machine as one; of a load that several have, the last one counts."""
    whole = runs[0]
    for one in runs[1:]:
        whole.command = f"{whole.command}` and `{one.command}"
        whole.began = f"{whole.began} and {one.began}"
        for name, version in one.brokers.items():
            before = whole.brokers.setdefault(name, version)
            if version not in before:
                whole.brokers[name] = f"{before} and {version}"
        whole.figures |= one.figures
        whole.curves |= one.curves
        whole.failures += one.failures
        whole.load_averages += one.load_averages
        whole.notes += one.notes
        whole.seconds += one.seconds
    return whole


def machine() -> dict[str, str]:
    """The conditions that the figures depend on, without naming the machine."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": model,
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
    }


def revision() -> str:
    """The commit that is measured, marked when the broker's sources differ from it."""
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", "cli", "libs", "services")
    return f"{commit or 'unknown'}{' with changes' if changed else ''}"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
