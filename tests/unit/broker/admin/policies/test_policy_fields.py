"""The table of policies is whole, and its converters give back what they were given."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.broker.admin.policies.namespace_json import namespace_json, policies_of
from magnetar.broker.admin.policies.offload_policies import OffloadPolicies
from magnetar.broker.admin.policies.policy_fields import FIELDS, PolicyField
from magnetar.broker.admin.policies.policy_json import (
    PERSISTENCE,
    RATE,
    BadPolicy,
    Flag,
    Number,
    OneOf,
    Record,
    TypeNames,
    WrappedFlag,
)
from magnetar.broker.admin.policies.policy_kinds import (
    AutoTopicCreation,
    check_quota_within_retention,
    put_quota,
)
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.effective_policies import resolve
from magnetar.common.metadata.values import Namespace, Policies

ELSEWHERE = {
    "size_quota",
    "time_quota",
    "dispatch_rate_of_subscription",
    "permissions",
    "subscription_roles",
    "replication_clusters",
}
"""They have routes of their own."""


OFFLOAD = {
    "offloadersDirectory": "./offloaders",
    "managedLedgerOffloadDriver": "filesystem",
    "managedLedgerOffloadMaxThreads": 2,
    "managedLedgerOffloadPrefetchRounds": 1,
    "managedLedgerOffloadThresholdInBytes": 1000,
    "managedLedgerExtraConfigurations": {},
    "s3ManagedLedgerOffloadMaxBlockSizeInBytes": 67108864,
    "s3ManagedLedgerOffloadReadBufferSizeInBytes": 1048576,
    "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
    "gcsManagedLedgerOffloadMaxBlockSizeInBytes": 134217728,
    "gcsManagedLedgerOffloadReadBufferSizeInBytes": 1048576,
    "s3Driver": False,
    "gcsDriver": False,
    "fileSystemDriver": True,
}
"""As a recorded broker shows it."""


def example(field: PolicyField) -> Any:
    """A value that is not the default."""
    kind = field.kind
    if isinstance(kind, Number):
        return 7
    if isinstance(kind, Flag):
        return not field.api.unset
    if isinstance(kind, WrappedFlag):
        return {kind.key: True}
    if isinstance(kind, TypeNames):
        return ["Shared", "Key_Shared"]
    if isinstance(kind, AutoTopicCreation):
        return {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4}
    if isinstance(kind, OneOf):
        return kind.choices[-1]
    if isinstance(kind, OffloadPolicies):
        return OFFLOAD
    assert isinstance(kind, Record)
    return {part.key: part.show(_other(part.default)) for part in kind.parts}


def _other(default: Any) -> Any:
    if isinstance(default, bool):
        return not default
    return 1.5 if isinstance(default, float) else 1


def test_every_policy_that_is_kept_is_in_the_table() -> None:
    assert {field.api.proto for field in FIELDS} | ELSEWHERE == set(Policies.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.api.proto)
def test_a_value_comes_back_as_it_went_in(field: PolicyField) -> None:
    policies, value = Policies(), example(field)
    field.kind.put(policies, field.api.proto, value, "name")
    assert policies.HasField(field.api.proto)  # type: ignore[arg-type]
    assert field.kind.get(policies, field.api.proto) == value
    again = Policies.FromString(policies.SerializeToString())
    assert field.kind.get(again, field.api.proto) == value


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.api.proto)
@pytest.mark.parametrize("value", ["x", -(2**70), [1], {"": 1}, 1.5, [None], None])
def test_nonsense_is_refused_or_has_the_defaults_and_never_breaks(field: PolicyField, value: Any) -> None:
    policies = Policies()
    if isinstance(value, dict) and isinstance(field.kind, Record | WrappedFlag | AutoTopicCreation):
        field.kind.put(policies, field.api.proto, value, "name")
        return
    with pytest.raises(BadPolicy) as refused:
        field.kind.put(policies, field.api.proto, value, "name")
    assert refused.value.status in (400, 412)
    assert refused.value.reason


@pytest.mark.parametrize(
    "field", [field for field in FIELDS if field.applied is not None], ids=lambda field: field.api.proto
)
def test_topic_policy_alone_is_effective(field: PolicyField) -> None:
    assert field.applied is not None
    policies, value = Policies(), example(field)
    field.kind.put(policies, field.api.proto, value, "name")
    assert field.applied(resolve(BrokerConfig(), Policies(), policies)) == value


def test_members_that_are_missing_or_null_have_their_defaults_and_unknown_ones_are_ignored() -> None:
    policies = Policies()
    RATE.put(policies, "dispatch_rate", {"dispatchThrottlingRateInMsg": 3, "zzz": 1}, "dispatchRate")
    RATE.put(policies, "dispatch_rate", {"ratePeriodInSecond": None}, "dispatchRate")
    assert RATE.get(policies, "dispatch_rate") == {
        "dispatchThrottlingRateInMsg": 0,
        "dispatchThrottlingRateInByte": 0,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 0,
    }


def test_a_number_that_no_decimal_can_be_is_refused() -> None:
    value = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
    for rate in (10**400, -(10**400)):
        with pytest.raises(BadPolicy, match="managedLedgerMaxMarkDeleteRate"):
            PERSISTENCE.put(
                Policies(), "persistence", {**value, "managedLedgerMaxMarkDeleteRate": rate}, "persistence"
            )


def test_no_subscription_types_in_particular_means_all_of_them() -> None:
    policies = Policies(subscription_types=Policies.SubscriptionTypes(names=["Shared"]))
    TypeNames().put(policies, "subscription_types", [], "subscriptionTypesEnabled")
    assert not policies.HasField("subscription_types")


def test_the_old_name_of_a_quotas_limit_is_read() -> None:
    policies = Policies()
    put_quota(policies, "destination_storage", {"limit": 5, "policy": "producer_exception"})
    assert policies.size_quota.limit_bytes == 5


@pytest.mark.parametrize(
    ("size_mb", "limit_bytes", "fits"),
    [(1, 1024 * 1024 - 1, True), (1, 1024 * 1024, False), (-1, 10**12, True), (0, 10**12, True)],
)
def test_a_backlog_fits_into_the_retention_or_not(size_mb: int, limit_bytes: int, fits: bool) -> None:
    policies = Policies(
        retention=Policies.Retention(time_min=size_mb and 1, size_mb=size_mb),
        size_quota=Policies.BacklogQuota(limit_bytes=limit_bytes),
    )
    if fits:
        check_quota_within_retention(policies)
    else:
        with pytest.raises(BadPolicy) as refused:
            check_quota_within_retention(policies)
        assert refused.value.status == 412


def test_all_policies_of_a_namespace_can_be_given_as_they_are_shown() -> None:
    policies = Policies()
    for field in FIELDS:
        if field.api.namespace:
            field.kind.put(policies, field.api.proto, example(field), field.api.namespace)
    policies.permissions["role1"].names.extend(["consume", "produce"])
    policies.subscription_roles["sub1"].names.append("role1")
    put_quota(policies, "message_age", {"limitTime": 9, "policy": "consumer_backlog_eviction"})
    shown = namespace_json(Namespace(bundle_count=4, policies=policies), "here", ["here"], {})
    assert policies_of(shown, "here") == policies


@pytest.mark.parametrize(
    "given",
    [
        {"topicDispatchRate": 3},
        {"backlog_quota_map": {"other": {}}},
        {"backlog_quota_map": ["message_age"]},
        {"retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}},
        {"auth_policies": []},
        {"auth_policies": {"namespace_auth": {"r": ["fly"]}}},
        {"auth_policies": {"namespace_auth": {" ": ["produce"]}}},
        {"auth_policies": {"subscription_auth_roles": {"s": [1]}}},
        {"auth_policies": {"destination_auth": {"persistent://a/b/c": {"r": ["produce"]}}}},
        {"offload_policies": {"managedLedgerOffloadDriver": "tape"}},
        {"offload_threshold": "much"},
        {"schema_compatibility_strategy": "SIDEWAYS"},
    ],
)
def test_a_namespace_with_policies_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadPolicy):
        policies_of(given, "here")


def test_offload_policies_in_the_old_format_are_read() -> None:
    given = {"offload_threshold": 5, "offload_threshold_in_seconds": -1, "offload_deletion_lag_ms": 7}
    assert policies_of(given, "here") == Policies(
        offload=Policies.Offload(threshold_bytes=5, deletion_lag_ms=7)
    )
    newer = {"offload_policies": {**OFFLOAD, "managedLedgerOffloadThresholdInBytes": 9}}
    assert policies_of({**given, **newer}, "here").offload.threshold_bytes == 9
