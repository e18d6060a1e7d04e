"""All policies of a namespace as one JSON object, as GET and PUT of a namespace use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.broker.admin.policies.auth_policies import auth_policies_json, put_auth_policies
from magnetar.broker.admin.policies.offload_policies import limit
from magnetar.broker.admin.policies.policy_fields import FIELDS
from magnetar.broker.admin.policies.policy_json import BadPolicy, json_object
from magnetar.broker.admin.policies.policy_kinds import (
    QUOTA_FIELDS,
    check_quota_within_retention,
    put_quota,
    quota_map,
)
from magnetar.common.cluster.bundles import bundles_of
from magnetar.common.metadata.values import Namespace, Policies
from magnetar.common.naming.bundle_range import BundleRange


def bundles_json(bundles: Sequence[BundleRange]) -> dict[str, Any]:
    """Returns the bundles of a namespace."""
    edges = [0, *(each.upper for each in bundles)]
    return {"boundaries": [f"0x{edge:08x}" for edge in edges], "numBundles": len(bundles)}


def namespace_json(
    namespace: Namespace,
    cluster: str,
    clusters: list[str],
    permissions_of_topics: Mapping[str, Mapping[str, list[str]]],
) -> dict[str, Any]:
    """Returns all settings of a namespace; settings that are not supported yet have their neutral value."""
    policies = namespace.policies
    shown: dict[str, Any] = {
        "auth_policies": auth_policies_json(policies, permissions_of_topics),
        "replication_clusters": clusters,
        "allowed_clusters": list(namespace.allowed_clusters),
        "bundles": bundles_json(bundles_of(namespace)),
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
        if field.dump and policies.HasField(field.api.proto):  # type: ignore[arg-type]
            value = field.kind.get(policies, field.api.proto)
            shown[field.dump] = {cluster: value} if field.by_cluster else value
    if policies.HasField("dispatch_rate"):
        shown["clusterDispatchRate"] = shown["topicDispatchRate"]
    return shown


def policies_of(given: dict[str, Any], cluster: str) -> Policies:
    """Parses the policies in such an object; unknown members are ignored. Raises BadPolicy."""
    policies = Policies()
    for field in FIELDS:
        value = given.get(field.dump) if field.dump else None
        if value is not None and field.by_cluster:
            value = json_object(field.dump, value).get(cluster)
        # Other clients send all members, unset ones with their default.
        if value is not None and not (field.api.unset is not None and value == field.api.unset):
            field.kind.put(policies, field.api.proto, value, field.dump)
    for quota_type, value in json_object("backlog_quota_map", given.get("backlog_quota_map") or {}).items():
        if quota_type not in QUOTA_FIELDS:
            raise BadPolicy(f"{quota_type!r} is not one of {', '.join(QUOTA_FIELDS)}")
        put_quota(policies, quota_type, value)
    _put_offload_limits(policies, given)
    auth = given.get("auth_policies")
    put_auth_policies(policies, {} if auth is None else auth)
    check_quota_within_retention(policies)
    return policies


def _put_offload_limits(policies: Policies, given: dict[str, Any]) -> None:
    """Applies the older offload limits, unless offload policies set them."""
    for key, member in (
        ("offload_threshold", "threshold_bytes"),
        ("offload_threshold_in_seconds", "threshold_s"),
        ("offload_deletion_lag_ms", "deletion_lag_ms"),
    ):
        number = -1 if given.get(key) is None else limit(key, given[key])
        if number >= 0 and not policies.offload.HasField(member):  # type: ignore[arg-type]
            setattr(policies.offload, member, number)
