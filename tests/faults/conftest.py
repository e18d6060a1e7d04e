"""Fixtures of the fault tests: servers of their own, one per test, because each test breaks its own."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import StandaloneServer, temporary_directory

NewServer = Callable[..., StandaloneServer]
_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """What a failed test leaves is kept."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.fixture
def directory(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory that is kept when the test fails."""
    made = temporary_directory()
    yield made
    if request.node.stash.get(_failed, False):
        print(f"kept for a look: {made}")
    else:
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def new_server(request: pytest.FixtureRequest, directory: Path, cleanup: ExitStack) -> NewServer:
    """Makes a server, not started yet. Those that run at the end of a good test must still stop cleanly."""

    def make(settings: dict[str, str] | None = None, **options: Any) -> StandaloneServer:
        server = StandaloneServer(directory, settings, **options)
        cleanup.callback(end, server)
        return server

    def end(server: StandaloneServer) -> None:
        try:
            if not request.node.stash.get(_failed, False):
                server.stop()
        finally:
            server.kill()

    return make


@pytest.fixture
def cleanup(directory: Path) -> Iterator[ExitStack]:
    """What is entered or called back here ends in reverse order, before the directory goes."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A persistent topic of public/default that no other test uses."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")
    return f"persistent://public/default/{name}-{uuid.uuid4().hex[:8]}"
