"""Tenants and namespaces over HTTP: the answers of Pulsar 4.0 were recorded, these are the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.rest import Rest


def test_the_life_of_a_tenant(rest: Rest) -> None:
    cluster = rest.endpoint.cluster
    info = {"adminRoles": ["admin"], "allowedClusters": [cluster]}
    assert rest.refused(404, "GET", "/tenants/life") == "Tenant does not exist"
    assert rest.refused(404, "POST", "/tenants/life", info) == "Tenant life not found"
    rest.do("PUT", "/tenants/life", {**info, "zzz": 1})
    assert rest.refused(409, "PUT", "/tenants/life", info) == "Tenant already exist"
    assert rest.get("/tenants/life") == info
    assert "life" in rest.get("/tenants")
    rest.do("POST", "/tenants/life", {**info, "adminRoles": ["admin", "r2"]})
    assert rest.get("/tenants/life")["adminRoles"] == ["admin", "r2"]
    rest.do("PUT", "/namespaces/life/ns")
    assert rest.refused(409, "DELETE", "/tenants/life") == "The tenant still has active namespaces"
    rest.do("DELETE", "/namespaces/life/ns")
    rest.do("DELETE", "/tenants/life")
    assert rest.refused(404, "DELETE", "/tenants/life") == "Tenant doesn't exist"


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/tenants/a%20b", {"allowedClusters": ["standalone"]}, 412, "Tenant name is not valid"),
        ("/tenants/x", {"adminRoles": []}, 412, "Clusters cannot be null"),
        ("/tenants/x", {"allowedClusters": ["nope"]}, 412, "Clusters do not exist"),
        ("/tenants/x", b"{bad", 400, "not JSON"),
        ("/tenants/x", b"", 400, "The request entity cannot be empty."),
        ("/tenants/x", [1], 400, "object"),
        ("/tenants/x", {"allowedClusters": "standalone"}, 400, "allowedClusters"),
        ("/namespaces/nope/x", {}, 404, "Tenant does not exist"),
        ("/namespaces/public/a%20b", {}, 412, "Namespace name is not valid"),
        ("/namespaces/public/default", {}, 409, "Namespace already exists"),
        (
            "/namespaces/public/x",
            {"replication_clusters": ["nope"]},
            403,
            "Cluster [nope] is not in the list",
        ),
        ("/namespaces/public/x", {"bundles": {"numBundles": 100_000}}, 412, "bundles"),
        (
            "/namespaces/public/x",
            {"bundles": {"boundaries": ["0x00000000", "0x10000000"]}},
            412,
            "0xffffffff",
        ),
        ("/namespaces/public/x", {"retention_policies": {"retentionTimeInMinutes": "long"}}, 400, "whole"),
        ("/namespaces/public/x", ["policies"], 400, "object"),
    ],
)
def test_invalid_tenant_is_refused_with_the_reason(
    rest: Rest, path: str, body: object, status: int, reason: str
) -> None:
    assert reason in rest.refused(status, "PUT", path, body)
    assert rest.call("GET", "/namespaces/public/x").status == 404


def test_a_fresh_namespace_says_what_pulsar_says_of_one(rest: Rest) -> None:
    """The keys and values of a recorded answer."""
    namespace = rest.new_namespace()
    assert rest.get(f"/namespaces/{namespace}") == {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": [rest.endpoint.cluster],
        "allowed_clusters": [],
        "bundles": {
            "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"],
            "numBundles": 4,
        },
        "backlog_quota_map": {},
        "clusterDispatchRate": {},
        "topicDispatchRate": {},
        "subscriptionDispatchRate": {},
        "replicatorDispatchRate": {},
        "clusterSubscribeRate": {},
        "publishMaxMessageRate": {},
        "latency_stats_sample_rate": {},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "is_allow_auto_update_schema": True,
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": {},
        "migrated": False,
    }


def test_a_namespace_is_made_with_the_policies_that_another_one_shows(rest: Rest) -> None:
    first = rest.new_namespace(
        retention_policies={"retentionTimeInMinutes": 10, "retentionSizeInMB": 100},
        bundles={"numBundles": 2},
        max_producers_per_topic=3,
        properties={"a": "b"},
    )
    rest.do(
        "POST",
        f"/namespaces/{first}/backlogQuota",
        {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"},
    )
    rest.do("POST", f"/namespaces/{first}/dispatchRate", {"dispatchThrottlingRateInMsg": 7})
    shown = rest.get(f"/namespaces/{first}")
    assert shown["bundles"] == {
        "boundaries": ["0x00000000", "0x80000000", "0xffffffff"],
        "numBundles": 2,
    }
    second = rest.new_namespace(**shown)
    assert rest.get(f"/namespaces/{second}") == shown


def test_a_namespace_with_topics_stays(rest: Rest) -> None:
    namespace = rest.new_namespace()
    rest.do("PUT", f"/persistent/{namespace}/parts/partitions", 2)
    assert rest.refused(409, "DELETE", f"/namespaces/{namespace}") == "Cannot delete non empty namespace"
    assert "forced deletion" in rest.refused(405, "DELETE", f"/namespaces/{namespace}?force=true")
    rest.do("DELETE", f"/persistent/{namespace}/parts/partitions")
    rest.do("DELETE", f"/namespaces/{namespace}")
    gone = f"Namespace {namespace} does not exist."
    assert rest.refused(404, "DELETE", f"/namespaces/{namespace}") == gone
    assert rest.refused(404, "GET", f"/namespaces/{namespace}") == "Namespace does not exist"
    rest.refused(404, "PUT", f"/persistent/{namespace}/t")
    rest.do("PUT", f"/namespaces/{namespace}")


def test_the_clusters_own_namespace_stays(rest: Rest) -> None:
    assert "cluster's own" in rest.refused(405, "DELETE", "/namespaces/pulsar/system")


def test_properties_of_a_namespace(rest: Rest) -> None:
    path = f"/namespaces/{rest.new_namespace()}"
    assert rest.get(f"{path}/properties") == {}
    rest.do("PUT", f"{path}/property/k1/v1")
    rest.do("PUT", f"{path}/properties", {"k2": "v2"})
    assert rest.get(f"{path}/properties") == {"k1": "v1", "k2": "v2"}
    assert rest.call("GET", f"{path}/property/k1").body == b"v1"
    removed = rest.call("DELETE", f"{path}/property/k1")
    assert (removed.status, removed.body) == (200, b"v1")
    assert rest.call("GET", f"{path}/property/k1").body == b""
    rest.do("DELETE", f"{path}/properties")
    assert rest.get(f"{path}/properties") == {}


def test_changes_at_the_same_time_all_stay(rest: Rest) -> None:
    path = f"/namespaces/{rest.new_namespace()}"

    def change(number: int) -> int:
        return rest.call("PUT", f"{path}/property/k{number}/v").status

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(change, range(24)))
    assert set(statuses) <= {204, 409}
    assert len(rest.get(f"{path}/properties")) == statuses.count(204) >= 8


@pytest.mark.parametrize(
    "path",
    [
        "/namespaces/public/..",
        "/namespaces/public/a%2Fb",
        "/namespaces/public%00/x",
        "/namespaces/public/%FF",
        "/persistent/public/default/a%2Fb",
        "/persistent/public/default/%20",
        "/persistent/public/default/__change_events",
        "/persistent/public/default/t-partition-0",
    ],
)
def test_names_that_cannot_be_are_refused_and_make_nothing(rest: Rest, path: str) -> None:
    before = rest.get("/persistent/public/default?includeSystemTopic=true")
    assert rest.call("PUT", path).status in (404, 405, 409, 412)
    assert rest.get("/persistent/public/default?includeSystemTopic=true") == before


def test_a_body_that_is_too_long_is_refused(rest: Rest) -> None:
    rest.refused(413, "PUT", "/tenants/long", {"adminRoles": ["r" * 2_000_000]})
