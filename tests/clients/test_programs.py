"""Programs of the client matrix that can be built here; one that cannot is a skipped test with the reason."""

from __future__ import annotations

import pytest

from tests.clients.catalogue import BY_NAME, SCENARIOS
from tests.clients.page import page
from tests.clients.programs import PROGRAMS, CannotBuild, Source
from tests.clients.verdicts import APACHE, SERVICES, Outcome, recorded
from tests.integration.harness import ROOT


@pytest.mark.full
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("source", PROGRAMS, ids=lambda source: source.name)
def test_a_program_is_built(source: Source) -> None:
    try:
        program = source.build()
    except CannotBuild as error:
        pytest.skip(f"{source.name}: {error}")
    assert program.command
    assert not [word for word in program.command if str(ROOT) in word], "other checkouts share the cache"


@pytest.mark.parametrize("service", SERVICES)
def test_each_scenario_has_a_recorded_verdict_of_each_program(service: str) -> None:
    cells = {(verdict.program, verdict.scenario) for verdict in recorded(service)}
    assert cells == {(source.name, scenario.name) for source in PROGRAMS for scenario in SCENARIOS}


@pytest.mark.parametrize("service", SERVICES)
def test_no_recorded_scenario_failed(service: str) -> None:
    failed = [verdict for verdict in recorded(service) if verdict.outcome is Outcome.FAIL]
    if service == APACHE:
        # Go names a transaction in the command alone, and Apache Pulsar looks for it in the metadata.
        failed = [each for each in failed if not (each.program.startswith("Go") and "txn-" in each.scenario)]
    assert not failed


def test_missing_capability_is_missing_on_all_services_with_a_reason() -> None:
    lacking = [
        {(one.program, one.scenario) for one in recorded(service) if one.outcome is Outcome.LACKS}
        for service in SERVICES
    ]
    assert lacking[0] == lacking[1] == lacking[2]
    assert all(one.reason for one in recorded(SERVICES[0]) if one.outcome is Outcome.LACKS)


def test_the_page_names_every_scenario_and_program() -> None:
    text = page()
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    shown = {name.strip() for cell in cells for name in cell.split(",")}
    assert shown >= set(BY_NAME)
    assert all(f"| {source.name} |" in text for source in PROGRAMS)
