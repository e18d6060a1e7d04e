"""Where namespaces are and may be, over HTTP, as Pulsar's recorded answers have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

NS = "/namespaces/geo/ns"
C2 = {"serviceUrl": "http://c2:8080"}


async def prepare(http: Http) -> None:
    """A namespace whose tenant may use standalone, c2 and c3, but not c4; c2 and c3 are peers."""
    for cluster in ("c2", "c3", "c4"):
        assert await http.send("PUT", f"/clusters/{cluster}", C2) == (200, "")
    assert await http.send("POST", "/clusters/c2/peers", ["c3"]) == (204, "")
    info = {"allowedClusters": ["standalone", "c2", "c3"]}
    assert await http.send("PUT", "/tenants/geo", info) == (204, "")
    assert await http.send("PUT", NS, {}) == (204, "")


def test_a_namespace_is_in_this_cluster(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await prepare(http)
        assert await http.ask(f"{NS}/replication") == ["standalone"]
        assert await http.send("POST", f"{NS}/replication", ["standalone"]) == (200, "")
        assert await http.ask(f"{NS}/replication") == ["standalone"]
        assert (await http.ask(NS))["replication_clusters"] == ["standalone"]

    serving(body)


@pytest.mark.parametrize(
    ("clusters", "status", "reason"),
    [
        (["nope"], 403, "Invalid cluster id: nope"),
        (["c4"], 403, "Cluster [c4] is not in the list of allowed clusters list for tenant [geo]"),
        (["standalone", "c2", "c3"], 409, "c2 and c3 are peer clusters"),
        (["global"], 412, "global"),
        (["standalone", "c2"], 405, "replication between clusters is not supported yet"),
        (["c2"], 405, "replication between clusters is not supported yet"),
        ([], 412, "ClusterIds should not be null"),
        (b"", 412, "ClusterIds should not be null"),
        ("standalone", 400, "list of strings"),
    ],
)
def test_a_namespace_is_nowhere_else(serving: Serving, clusters: object, status: int, reason: str) -> None:
    async def body(http: Http) -> None:
        await prepare(http)
        assert reason in await http.reason(status, "POST", f"{NS}/replication", clusters)
        assert await http.ask(f"{NS}/replication") == ["standalone"]

    serving(body)


@pytest.mark.parametrize(
    ("policies", "status"),
    [
        ({"replication_clusters": ["c4"]}, 403),
        ({"replication_clusters": ["standalone", "c2"]}, 405),
        ({"allowed_clusters": ["c2"]}, 400),
        ({"allowed_clusters": ["standalone", "nope"]}, 403),
    ],
)
def test_nor_is_it_made_elsewhere(serving: Serving, policies: object, status: int) -> None:
    async def body(http: Http) -> None:
        await prepare(http)
        await http.reason(status, "PUT", "/namespaces/geo/other", policies)
        assert await http.ask("/namespaces/geo") == ["geo/ns"]

    serving(body)


def test_the_clusters_that_a_namespace_may_be_in(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await prepare(http)
        path = f"{NS}/allowedClusters"
        assert await http.ask(path) == []
        assert await http.send("POST", path, ["standalone", "c2"]) == (200, "")
        assert await http.ask(path) == ["standalone", "c2"]
        assert (await http.ask(NS))["allowed_clusters"] == ["standalone", "c2"]
        assert "should include all" in await http.reason(400, "POST", path, ["c2"])
        assert await http.reason(403, "POST", path, ["nope"]) == "Invalid cluster id: nope"
        assert "peer clusters" in await http.reason(409, "POST", path, ["standalone", "c2", "c3"])
        assert "c3" in await http.reason(403, "POST", f"{NS}/replication", ["c3"])
        assert await http.send("POST", path, []) == (200, "")
        assert await http.ask(path) == []
        made = {"allowed_clusters": ["standalone", "c3"]}
        assert await http.send("PUT", "/namespaces/geo/made", made) == (204, "")
        assert await http.ask("/namespaces/geo/made/allowedClusters") == ["standalone", "c3"]

    serving(body)


def test_anti_affinity_groups_are_set_in_either_way_that_clients_have(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = "/namespaces/acme/demo/antiAffinity"
        listed = "/namespaces/standalone/antiAffinity"
        assert await http.send("GET", path) == (200, "")
        for given in (b"aag1", "aag1"):
            assert await http.send("POST", path, given) == (204, "")
            assert await http.send("GET", path) == (200, "aag1")
        assert await http.ask(f"{listed}/aag1?tenant=acme") == ["acme/demo"]
        assert await http.ask(f"{listed}/aag2?tenant=acme") == []
        assert await http.ask(f"{listed}/aag1?tenant=nobody") == []
        v1 = "/admin/namespaces/standalone/antiAffinity/aag1"
        assert await http.json(f"{v1}?property=acme") == (200, ["acme/demo"])
        for _ in range(2):
            assert await http.send("DELETE", path) == (204, "")
            assert await http.send("GET", path) == (200, "")
        assert await http.ask(f"{listed}/aag1?tenant=acme") == []

    serving(body)


def test_invalid_anti_affinity_group_is_refused(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = "/namespaces/acme/demo/antiAffinity"
        for given in (b"", b"  ", b'""', b"x" * 2000):
            assert "antiAffinityGroup" in await http.reason(412, "POST", path, given)
        for given in (b"\xff", b'"half'):
            await http.reason(400, "POST", path, given)
        listed = "/namespaces/standalone/antiAffinity/g"
        assert await http.reason(400, "GET", listed) == "Tenant should not be null"
        reason = await http.reason(400, "GET", f"{listed}?property=acme")
        assert reason == "Tenant should not be null"
        assert "c9" in await http.reason(412, "GET", "/namespaces/c9/antiAffinity/g?tenant=acme")
        await http.reason(412, "GET", f"{listed}?tenant=a%20b")

    serving(body)


def test_the_text_of_a_group_has_the_content_type_of_json_as_any_body(serving: Serving) -> None:
    async def body(http: Http) -> None:
        url = f"{http.base}/admin/v2/namespaces/acme/demo/antiAffinity"
        for content_type, status in (("text/plain", 415), ("application/json", 204)):
            headers = {"Content-Type": content_type}
            async with http.client.post(url, data=b"aag1", headers=headers) as response:
                assert (content_type, response.status) == (content_type, status)

    serving(body)


def test_groups_of_bookies_are_kept_and_shown(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = "/namespaces/acme/demo/persistence/bookieAffinity"
        both = {"bookkeeperAffinityGroupPrimary": "g1", "bookkeeperAffinityGroupSecondary": "g2"}
        assert await http.send("GET", path) == (200, "")
        assert await http.send("POST", path, both) == (204, "")
        assert await http.ask(path) == both
        one = {"bookkeeperAffinityGroupPrimary": "g1"}
        assert await http.send("POST", path, one) == (204, "")
        assert await http.ask(path) == one
        assert "can't be empty" in await http.reason(412, "POST", path, {})
        reason = await http.reason(400, "POST", path, {"bookkeeperAffinityGroupPrimary": []})
        assert reason == "bookkeeperAffinityGroupPrimary must be a string, not []"
        assert "object" in await http.reason(400, "POST", path, ["g1"])
        for _ in range(2):
            assert await http.send("DELETE", path) == (204, "")
            assert await http.send("GET", path) == (200, "")

    serving(body)


def test_no_client_is_moved_to_another_cluster(serving: Serving) -> None:
    async def body(http: Http) -> None:
        path = "/namespaces/acme/demo/migration"
        assert await http.send("POST", path, False) == (204, "")
        assert "migration of clients" in await http.reason(405, "POST", path, True)
        assert "empty" in await http.reason(400, "POST", path)
        assert "true or false" in await http.reason(400, "POST", path, "yes")

    serving(body)


def test_a_namespace_that_is_not_there_has_no_place(serving: Serving) -> None:
    async def body(http: Http) -> None:
        for rest in ("replication", "allowedClusters", "antiAffinity", "persistence/bookieAffinity"):
            path = f"/namespaces/acme/nope/{rest}"
            assert await http.reason(404, "GET", path) == "Namespace does not exist"
            assert await http.reason(404, "POST", path, ["standalone"]) == "Namespace does not exist"
        for rest in ("antiAffinity", "persistence/bookieAffinity"):
            await http.reason(404, "DELETE", f"/namespaces/acme/nope/{rest}")
        await http.reason(404, "POST", "/namespaces/acme/nope/migration", True)

    serving(body)
