"""Scenarios with credentials of client libraries in five languages on a secured standalone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.brokers import anchor_jars_directory
from tests.clients.programs import SECURITY_PROGRAMS, CannotBuild, Program, Source
from tests.clients.secured import SecuredService, run, secured_apache_pulsar, secured_standalone
from tests.clients.security_catalogue import LACKING
from tests.clients.verdicts import Outcome, Verdict
from tests.integration.harness import temporary_directory

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def service() -> Iterator[SecuredService]:
    directory: Path = temporary_directory()
    with secured_standalone(directory) as service:
        yield service
    shutil.rmtree(directory, ignore_errors=True)


def built(source: Source) -> Program:
    try:
        return source.build()
    except CannotBuild as error:
        pytest.skip(f"{source.name} cannot be built: {error}")


def unexpected(verdicts: list[Verdict]) -> list[Verdict]:
    """Verdicts other than a pass, or a feature that the library is known to lack."""
    return [
        verdict
        for verdict in verdicts
        if verdict.outcome
        is not (Outcome.LACKS if verdict.scenario in LACKING.get(verdict.program, {}) else Outcome.PASS)
    ]


@pytest.mark.parametrize("source", SECURITY_PROGRAMS, ids=lambda source: source.name.removeprefix("Secured "))
def test_every_scenario_passes(service: SecuredService, source: Source) -> None:
    program = built(source)
    granted = service.issuer.granted
    verdicts = run(program, service)
    assert unexpected(verdicts) == []
    if "oauth2" not in LACKING.get(source.name, {}):
        assert service.issuer.granted > granted, "the token of the oauth2 scenario came from elsewhere"


@pytest.fixture(scope="module")
def apache_pulsar() -> Iterator[SecuredService]:
    jars = anchor_jars_directory()
    if not jars.is_dir():
        pytest.skip("Apache Pulsar's jars are not there: `make clients ANCHOR=1` fetches them")
    directory = temporary_directory()
    with secured_apache_pulsar(directory, jars) as service:
        yield service
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.nightly
@pytest.mark.parametrize("source", SECURITY_PROGRAMS, ids=lambda source: source.name.removeprefix("Secured "))
def test_every_scenario_passes_on_apache_pulsar(apache_pulsar: SecuredService, source: Source) -> None:
    assert unexpected(run(built(source), apache_pulsar)) == []
