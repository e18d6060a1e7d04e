"""The two policies whose JSON differs from their metadata: backlog quotas and automatic topic creation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from magnetar.broker.admin.edge.json_types import INT32_MAX
from magnetar.broker.admin.policies.policy_json import (
    BadPolicy,
    boolean,
    json_object,
    one_of,
    whole_number,
)
from magnetar.common.metadata.values import Policies

QUOTA_FIELDS: Final = {"destination_storage": "size_quota", "message_age": "time_quota"}
"""Metadata field of each backlog quota type."""

_QUOTA_POLICIES: Final = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
_TOPIC_TYPES: Final = ("partitioned", "non-partitioned")


def put_quota(policies: Policies, quota_type: str, value: Any) -> None:
    """Sets the backlog quota of one type. Raises BadPolicy."""
    given = json_object("the backlog quota", value)
    size = given.get("limitSize")
    if size is None:
        size = given.get("limit")  # name of the limit before there were two
    limits = {
        "limit_bytes": -1 if size is None else whole_number("limitSize", size),
        "limit_s": -1
        if given.get("limitTime") is None
        else whole_number("limitTime", given["limitTime"], INT32_MAX),
    }
    if quota_type == "message_age" and limits["limit_s"] < -1:
        raise BadPolicy("limitTime must be -1 (none) or more")
    if quota_type == "destination_storage" and limits["limit_bytes"] < -1:
        raise BadPolicy("limitSize must be -1 (none) or more")
    policy = one_of(*_QUOTA_POLICIES)("policy", given.get("policy"))
    quota = getattr(policies, QUOTA_FIELDS[quota_type])
    quota.Clear()
    quota.SetInParent()
    for name, limit in limits.items():
        setattr(quota, name, limit)
    quota.policy = Policies.QuotaPolicy.Value(policy.upper())


def quota_map(policies: Policies) -> dict[str, Any]:
    """Returns the backlog quotas that are set, by type."""
    return {
        quota_type: quota_json(quota.limit_bytes, quota.limit_s, quota.policy)
        for quota_type, field in QUOTA_FIELDS.items()
        if policies.HasField(field)  # type: ignore[arg-type]
        for quota in [getattr(policies, field)]
    }


def quota_json(limit_bytes: int, limit_s: int, policy: Policies.QuotaPolicy.ValueType) -> dict[str, Any]:
    """Returns one backlog quota."""
    return {
        "limit": limit_bytes,
        "limitSize": limit_bytes,
        "limitTime": limit_s,
        "policy": Policies.QuotaPolicy.Name(policy).lower(),
    }


def check_quota_within_retention(policies: Policies) -> None:
    """Checks that retention covers the backlog quota. Raises BadPolicy."""
    retention, quota = policies.retention, policies.size_quota
    if not (policies.HasField("retention") and policies.HasField("size_quota")):
        return
    if retention.size_mb > 0 and quota.limit_bytes >= retention.size_mb * 1024 * 1024:
        raise BadPolicy(
            "Backlog Quota exceeds configured retention quota for namespace. Please increase retention "
            "quota and retry",
            412,
        )


def check_quota_of_topic(before: Policies, policies: Policies, namespace: Policies) -> None:
    """Checks the same for a topic that sets one of the two; the other one is its namespace's."""
    both = ("retention", "size_quota")
    if not any(
        policies.HasField(name) and getattr(policies, name) != getattr(before, name)  # type: ignore[arg-type]
        for name in both
    ):
        return
    together = Policies()
    for name in both:
        level = policies if policies.HasField(name) else namespace  # type: ignore[arg-type]
        if level.HasField(name):  # type: ignore[arg-type]
            getattr(together, name).CopyFrom(getattr(level, name))
    check_quota_within_retention(together)


@dataclass(frozen=True, slots=True)
class AutoTopicCreation:
    """Automatic topic creation: whether topics are created on first use, and of which type."""

    type_name: str = "AutoTopicCreationOverride"

    def put(self, policies: Policies, field: str, value: Any, rest_name: str) -> None:
        given = json_object(rest_name, value)
        allow = given.get("allowAutoTopicCreation")
        allowed = allow is not None and boolean("allowAutoTopicCreation", allow)
        topic_type = given.get("topicType")
        if isinstance(topic_type, str):
            topic_type = topic_type.lower()  # in any case, as in Pulsar
        partitions = given.get("defaultNumPartitions")
        if allowed and topic_type not in _TOPIC_TYPES:
            raise BadPolicy(_invalid(f"Unknown topic type [{topic_type}]"), 412)
        if topic_type == "partitioned":
            if partitions is None:
                raise BadPolicy(
                    _invalid("[defaultNumPartitions] cannot be null when the type is partitioned."), 412
                )
            if whole_number("defaultNumPartitions", partitions, INT32_MAX) < 1:
                raise BadPolicy(
                    _invalid("[defaultNumPartitions] cannot be less than 1 for partition type."), 412
                )
        elif partitions is not None:
            raise BadPolicy(
                _invalid("[defaultNumPartitions] cannot be set when the type is not partitioned."), 412
            )
        message = getattr(policies, field)
        message.Clear()
        message.SetInParent()
        message.allowed = allowed
        message.partitioned = topic_type == "partitioned"
        message.partitions = partitions or 0

    def get(self, policies: Policies, field: str) -> Any:
        message = getattr(policies, field)
        shown = {"allowAutoTopicCreation": message.allowed}
        if message.partitioned:
            return {**shown, "topicType": "partitioned", "defaultNumPartitions": message.partitions}
        return {**shown, "topicType": "non-partitioned"} if message.allowed else shown


def _invalid(detail: str) -> str:
    return f"Invalid configuration for autoTopicCreationOverride. the detail is {detail}"
