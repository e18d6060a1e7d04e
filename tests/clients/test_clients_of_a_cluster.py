"""Every client library's scenarios on a cluster, as docs/clients.md records them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.comparison import assert_as_recorded
from tests.clients.matrix import run
from tests.clients.programs import Program
from tests.clients.services import cluster
from tests.clients.verdicts import CLUSTER

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]


def test_every_scenario_of_every_client_is_as_recorded(programs: list[Program], directory: Path) -> None:
    with cluster(directory) as service:
        verdicts = run(programs, service, directory, report=lambda verdict: None)
    assert_as_recorded(CLUSTER, verdicts)
