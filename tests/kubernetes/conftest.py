"""The cluster that the chart's tests share, and the page of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.kube_cluster import KubeCluster, kube_cluster, why_no_cluster
from tests.kubernetes.record import Record, machine_facts
from tests.kubernetes.tiers import RECORD_VARIABLE, cannot_run, what_ran
from tools.deploy_setup import helm_program


@pytest.fixture(scope="session")
def helm() -> Path:
    found = helm_program()
    if found is None:
        cannot_run("there is no helm: make deploy-setup builds it")
    return found


@pytest.fixture(scope="session")
def cluster(helm: Path) -> Iterator[KubeCluster]:
    """The cluster, with a namespace for all tests of this run."""
    if reason := why_no_cluster():
        cannot_run(reason)
    with kube_cluster() as found:
        yield found


@pytest.fixture(scope="module")
def record(request: pytest.FixtureRequest) -> Iterator[Record]:
    """What a run did; written where a page was asked for, with what failed.

    A module with a RECORD_PART has a page of its own beside that of the others.
    """
    kept = Record(str(getattr(request.module, "RECORD_PART", "")))
    kept.facts += machine_facts()
    began, failures = time.monotonic(), request.session.testsfailed
    yield kept
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    assert isinstance(reporter, pytest.TerminalReporter)
    failed = request.session.testsfailed - failures
    kept.fact("outcome", f"{failed} tests FAILED" if failed else "no test failed")
    for tier, told in what_ran(reporter.stats, kept.part).items():
        kept.fact(tier, told)
    kept.fact("tier 2, start to end", f"{time.monotonic() - began:.0f} s")
    if path := os.environ.get(RECORD_VARIABLE):
        page = Path(path)
        if kept.part:
            page = page.with_name(f"{page.stem}-{kept.part}{page.suffix}")
        page.write_text(kept.page())
