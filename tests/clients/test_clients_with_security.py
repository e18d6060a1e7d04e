"""Scenarios with credentials of Java, Go and Python clients on a secured standalone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.programs import SECURITY_PROGRAMS, CannotBuild, Source
from tests.clients.secured import SecuredService, run, secured_standalone
from tests.clients.verdicts import Outcome
from tests.integration.harness import temporary_directory

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def service() -> Iterator[SecuredService]:
    directory: Path = temporary_directory()
    with secured_standalone(directory) as service:
        yield service


@pytest.mark.parametrize("source", SECURITY_PROGRAMS, ids=lambda source: source.name.split()[1])
def test_every_scenario_passes(service: SecuredService, source: Source) -> None:
    try:
        program = source.build()
    except CannotBuild as error:
        pytest.skip(f"{source.name} cannot be built: {error}")
    granted = service.issuer.granted
    verdicts = run(program, service)
    assert [verdict for verdict in verdicts if verdict.outcome is not Outcome.PASS] == []
    assert service.issuer.granted > granted, "the token of the oauth2 scenario came from elsewhere"
