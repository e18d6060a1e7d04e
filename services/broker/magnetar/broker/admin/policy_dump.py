"""All policies of a namespace as one object, and back: what GET and PUT of a namespace speak."""

from __future__ import annotations

from typing import Any

from magnetar.broker.admin.policy_fields import FIELDS
from magnetar.broker.admin.policy_json import BadPolicy, json_object
from magnetar.broker.admin.policy_kinds import (
    QUOTA_FIELDS,
    check_quota_within_retention,
    put_quota,
    quota_map,
)
from magnetar.common.metadata.values import Namespace, Policies
from magnetar.common.naming.bundle_range import split_ring


def bundles_json(bundle_count: int) -> dict[str, Any]:
    """The hash ring of a namespace."""
    edges = [0, *(each.upper for each in split_ring(bundle_count))]
    return {"boundaries": [f"0x{edge:08x}" for edge in edges], "numBundles": bundle_count}


def namespace_json(namespace: Namespace, cluster: str, clusters: list[str]) -> dict[str, Any]:
    """Everything that is said of a namespace; what is never said of one yet has the value that means so."""
    policies = namespace.policies
    shown: dict[str, Any] = {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": clusters,
        "allowed_clusters": [],
        "bundles": bundles_json(namespace.bundle_count),
        "backlog_quota_map": quota_map(policies),
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
        "properties": dict(namespace.properties),
        "migrated": False,
    }
    for field in FIELDS:
        if field.dump and policies.HasField(field.proto):  # type: ignore[arg-type]
            value = field.kind.get(policies, field.proto)
            shown[field.dump] = {cluster: value} if field.by_cluster else value
    if policies.HasField("dispatch_rate"):
        shown["clusterDispatchRate"] = shown["topicDispatchRate"]
    return shown


def policies_of(given: dict[str, Any], cluster: str) -> Policies:
    """The policies in such an object; what nobody knows is ignored. Raises BadPolicy."""
    policies = Policies()
    for field in FIELDS:
        value = given.get(field.dump) if field.dump else None
        if value is not None and field.by_cluster:
            value = json_object(field.dump, value).get(cluster)
        # Other clients send everything, with what is not set at its default.
        if value is not None and not (field.unset is not None and value == field.unset):
            field.kind.put(policies, field.proto, value, field.dump)
    for quota_type, value in json_object("backlog_quota_map", given.get("backlog_quota_map") or {}).items():
        if quota_type not in QUOTA_FIELDS:
            raise BadPolicy(f"{quota_type!r} is not one of {', '.join(QUOTA_FIELDS)}")
        put_quota(policies, quota_type, value)
    check_quota_within_retention(policies)
    return policies
