"""Fixtures of the integration tests: servers, unique topic names, a PyPI client per test.

Modules that neither configure nor stop their server share one in each process; others have one of their own.

Every test runs over a standalone. Those in OVER_BOOKIES run a second time over a broker with bookies; so do
all the others in `make test-over-bookies`.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.cluster.processes import BrokerProcess, Cluster
from tests.integration.harness import (
    SERVICE_URL_VARIABLE,
    Endpoint,
    StandaloneServer,
    external_endpoint,
    launched,
    temporary_directory,
)
from tests.integration.rest import Rest

STANDALONE_KIND = "standalone"
BOOKIES_KIND = "bookies"

OVER_BOOKIES = {
    "test_publish_consume.py",
    "test_offload_service.py",
    "test_metrics.py",
    "raw/test_acknowledgement.py",
    "raw/test_partitions.py::test_a_partitioned_topic_in_use_goes_only_by_force_and_then_whole",
    "raw/test_partitions.py::test_a_subscription_misses_nothing_of_partitions_that_a_topic_grows",
    "raw/test_access_modes.py::test_the_epoch_survives_a_restart",
    "raw/test_termination.py::test_producers_are_disconnected_and_refused_for_ever",
    "test_admin_deletion.py::test_a_server_killed_in_the_middle_leaves_all_of_a_namespace_or_nothing",
    "test_compaction.py::test_the_view_outlives_the_messages",
    "test_compaction.py::test_a_view_is_there_after_a_restart_and_grows",
    "test_restart.py::test_acknowledged_messages_are_there_after_a_restart",
    "test_restart.py::test_nothing_whose_acknowledgement_was_confirmed_is_delivered_again",
    "test_restart.py::test_a_client_library_goes_on_by_itself",
}
"""Modules, and tests of others, that run over bookies each time."""

BOOKIES_IN_FULL_TIER = (
    "test_offload_service.py",
    "test_metrics.py",
    "raw/test_termination.py",
    "raw/test_access_modes.py",
    "test_admin_deletion.py",
    "test_compaction.py",
    "test_restart.py",
    "raw/test_partitions.py",
)
"""Modules of those whose tests over bookies belong to the full tier."""

ALL_OVER_BOOKIES_VARIABLE = "MAGNETAR_ALL_OVER_BOOKIES"

Server = StandaloneServer | BrokerProcess

SETTINGS = {"acknowledgmentAtBatchIndexLevelEnabled": "true"}
"""Settings of every server here that differ from the defaults."""

_failed_modules: set[str] = set()
_shared_cluster = pytest.StashKey[Cluster]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A failure shows the logs of the module's server and what it stands on, whichever test started them."""
    report = yield
    server = getattr(item, "funcargs", {}).get("_module_server")
    if report.failed and server is not None:
        cluster = item.session.stash.get(_shared_cluster, None)
        below = [cluster.etcd, *cluster.bookies] if cluster and isinstance(server, BrokerProcess) else []
        for process in (server, *below):
            if process.log_path not in launched:
                report.sections.append(("log of a process", process.log_tail()))
        _failed_modules.add(item.nodeid.split("::")[0])
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The kinds of server that a test runs over."""
    if "_module_server" not in metafunc.fixturenames:
        return
    kinds = [pytest.param(STANDALONE_KIND, id=pytest.HIDDEN_PARAM)]
    module = str(metafunc.definition.path.relative_to(Path(__file__).parent))
    chosen = bool(OVER_BOOKIES & {module, f"{module}::{metafunc.definition.originalname}"})
    everything = bool(os.environ.get(ALL_OVER_BOOKIES_VARIABLE))
    if external_endpoint() is None and (chosen or everything):
        marks = [pytest.mark.full] if module in BOOKIES_IN_FULL_TIER and not everything else []
        kinds.append(pytest.param(BOOKIES_KIND, id=BOOKIES_KIND, marks=marks))
    metafunc.parametrize("_module_server", kinds, indirect=True, scope="module")


@pytest.fixture(scope="session")
def _cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """etcd and three bookies, shared by all modules: each has a broker of its own, one after the other."""
    directory = temporary_directory()
    failed_before = len(_failed_modules)
    try:
        with Cluster.running(directory) as cluster:
            request.session.stash[_shared_cluster] = cluster
            yield cluster
    finally:
        if len(_failed_modules) > failed_before:
            print(f"kept for a look: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def _shared_server() -> Iterator[StandaloneServer]:
    """A standalone for all modules that could as well run against an external service."""
    directory = temporary_directory()
    failed_before = len(_failed_modules)
    server = StandaloneServer(directory, SETTINGS)
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.kill()
        if len(_failed_modules) > failed_before:
            print(f"kept for a look: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


def _can_share(request: pytest.FixtureRequest) -> bool:
    """Whether the module has no settings, and no test that stops, kills or configures its server."""
    if hasattr(request.module, "SERVER_SETTINGS"):
        return False
    tests = (item for item in request.session.items if item.path == request.path)
    return not any("server" in getattr(item, "fixturenames", ()) for item in tests)


@pytest.fixture(scope="module")
def _module_server(request: pytest.FixtureRequest) -> Iterator[Server | None]:
    """The module's server, or None when the environment names a service."""
    if external_endpoint() is not None:
        yield None
        return
    if request.param == STANDALONE_KIND and _can_share(request):
        yield request.getfixturevalue("_shared_server")
        return
    settings = {**SETTINGS, **getattr(request.module, "SERVER_SETTINGS", {})}
    directory = temporary_directory()
    server: Server
    if request.param == BOOKIES_KIND:
        cluster: Cluster = request.getfixturevalue("_cluster")
        server = cluster.broker(settings)
    else:
        server = StandaloneServer(directory, settings)
    try:
        server.start()
        yield server
        server.stop()
    except BaseException:
        _failed_modules.add(request.node.nodeid)
        raise
    finally:
        server.kill()
        if request.node.nodeid in _failed_modules:
            print(f"kept for a look: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def server(_module_server: Server | None) -> Server:
    """The module's server for tests that stop, kill or configure it; they skip when it is not ours."""
    if _module_server is None:
        pytest.skip(f"needs a server of its own, {SERVICE_URL_VARIABLE} names one that is not")
    if not _module_server.running:
        _module_server.start()
    return _module_server


@pytest.fixture
def our_contract() -> None:
    """For promises that Apache Pulsar 4.0 does not keep, with the difference named in the test."""
    if external_endpoint() is not None:
        pytest.skip(f"a promise of Magnetar's own, and {SERVICE_URL_VARIABLE} names another service")


@pytest.fixture
def endpoint(_module_server: Server | None) -> Endpoint:
    """Where the service under test listens, be it ours or the one that the environment names."""
    external = external_endpoint()
    if external is not None:
        return external
    assert _module_server is not None
    if not _module_server.running:
        _module_server.start()
    return _module_server.endpoint


@pytest.fixture
def rest(endpoint: Endpoint) -> Rest:
    """The admin API of the service under test."""
    return Rest(endpoint)


@pytest.fixture
def namespace(rest: Rest) -> str:
    """A namespace for one test."""
    return rest.new_namespace()


@pytest.fixture
def new_client(endpoint: Endpoint) -> Iterator[Callable[..., pulsar.Client]]:
    """Makes PyPI clients that are closed after the test."""
    clients: list[pulsar.Client] = []

    def make(**options: Any) -> pulsar.Client:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        options = {"operation_timeout_seconds": 30, "logger": logger, **options}
        client = pulsar.Client(endpoint.service_url, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        try:
            client.close()
        except pulsar.AlreadyClosed:
            pass


@pytest.fixture
def client(new_client: Callable[..., pulsar.Client]) -> pulsar.Client:
    """One PyPI client."""
    return new_client()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A persistent topic of public/default that no other test uses."""
    return f"persistent://public/default/{_unique(request.node.name)}"


@pytest.fixture
def volatile_topic(request: pytest.FixtureRequest) -> str:
    """A non-persistent topic of public/default that no other test uses."""
    return f"non-persistent://public/default/{_unique(request.node.name)}"


def _unique(test_name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", test_name).strip("-") + "-" + uuid.uuid4().hex[:8]
