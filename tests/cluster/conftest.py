"""Fixtures of the cluster tests: real processes, whose logs are shown and kept when a test fails."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.cluster.processes import Cluster
from tests.integration.harness import temporary_directory

NewCluster = Callable[..., Cluster]
_clusters = pytest.StashKey[list[Cluster]]()
_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Show the end of each process's log with a failure."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
        for cluster in item.stash.get(_clusters, []):
            report.sections.append(("logs", cluster.log_tail()))
    return report


@pytest.fixture
def new_cluster(request: pytest.FixtureRequest) -> Iterator[NewCluster]:
    """Starts a cluster of the test's own, without brokers; all of it is killed at the end."""
    directory = temporary_directory()
    made: list[Cluster] = []
    request.node.stash[_clusters] = made
    with ExitStack() as stack:

        def make(**options: Any) -> Cluster:
            cluster = stack.enter_context(Cluster.running(directory / f"cluster-{len(made) + 1}", **options))
            made.append(cluster)
            return cluster

        yield make
    if request.node.stash.get(_failed, False):
        print(f"kept for a look: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A persistent topic of public/default that no other test uses."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")
    return f"persistent://public/default/{name}-{uuid.uuid4().hex[:8]}"
