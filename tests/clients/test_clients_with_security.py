"""Scenarios with credentials of Java, Go and Python clients on a secured standalone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.brokers import anchor_version
from bench.jars import jars_directory
from tests.clients.programs import SECURITY_PROGRAMS, CannotBuild, Program, Source
from tests.clients.secured import SecuredService, run, secured_apache_pulsar, secured_standalone
from tests.clients.security_catalogue import SECURITY_SCENARIOS
from tests.clients.verdicts import Outcome
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


@pytest.mark.parametrize("source", SECURITY_PROGRAMS, ids=lambda source: source.name.split()[1])
def test_every_scenario_passes(service: SecuredService, source: Source) -> None:
    program = built(source)
    granted = service.issuer.granted
    verdicts = run(program, service)
    assert [verdict for verdict in verdicts if verdict.outcome is not Outcome.PASS] == []
    assert service.issuer.granted > granted, "the token of the oauth2 scenario came from elsewhere"


@pytest.fixture(scope="module")
def apache_pulsar() -> Iterator[SecuredService]:
    jars = jars_directory(f"apache-pulsar-{anchor_version()}")
    if not jars.is_dir():
        pytest.skip("Apache Pulsar's jars are not there: `make clients ANCHOR=1` fetches them")
    directory = temporary_directory()
    with secured_apache_pulsar(directory, jars) as service:
        yield service
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.nightly
@pytest.mark.parametrize("source", SECURITY_PROGRAMS, ids=lambda source: source.name.split()[1])
def test_every_scenario_but_that_of_openid_passes_on_apache_pulsar(
    apache_pulsar: SecuredService, source: Source
) -> None:
    scenarios = [scenario for scenario in SECURITY_SCENARIOS if scenario.name != "oauth2"]
    verdicts = run(built(source), apache_pulsar, scenarios)
    assert [verdict for verdict in verdicts if verdict.outcome is not Outcome.PASS] == []
