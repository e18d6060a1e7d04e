"""Offload policies: read, checked and shown as Pulsar has them."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.broker.admin.edge.json_types import members_of
from magnetar.broker.admin.policies.offload_policies import OffloadPolicies
from magnetar.broker.admin.policies.policy_json import BadPolicy
from magnetar.common.metadata.values import Policies

KIND = OffloadPolicies()
SECRETS = {"s3ManagedLedgerOffloadCredentialId", "s3ManagedLedgerOffloadCredentialSecret"}


def shown(value: dict[str, Any]) -> dict[str, Any]:
    policies = Policies()
    KIND.put(policies, "offload", value, "offloadPolicies")
    return dict(KIND.get(policies, "offload"))


def test_members_without_a_value_have_their_default_or_are_left_out() -> None:
    found = shown({"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": None, "zzz": 1})
    assert found["managedLedgerOffloadMaxThreads"] == 2
    assert "fileSystemURI" not in found
    assert "managedLedgerOffloadThresholdInBytes" not in found
    assert "zzz" not in found


def test_every_member_comes_back() -> None:
    values: dict[str, Any] = {
        "String": "x",
        "int": 3,
        "long": 4,
        "Map<String>": {"a": "b"},
        "OffloadedReadPriority": "bookkeeper-first",
    }
    given = {
        name: values[kind.removesuffix("?")]
        for name, kind in members_of("OffloadPolicies")
        if kind != "boolean" and name not in SECRETS
    }
    given["managedLedgerOffloadDriver"] = "aws-s3"
    given["fileSystemURI"] = "file:///cold"
    assert shown(given) == {**given, "s3Driver": True, "gcsDriver": False, "fileSystemDriver": False}
    assert shown(shown(given)) == shown(given)


@pytest.mark.parametrize("name", SECRETS)
def test_credentials_are_neither_kept_nor_shown(name: str) -> None:
    with pytest.raises(BadPolicy, match="AWS_ACCESS_KEY_ID") as refused:
        shown({"managedLedgerOffloadDriver": "filesystem", name: "AKIAEXAMPLE"})
    assert refused.value.status == 412
    assert "AKIAEXAMPLE" not in refused.value.reason
    assert name not in shown({"managedLedgerOffloadDriver": "filesystem", name: ""})
    kept_before = Policies(offload=Policies.Offload(s3_credential_id="a", s3_credential_secret="b"))
    assert not SECRETS & KIND.get(kept_before, "offload").keys()


def test_a_path_is_kept_as_a_uri() -> None:
    given = {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": "/cold/"}
    assert shown(given)["fileSystemURI"] == "file:///cold"


@pytest.mark.parametrize("word", ["tiered-storage-first", "TIERED_STORAGE_FIRST"])
def test_offloaded_read_priority_is_accepted_in_both_forms(word: str) -> None:
    given = {"managedLedgerOffloadDriver": "filesystem", "managedLedgerOffloadedReadPriority": word}
    assert shown(given)["managedLedgerOffloadedReadPriority"] == "tiered-storage-first"


@pytest.mark.parametrize(
    ("driver", "bucket", "flag"),
    [
        ("S3", "s3ManagedLedgerOffloadBucket", "s3Driver"),
        ("aws-s3", "managedLedgerOffloadBucket", "s3Driver"),
        ("google-cloud-storage", "gcsManagedLedgerOffloadBucket", "gcsDriver"),
        ("azureblob", "managedLedgerOffloadBucket", None),
        ("aliyun-oss", "managedLedgerOffloadBucket", None),
        ("FileSystem", None, "fileSystemDriver"),
    ],
)
def test_a_driver_says_what_it_is_and_needs_its_bucket(
    driver: str, bucket: str | None, flag: str | None
) -> None:
    given = {"managedLedgerOffloadDriver": driver}
    if bucket:
        with pytest.raises(BadPolicy, match="bucket must be specified") as refused:
            shown(given)
        assert refused.value.status == 412
        given[bucket] = "b1"
    found = shown(given)
    assert [name for name in ("s3Driver", "gcsDriver", "fileSystemDriver") if found[name]] == [
        name for name in [flag] if name
    ]


@pytest.mark.parametrize(
    ("given", "status", "reason"),
    [
        ({}, 412, "support value: S3,aws-s3,google-cloud-storage,filesystem,azureblob,aliyun-oss"),
        ({"managedLedgerOffloadDriver": "bogus"}, 412, "The driver is not supported"),
        ({"managedLedgerOffloadDriver": 3}, 400, "must be a string"),
        ({"managedLedgerOffloadDriver": "x" * 5000}, 400, "at most 4096"),
        ({"managedLedgerOffloadMaxThreads": "two"}, 400, "whole number"),
        ({"managedLedgerOffloadMaxThreads": 2**31}, 400, "out of range"),
        ({"managedLedgerOffloadThresholdInBytes": -2}, 412, "not valid"),
        ({"managedLedgerOffloadedReadPriority": "last"}, 400, "one of"),
        ({"managedLedgerExtraConfigurations": {"a": 1}}, 400, "must be a string"),
        ({"managedLedgerExtraConfigurations": ["a"]}, 400, "object"),
        ({"managedLedgerExtraConfigurations": {"magnetarOffloadExact": "yes"}}, 412, "true"),
        ({"fileSystemURI": "somewhere"}, 412, "file:///"),
        ({"fileSystemURI": "s3://key:secret@bucket"}, 412, "credentials"),
    ],
)
def test_invalid_value_is_refused_with_the_reason(given: dict[str, Any], status: int, reason: str) -> None:
    with pytest.raises(BadPolicy) as refused:
        shown({"managedLedgerOffloadDriver": "filesystem", **given} if given else given)
    assert (refused.value.status, reason in refused.value.reason) == (status, True), refused.value.reason
