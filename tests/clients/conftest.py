"""Programs of the client matrix, built once for all services."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.programs import PROGRAMS, CannotBuild, Program
from tests.integration.harness import temporary_directory


@pytest.fixture(scope="session")
def programs() -> list[Program]:
    """What can be built here. Says what cannot, and skips where nothing can."""
    built, reasons = [], []
    for source in PROGRAMS:
        try:
            built.append(source.build())
        except CannotBuild as error:
            reasons.append(f"{source.name}: {error}")
    print(*reasons, sep="\n")
    if not built:
        pytest.skip("; ".join(reasons))
    return built


@pytest.fixture
def directory(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory for a service and for what programs print, kept when the test fails."""
    failed_before = request.session.testsfailed
    path = temporary_directory()
    yield path
    if request.session.testsfailed > failed_before:
        print(f"kept for a look: {path}")
    else:
        shutil.rmtree(path, ignore_errors=True)
