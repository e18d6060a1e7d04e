"""Which tiers of the chart's tests run here, said loudly: a green run shall not pass for one of them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.harness import temporary_directory
from tests.kubernetes.programs import version, why_no_control_plane, why_no_node
from tests.kubernetes.record import Record, machine_facts
from tests.kubernetes.release import NAMESPACE
from tests.kubernetes.single_node import SingleNode
from tests.kubernetes.tiers import RECORD_VARIABLE, cannot_run, what_ran, why_no_time
from tools.deploy_setup import helm_program


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for tier, told in what_ran(terminalreporter.stats).items():
        terminalreporter.write_line(f"kubernetes {tier}: {told}")


@pytest.fixture(scope="session")
def helm() -> Path:
    found = helm_program()
    if found is None:
        cannot_run("there is no helm: make deploy-setup builds it")
    return found


@pytest.fixture(scope="module")
def control_plane() -> Iterator[SingleNode]:
    """What knows objects and refuses wrong ones; runs no pods."""
    if reason := why_no_control_plane():
        cannot_run(reason)
    with SingleNode.running(only_control_plane=True) as node:
        yield node


@pytest.fixture(scope="module")
def record(request: pytest.FixtureRequest) -> Iterator[Record]:
    """What a run did; written when somebody asked for it, with what failed."""
    kept = Record()
    kept.facts += machine_facts()
    began, failures = time.monotonic(), request.session.testsfailed
    yield kept
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    assert isinstance(reporter, pytest.TerminalReporter)
    failed = request.session.testsfailed - failures
    kept.fact("outcome", f"{failed} tests FAILED" if failed else "no test failed")
    for tier, told in what_ran(reporter.stats).items():
        kept.fact(tier, told)
    kept.fact("tier 2, start to end", f"{time.monotonic() - began:.0f} s")
    if path := os.environ.get(RECORD_VARIABLE):
        Path(path).write_text(kept.page())


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, record: Record) -> Iterator[SingleNode]:
    """A node that runs pods, with the names of the namespace that the release has.

    After a failure the logs of its processes and of all pods are kept.
    """
    if reason := why_no_time() or why_no_node():
        cannot_run(reason)
    began, failures = time.monotonic(), request.session.testsfailed
    with SingleNode.running(namespace=NAMESPACE) as running:
        record.fact("Kubernetes", version())
        record.note("nothing → a node that is Ready, with names and volumes", time.monotonic() - began)
        yield running
        if request.session.testsfailed > failures:
            kept = temporary_directory()
            for name in ("log", "pod-logs"):
                shutil.copytree(running.directory / name, kept / name, dirs_exist_ok=True)
            print(f"kept for a look: {kept}")
        began = time.monotonic()
    record.note("the node is stopped", time.monotonic() - began)
