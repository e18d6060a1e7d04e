"""Where offloaded ledgers go: one URI, from whatever says it, without secrets, never where nobody meant."""

from __future__ import annotations

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.offload_policy.location import (
    OffloadTarget,
    configured_target,
    normalized,
    policy_target,
)
from magnetar.broker.policies.effective_policies import resolve
from magnetar.common.metadata.values import Policies
from magnetar.common.offload.offload_refusals import BadLocation

ENDPOINT = "http://127.0.0.1:9000"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("file:///cold", "file:///cold"),
        ("file:///cold/", "file:///cold"),
        (" /cold/deep/ ", "file:///cold/deep"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/prefix//", "s3://bucket/prefix"),
        ("hdfs://namenode:9000", "hdfs://namenode:9000"),
    ],
)
def test_a_location_is_kept_in_one_form(given: str, kept: str) -> None:
    assert normalized(given) == kept
    assert normalized(kept) == kept


@pytest.mark.parametrize(
    "given", ["", "cold", "./cold", "file://", "/", "s3://key:secret@bucket", "s3://b?x=1", "/a/../b", "/a b"]
)
def test_invalid_location_is_refused_without_repeating_secrets(given: str) -> None:
    with pytest.raises(BadLocation) as refused:
        normalized(given)
    assert "secret@" not in str(refused.value)


@pytest.mark.parametrize(
    ("policy", "location"),
    [
        (Policies.Offload(driver="aws-s3", s3_bucket="cold"), "s3://cold/east"),
        (Policies.Offload(driver="S3", bucket="cold", s3_bucket="other"), "s3://cold/east"),
        (Policies.Offload(driver="google-cloud-storage", gcs_bucket="cold"), "gs://cold/east"),
        (Policies.Offload(driver="azureblob", bucket="cold"), "abfs://cold/east"),
        (Policies.Offload(driver="aliyun-oss", bucket="cold"), "oss://cold/east"),
        (Policies.Offload(driver="filesystem", file_system_uri="/cold"), "file:///cold"),
    ],
)
def test_a_driver_and_its_bucket_are_a_location_of_this_cluster(
    policy: Policies.Offload, location: str
) -> None:
    assert policy_target(policy, "east", {}) == OffloadTarget(location)


@pytest.mark.parametrize("policy", [Policies.Offload(), Policies.Offload(driver="filesystem")])
def test_a_policy_that_names_no_place_leaves_it_to_the_configuration(policy: Policies.Offload) -> None:
    assert policy_target(policy, "east", {}) == OffloadTarget()


def test_an_endpoint_that_this_process_does_not_use_is_a_problem_and_no_location() -> None:
    policy = Policies.Offload(driver="aws-s3", s3_bucket="cold", s3_service_endpoint=ENDPOINT)
    other = policy_target(policy, "east", {"AWS_ENDPOINT_URL": "http://elsewhere:9000"})
    assert other.location is None
    assert ENDPOINT in str(other.problem)
    assert "not set" in str(policy_target(policy, "east", {}).problem)
    for environment in (
        {"AWS_ENDPOINT_URL": f"{ENDPOINT}/"},
        {"AWS_ENDPOINT_URL": "http://elsewhere:9000", "AWS_ENDPOINT_URL_S3": ENDPOINT},
    ):
        assert policy_target(policy, "east", environment) == OffloadTarget("s3://cold/east")


def test_the_configuration_says_it_by_a_location_or_by_a_driver() -> None:
    assert configured_target(OffloadConfig(location="/cold"), "east", {}) == OffloadTarget("file:///cold")
    by_driver = OffloadConfig(driver="aws-s3", s3_bucket="cold")
    assert configured_target(by_driver, "east", {}) == OffloadTarget("s3://cold/east")
    without_bucket = configured_target(OffloadConfig(driver="aws-s3"), "east", {})
    assert "needs a bucket" in str(without_bucket.problem)
    assert configured_target(OffloadConfig(), "east", {}) == OffloadTarget()


def test_missing_location_error_says_what_to_do() -> None:
    config = BrokerConfig()
    policies = resolve(config, Policies(), Policies())
    assert policies.offload.location is None
    assert "magnetarOffloadLocation" in policies.offload.missing_location
    config = BrokerConfig(offload=OffloadConfig(location="nowhere"))
    policies = resolve(config, Policies(), Policies())
    assert policies.offload.location is None
    assert "file:///" in policies.offload.missing_location
