"""Every client library's scenarios on a cluster, as docs/clients.md records them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.comparison import assert_as_recorded
from tests.clients.matrix import run
from tests.clients.programs import Program
from tests.clients.services import cluster
from tests.clients.verdicts import CLUSTER, Verdict

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]


def test_every_scenario_of_every_client_is_as_recorded(programs: list[Program], directory: Path) -> None:
    # Apart, since others' acknowledgements in transactions that meet a move have no answer. Whether the own
    # client's moves made that more frequent is not known.
    own = [program for program in programs if "asyncio" in program.name]
    others = [program for program in programs if program not in own]
    verdicts: list[Verdict] = []
    with cluster(directory) as service:
        for group in (others, own):
            if group:
                verdicts += run(group, service, directory, report=lambda verdict: None)
    assert_as_recorded(CLUSTER, verdicts)
