"""Definitions without which no API server takes the chart's monitors and certificates."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DOWNLOAD_SECONDS_MAX: Final = 300.0


class NoDefinitions(Exception):
    """The definitions cannot be had; the message says why."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A Go module that has definitions beside its code."""

    module: str
    sum: str
    files: Mapping[str, str]
    """The path in the module of each definition, by the name of its custom resource definition."""


OPERATORS: Final = (
    Operator(
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        {
            f"{kind}.monitoring.coreos.com": (
                f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
            )
            for kind in ("podmonitors", "prometheusrules", "servicemonitors")
        },
    ),
    Operator(
        "github.com/cert-manager/cert-manager@v1.19.1",
        "h1:Txh8L/nLWTDcb7ZnXuXbTe15BxQnLbLirXmbNk0fGgY=",
        {
            f"{kind}.cert-manager.io": f"deploy/crds/cert-manager.io_{kind}.yaml"
            for kind in ("certificates", "issuers")
        },
    ),
)


def operator_definitions() -> dict[str, Path]:
    """Return the file of each definition by its name, fetched as a Go module. Raises NoDefinitions."""
    go = shutil.which("go")
    if go is None:
        raise NoDefinitions("there is no go on the PATH to fetch definitions of custom resources")
    found: dict[str, Path] = {}
    for operator in OPERATORS:
        directory = _fetched(go, operator)
        found |= {name: directory / path for name, path in operator.files.items()}
    return found


def _fetched(go: str, operator: Operator) -> Path:
    """Return the directory of the module."""
    try:
        done = subprocess.run(
            [go, "mod", "download", "-json", operator.module],
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise NoDefinitions(f"{operator.module}: not within {DOWNLOAD_SECONDS_MAX:g} s") from None
    if done.returncode != 0:
        raise NoDefinitions(f"{operator.module}: {(done.stdout + done.stderr).strip()[-300:]}")
    module = json.loads(done.stdout)
    if module["Sum"] != operator.sum:
        raise NoDefinitions(f"{operator.module} has the sum {module['Sum']}, not {operator.sum}")
    return Path(module["Dir"])
