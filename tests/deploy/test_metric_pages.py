"""Prometheus' own promtool reads the metrics pages; what it minds are names of Pulsar's and BookKeeper's."""

from __future__ import annotations

import importlib
import subprocess
from typing import Final

import pytest
from magnetar.common.obs.process_metrics import process_page

from tools.deploy_setup import promtool_program
from tools.metrics_reference import bookie_page, rendered_page

PROMTOOL: Final = promtool_program()
PROMTOOL_SECONDS_MAX: Final = 120
LINT: Final = 3
"""What promtool ends with when it can read a page and has something to say about names."""

DECLARING: Final = (
    "magnetar.bookie.service",
    "magnetar.broker.admin.edge.server",
    "magnetar.broker.load.metrics",
    "magnetar.discovery.http.server",
)

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool: run 'make deploy-setup'")


def test_promtool_reads_the_pages_and_minds_no_name_of_our_own() -> None:
    for module in DECLARING:
        importlib.import_module(module)
    page = bookie_page().encode() + rendered_page().encode() + process_page("one")
    done = subprocess.run(
        [str(PROMTOOL), "check", "metrics"],
        input=page,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PROMTOOL_SECONDS_MAX,
        check=False,
    )
    minded = done.stdout.decode()
    assert done.returncode in (0, LINT), minded
    ours = [line for line in minded.splitlines() if line.startswith(("magnetar_", "process_", "python_"))]
    assert ours == []
