"""Brokers over HTTP, as Pulsar's recorded answers have them."""

from __future__ import annotations

from importlib.metadata import version
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest
from magnetar.broker.ownership.own_bundles import OwnBundle, OwnBundles
from magnetar.common.metadata.values import BrokerRegistration, Leader
from magnetar.common.naming.bundle_range import split_ring
from magnetar.common.naming.namespace_name import NamespaceName

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

OWN = "localhost:8080"
OTHER = "b2:8080"


def clustered(http: Http) -> Any:
    """Has two brokers in a cluster, one of which is the asked one."""
    brokers = {each: BrokerRegistration(broker_id=each) for each in (OTHER, OWN)}
    for each, registration in brokers.items():
        registration.addresses.http_url = f"http://{each}"
    directory = SimpleNamespace(leader=None, get=brokers.get, all=lambda: list(brokers.values()))
    http.broker.cluster = SimpleNamespace(
        directory=directory,
        ownership=SimpleNamespace(table=OwnBundles()),
        presence=SimpleNamespace(broker_id=OWN),
    )
    return http.broker.cluster


def test_a_broker_that_serves_is_the_active_one_and_the_leader(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.ask("/brokers") == [OWN]
        assert await http.ask("/brokers/standalone") == [OWN]
        leader = {"serviceUrl": f"http://{OWN}", "brokerId": OWN}
        assert await http.ask("/brokers/leaderBroker") == leader
        assert await http.send("GET", "/brokers/version") == (200, version("magnetar-broker"))
        assert await http.send("GET", "/brokers/ready") == (200, "ok")
        assert await http.get("/status.html") == (200, "OK")

    serving(body)


def test_broker_that_refuses_clients_says_why(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.not_ready = "the broker is starting"
        assert await http.ask("/brokers") == []
        assert "Leader broker not found" in await http.reason(404, "GET", "/brokers/leaderBroker")
        for path in ("/admin/v2/brokers/ready", "/admin/v2/brokers/health", "/status.html"):
            assert await http.get(path) == (503, "not ready: the broker is starting")

    serving(body)


def test_draining_broker_gets_no_new_clients(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.leaving = "it is about to stop"
        for path in ("/admin/v2/brokers/ready", "/admin/v2/brokers/health", "/health", "/status.html"):
            assert await http.get(path) == (503, "not ready: it is about to stop")
        assert await http.ask("/brokers") == [OWN], "who is here is served"

    serving(body)


def test_the_brokers_of_a_cluster_are_those_that_are_registered(serving: Serving) -> None:
    async def body(http: Http) -> None:
        cluster = clustered(http)
        assert await http.ask("/brokers") == [OTHER, OWN]
        assert "Leader broker not found" in await http.reason(404, "GET", "/brokers/leaderBroker")
        cluster.directory.leader = Leader(id=OTHER)
        leader = {"serviceUrl": f"http://{OTHER}", "brokerId": OTHER}
        assert await http.ask("/brokers/leaderBroker") == leader

    serving(body)


def test_the_bundles_that_a_broker_of_a_cluster_owns(serving: Serving) -> None:
    async def body(http: Http) -> None:
        cluster = clustered(http)
        bundles = split_ring(2)
        for bundle in bundles:
            cluster.ownership.table.add(OwnBundle(NamespaceName("acme", "demo"), bundle, 1, 0))
        status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        path = f"/brokers/standalone/{OWN}/ownedNamespaces"
        assert await http.ask(path) == {f"acme/demo/{bundle}": status for bundle in bundles}

    serving(body)


def test_request_for_another_broker_or_cluster_is_forwarded(serving: Serving) -> None:
    async def body(http: Http) -> None:
        async def sent_to(path: str) -> str:
            url = f"{http.base}/admin/v2{path}"
            async with http.client.get(url, allow_redirects=False) as response:
                assert response.status == 307, path
                return response.headers["Location"]

        urls = {"serviceUrl": "http://c2:1,c2b:2"}
        assert await http.send("PUT", "/clusters/c2", urls) == (200, "")
        assert await sent_to("/brokers/c2?x=1") == "http://c2:1/admin/v2/brokers/c2?x=1"
        reason = await http.reason(404, "GET", "/brokers/c9")
        assert reason == "Cluster does not exist: cluster=c9"
        path = f"/brokers/standalone/{OTHER}/ownedNamespaces"
        assert "not active" in await http.reason(404, "GET", path)
        clustered(http)
        assert await sent_to(path) == f"http://{OTHER}/admin/v2{path}?authoritative=true"
        reason = await http.reason(503, "GET", f"{path}?authoritative=true")
        assert "try again" in reason, "two brokers that each take the other for it end there"
        health = f"/brokers/health?topicVersion=V2&brokerId={OTHER}"
        assert await sent_to(health) == f"http://{OTHER}/admin/v2{health}&authoritative=true"
        assert await http.send("GET", f"/brokers/health?brokerId={OWN}") == (200, "ok")
        assert "not active" in await http.reason(404, "GET", "/brokers/health?brokerId=b3:8080")
        await http.reason(404, "GET", f"/brokers/c9/{OTHER}/ownedNamespaces")

    serving(body)


def test_orphans_are_asked_of_the_broker_that_looks_for_them(serving: Serving) -> None:
    async def body(http: Http) -> None:
        cluster, path = clustered(http), "/admin/magnetar/v1/orphans?look=true"
        http.broker.orphans = SimpleNamespace(
            looked_ms=1, suspects=[], truncated=False, halted=None, look=AsyncMock()
        )

        async def asked(method: str, query: str = "") -> tuple[int, str]:
            url = f"{http.base}{path}{query}"
            async with http.client.request(method, url, allow_redirects=False) as response:
                return response.status, response.headers.get("Location", "")

        cluster.directory.leader = Leader(id=OTHER)
        for method in ("GET", "POST"):
            assert await asked(method) == (307, f"http://{OTHER}{path}&authoritative=true")
        assert (await asked("GET", "&authoritative=true"))[0] == 503
        for leader in (Leader(id=OWN), Leader(id="gone:1"), None):
            cluster.directory.leader = leader
            assert await asked("GET") == (200, "")

    serving(body)


def test_the_bundles_that_a_broker_has_topics_of(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = f"/brokers/standalone/{OWN}/ownedNamespaces"
        assert await http.ask(path) == {}
        for number in range(20):
            http.broker.load(f"persistent://acme/demo/t{number}")
        http.broker.load("persistent://gone/ns/t")
        status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        edges = ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]
        bundles = pairwise(edges)
        assert await http.ask(path) == {f"acme/demo/{low}_{high}": status for low, high in bundles}

    serving(body)


def test_health_is_asked_of_the_broker_itself(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.send("GET", "/brokers/health?topicVersion=V2") == (200, "ok")
        assert await http.send("GET", f"/brokers/health?brokerId={OWN}") == (200, "ok")
        assert "topicVersion" in await http.reason(404, "GET", "/brokers/health?topicVersion=x")
        assert "not active" in await http.reason(404, "GET", f"/brokers/health?brokerId={OTHER}")

    serving(body)


def test_internal_configuration_names_metadata_and_ledger_storage(serving: Serving) -> None:
    async def body(http: Http) -> None:
        url = "sqlite:data/metadata.sqlite"
        assert await http.ask("/brokers/internal-configuration") == {
            "zookeeperServers": url,
            "configurationStoreServers": url,
            "metadataStoreUrl": url,
            "configurationMetadataStoreUrl": url,
            "ledgersRootPath": "/magnetar/standalone/v1/ledgers",
        }

    serving(body)


def test_backlog_quota_check_runs_on_request(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.send("GET", "/brokers/backlog-quota-check") == (204, "")
        assert http.broker.quota_checks == 1

    serving(body)


def test_a_broker_stops_when_it_is_asked_to(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = "/brokers/shutdown"
        assert "0 (no limit)" in await http.reason(400, "POST", f"{path}?maxConcurrentUnloadPerSec=-1")
        assert "whole number" in await http.reason(400, "POST", f"{path}?maxConcurrentUnloadPerSec=x")
        assert http.broker.stops == 0
        assert await http.send("POST", f"{path}?maxConcurrentUnloadPerSec=3") == (204, "")
        assert http.broker.stops == 1
        http.broker.not_ready = "standing by"
        assert await http.send("POST", path) == (204, "")
        assert http.broker.stops == 2
        http.broker.stops = None
        assert "SIGTERM" in await http.reason(405, "POST", path)

    serving(body)


@pytest.mark.parametrize("host", ["h", "h:1"])
def test_a_broker_without_an_address_of_its_own_is_called_as_it_was_asked(
    serving: Serving, host: str
) -> None:
    async def body(http: Http) -> None:
        http.broker.urls.http_url = ""
        url = f"{http.base}/admin/v2/brokers/leaderBroker"
        headers: dict[str, str] = {"Host": host}
        async with http.client.get(url, headers=headers) as response:
            assert await response.json() == {"serviceUrl": f"http://{host}", "brokerId": host}

    serving(body)
