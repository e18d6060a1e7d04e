"""Every query of every dashboard has something to show on a real Prometheus; alerts tell of what fails."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.cluster.processes import CLUSTER_NAME
from tests.deploy.observed import BOOKIE_GONE, BROKER_GONE, METADATA_GONE, Observed, observed
from tests.integration.harness import temporary_directory
from tools.dashboards.catalog import ALL
from tools.dashboards.model import Dashboard
from tools.dashboards.query_variables import asked
from tools.deploy_setup import prometheus_program

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        prometheus_program() is None, reason="there is no prometheus: run 'make deploy-setup'"
    ),
    pytest.mark.timeout(600),
]

STEP_S: Final = 2

ABOUT_LOAD: Final = {
    "MagnetarEtcdSlow",
    "MagnetarEventLoopLagging",
    "MagnetarPublishSlow",
    "MagnetarSyncSlow",
}
"""A machine that does other things beside the tests may well have these."""


@pytest.fixture(scope="module")
def seen(request: pytest.FixtureRequest) -> Iterator[Observed]:
    directory = temporary_directory()
    failed_before = request.session.testsfailed
    with observed(directory) as everything:
        yield everything
    if request.session.testsfailed > failed_before:
        print(f"kept for a look: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)


def as_asked(expr: str, dashboard: Dashboard) -> str:
    return asked(expr, dashboard, CLUSTER_NAME, "1m")


@pytest.mark.parametrize("dashboard", ALL, ids=lambda each: each.name)
def test_every_query_of_a_dashboard_returns_data_under_load(seen: Observed, dashboard: Dashboard) -> None:
    now = time.time()
    count, empty = 0, []
    for panel in dashboard.panels:
        for query in panel.queries:
            count += 1
            found = seen.prometheus.query_range(as_asked(query.expr, dashboard), seen.began_s, now, STEP_S)
            if not any(series.says_something for series in found):
                empty.append(f"{panel.title}: {query.expr}")
    assert count == sum(len(panel.queries) for panel in dashboard.panels) > 0
    assert not empty, "\n".join(empty)


def test_choices_above_dashboards_are_those_of_the_cluster(seen: Observed) -> None:
    for dashboard in ALL:
        for variable in dashboard.variables:
            selector, _, label = variable.query.removeprefix("label_values(").rstrip(")").rpartition(", ")
            found = {series.labels[label] for series in seen.prometheus.query(as_asked(selector, dashboard))}
            assert found, (dashboard.name, variable.query)
            assert "" not in found


def test_a_cluster_that_is_well_has_no_alerts(seen: Observed) -> None:
    assert seen.told["all is well"] - ABOUT_LOAD == set()


def test_alerts_tell_of_a_bookie_that_was_killed(seen: Observed) -> None:
    assert seen.told["a bookie was killed"] >= BOOKIE_GONE


def test_alerts_tell_of_a_broker_that_was_killed(seen: Observed) -> None:
    assert seen.told["a broker was killed"] >= BROKER_GONE


def test_alerts_tell_of_metadata_that_does_not_answer(seen: Observed) -> None:
    assert seen.told["etcd was stopped"] >= METADATA_GONE


def test_nothing_that_was_scraped_is_left_out_of_its_cluster(seen: Observed) -> None:
    """The dashboards choose by `cluster`: samples that say it themselves have to say the same."""
    named = {
        series.labels.get("cluster", "") for series in seen.prometheus.query('count by (cluster) ({job!=""})')
    }
    assert named == {CLUSTER_NAME}
