"""Fixtures of the integration tests: one server per module, unique topic names, a PyPI client per test."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pulsar
import pytest

from tests.integration.harness import (
    SERVICE_URL_VARIABLE,
    Endpoint,
    StandaloneServer,
    external_endpoint,
    temporary_directory,
)

SETTINGS = {"acknowledgmentAtBatchIndexLevelEnabled": "true"}
"""Settings of every server here that differ from the defaults."""

_failed_modules: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Show the end of the server's log with each failure."""
    report = yield
    server = getattr(item, "funcargs", {}).get("_module_server")
    if report.failed and server is not None:
        report.sections.append(("server log", server.log_tail()))
        _failed_modules.add(item.nodeid.split("::")[0])
    return report


@pytest.fixture(scope="module")
def _module_server(request: pytest.FixtureRequest) -> Iterator[StandaloneServer | None]:
    """The module's own server, or None when the environment names a service."""
    if external_endpoint() is not None:
        yield None
        return
    directory = temporary_directory()
    server = StandaloneServer(directory, {**SETTINGS, **getattr(request.module, "SERVER_SETTINGS", {})})
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
def server(_module_server: StandaloneServer | None) -> StandaloneServer:
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
def endpoint(_module_server: StandaloneServer | None) -> Endpoint:
    """Where the service under test listens, be it ours or the one that the environment names."""
    external = external_endpoint()
    if external is not None:
        return external
    assert _module_server is not None
    if not _module_server.running:
        _module_server.start()
    return _module_server.endpoint


@pytest.fixture
def new_client(endpoint: Endpoint) -> Iterator[Callable[..., pulsar.Client]]:
    """Makes PyPI clients that are closed after the test."""
    clients: list[pulsar.Client] = []

    def make(**options: Any) -> pulsar.Client:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        options = {"operation_timeout_seconds": 10, "logger": logger, **options}
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
