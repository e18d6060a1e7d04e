"""/livez and /readyz of a broker: what restarts it and what sends clients to it ask different things."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from magnetar.broker.admin.edge import server
from magnetar.common.errors import LogFull
from magnetar.common.metadata.store import ABSENT

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

OK = (200, "ok\n")


def test_a_broker_that_serves_clients_lives_and_is_ready(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.get("/livez") == OK
        assert await http.get("/readyz") == OK

    serving(body)


@pytest.mark.parametrize("state", ["not_ready", "leaving"])
def test_one_that_starts_stops_or_drains_lives_and_is_not_ready(serving: Serving, state: str) -> None:
    async def body(http: Http) -> None:
        setattr(http.broker, state, "a reason")
        assert await http.get("/livez") == OK
        assert await http.get("/readyz") == (503, "not ready: a reason\n")

    serving(body)


def test_one_that_cannot_store_lives_and_is_not_ready_and_says_why(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.cannot_store = "the disk is full"
        assert await http.get("/livez") == OK
        said = "not ready: the broker cannot store messages: the disk is full\n"
        assert await http.get("/readyz") == (503, said)
        assert await http.get("/admin/v2/brokers/ready") == (200, "ok"), "it has started, as Pulsar means it"
        http.broker.cannot_store = None
        assert await http.get("/readyz") == OK

    serving(body)


def test_health_check_reports_its_finding(serving: Serving) -> None:
    async def body(http: Http) -> None:
        for path in ("/health", "/admin/v2/brokers/health"):
            assert await http.get(path) == (200, "ok")
        http.broker.ill = LogFull("the disk is full")
        assert await http.reason(500, "GET", "/brokers/health") == "Health check failed: the disk is full"
        assert await http.get("/readyz") == OK, "asks for no check"

    serving(body)


def test_in_a_cluster_it_is_ready_once_it_is_registered(serving: Serving) -> None:
    async def body(http: Http) -> None:
        presence = SimpleNamespace(version=ABSENT)
        http.broker.cluster = SimpleNamespace(presence=presence)
        assert await http.get("/livez") == OK
        assert await http.get("/readyz") == (503, "not ready: the broker is not registered in metadata\n")
        presence.version = ABSENT + 1
        assert await http.get("/readyz") == OK

    serving(body)


def test_health_and_metrics_are_answered_however_many_requests_are_in_process(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUESTS_MAX", 0)

    async def body(http: Http) -> None:
        assert (await http.get("/admin/v2/clusters"))[0] == 503
        assert await http.get("/livez") == OK
        assert await http.get("/readyz") == OK
        assert (await http.get("/metrics"))[0] == 200

    serving(body)
