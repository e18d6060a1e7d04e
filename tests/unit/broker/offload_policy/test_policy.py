"""Offloading as it holds for a topic: each number from the nearest level, a place as a whole from one."""

from __future__ import annotations

import pytest
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.offload_policy.policy import EXACT, NEVER, resolve_offload, rules_of
from magnetar.common.metadata.values import Policies
from magnetar.ledger.managed_ledger.offload_progress import OffloadRules

NOTHING = Policies()


def offload(**members: object) -> Policies:
    return Policies(offload=Policies.Offload(**members))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("member", "configured"),
    [("threshold_bytes", 7), ("threshold_s", 8), ("deletion_lag_ms", 9)],
)
def test_a_number_of_the_topic_comes_before_that_of_its_namespace_and_of_the_broker(
    member: str, configured: int
) -> None:
    config = OffloadConfig(threshold_bytes=7, threshold_s=8, deletion_lag_ms=9)

    def value(namespace: Policies, topic: Policies) -> int:
        return int(getattr(resolve_offload(config, "east", namespace, topic), member))

    assert value(NOTHING, NOTHING) == configured
    assert value(offload(**{member: 1}), NOTHING) == 1
    assert value(offload(**{member: 1}), offload(**{member: 0})) == 0
    assert value(offload(**{member: -1}), offload(driver="filesystem")) == -1


def test_a_place_comes_whole_from_the_nearest_level_that_names_one() -> None:
    config = OffloadConfig(location="/cold")
    in_bucket = offload(driver="aws-s3", s3_bucket="cold")

    def location(namespace: Policies, topic: Policies) -> str | None:
        return resolve_offload(config, "east", namespace, topic).location

    assert location(NOTHING, NOTHING) == "file:///cold"
    assert location(in_bucket, NOTHING) == "s3://cold/east"
    assert location(in_bucket, offload(threshold_bytes=0)) == "s3://cold/east"
    own = offload(driver="filesystem", file_system_uri="file:///own", s3_bucket="ignored")
    assert location(in_bucket, own) == "file:///own"


def test_a_place_that_cannot_be_is_not_replaced_by_a_farther_one() -> None:
    config = OffloadConfig(location="/cold")
    elsewhere = offload(driver="aws-s3", s3_bucket="cold", s3_service_endpoint="http://nowhere.invalid")
    policy = resolve_offload(config, "east", elsewhere, NOTHING)
    assert policy.location is None
    assert "nowhere.invalid" in str(policy.problem)


def test_which_copy_is_read_and_whether_bytes_are_kept_verbatim() -> None:
    policy = resolve_offload(OffloadConfig(), "east", NOTHING, NOTHING)
    assert (policy.objects_first, policy.exact, policy.automatic) == (False, False, False)
    namespace = offload(read_priority="tiered-storage-first", extra_configurations={EXACT: "true"})
    policy = resolve_offload(OffloadConfig(), "east", namespace, NOTHING)
    assert (policy.objects_first, policy.exact) == (True, True)
    topic = offload(read_priority="bookkeeper-first", extra_configurations={EXACT: "false"}, threshold_s=0)
    policy = resolve_offload(OffloadConfig(), "east", namespace, topic)
    assert (policy.objects_first, policy.exact, policy.automatic) == (False, False, True)


def test_managed_ledgers_are_told_what_they_need_of_it() -> None:
    policy = resolve_offload(OffloadConfig(deletion_lag_ms=5), "east", NOTHING, NOTHING)
    assert rules_of(policy) == OffloadRules(deletion_lag_ms=5, objects_first=False)
    assert rules_of(policy) is rules_of(policy), "thousands of topics share one"
    assert rules_of(NEVER) == OffloadRules()
