"""Fixtures of the cluster tests: real processes, whose logs are shown and kept when a test fails."""

from __future__ import annotations

import itertools
import re
import shutil
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.cluster.processes import Cluster
from tests.cluster.whole_cluster import WholeCluster
from tests.integration.harness import launched, temporary_directory

NewCluster = Callable[..., Cluster]
_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """What a failed test leaves is kept."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.fixture
def new_cluster(request: pytest.FixtureRequest) -> Iterator[NewCluster]:
    """Starts a cluster of the test's own, without brokers; all of it is killed at the end."""
    directory = temporary_directory()
    numbers = itertools.count(1)
    with ExitStack() as stack:

        def make(**options: Any) -> Cluster:
            return stack.enter_context(Cluster.running(directory / f"cluster-{next(numbers)}", **options))

        yield make
    if request.node.stash.get(_failed, False):
        print(f"kept for a look: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def shared_cluster(request: pytest.FixtureRequest) -> Iterator[WholeCluster]:
    """Everything, for all tests of a module; what is started with is the module's BROKER_SETTINGS."""
    directory = temporary_directory()
    failed_before = request.session.testsfailed
    settings = getattr(request.module, "BROKER_SETTINGS", None)
    with WholeCluster.serving(directory / "cluster", broker_settings=settings) as cluster:
        yield cluster
    if request.session.testsfailed > failed_before:
        print(f"kept for a look: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def whole_cluster(shared_cluster: WholeCluster) -> WholeCluster:
    """etcd, three bookies, three brokers and two discoveries; all of them serve when a test begins."""
    shared_cluster.mend()
    launched.update({one.log_path: one for one in shared_cluster.processes})
    return shared_cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A persistent topic of public/default that no other test uses."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")
    return f"persistent://public/default/{name}-{uuid.uuid4().hex[:8]}"
