"""The definitions of Prometheus' operator, without which no API server takes the chart's monitors."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

MODULE: Final = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
"""Has the definitions of ServiceMonitor, PodMonitor and PrometheusRule beside its code."""
SUM: Final = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
KINDS: Final = ("podmonitors", "prometheusrules", "servicemonitors")
DOWNLOAD_SECONDS_MAX: Final = 300.0


class NoDefinitions(Exception):
    """The definitions cannot be had; the message says why."""


def operator_definitions() -> dict[str, Path]:
    """Return the file of each kind, fetched as a Go module. Raises NoDefinitions."""
    go = shutil.which("go")
    if go is None:
        raise NoDefinitions("there is no go on the PATH to fetch the definitions of Prometheus' operator")
    try:
        done = subprocess.run(
            [go, "mod", "download", "-json", MODULE],
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise NoDefinitions(f"{MODULE}: not within {DOWNLOAD_SECONDS_MAX:g} s") from None
    if done.returncode != 0:
        raise NoDefinitions(f"{MODULE}: {(done.stdout + done.stderr).strip()[-300:]}")
    module = json.loads(done.stdout)
    if module["Sum"] != SUM:
        raise NoDefinitions(f"{MODULE} has the sum {module['Sum']}, not {SUM}")
    directory = Path(module["Dir"]) / "example/prometheus-operator-crd"
    return {kind: directory / f"monitoring.coreos.com_{kind}.yaml" for kind in KINDS}
