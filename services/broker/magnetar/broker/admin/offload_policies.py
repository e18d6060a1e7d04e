"""When and where ledgers go to a colder tier: the policy is kept and shown, and nothing is offloaded yet.

Members, their defaults and what is refused are those of Pulsar's OffloadPolicies; those that are not given
and have no default are left out of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from magnetar.broker.admin.policy_json import BadPolicy, int32, json_object, one_of, whole_number
from magnetar.common.metadata.values import Policies

DRIVERS: Final = ("S3", "aws-s3", "google-cloud-storage", "filesystem", "azureblob", "aliyun-oss")
READ_PRIORITIES: Final = ("bookkeeper-first", "tiered-storage-first")
TEXT_CHARS_MAX: Final = 4_096
_S3: Final = ("s3", "aws-s3")
_GCS: Final = "google-cloud-storage"
_FILES: Final = "filesystem"


def text(name: str, value: Any) -> str:
    """Raises BadPolicy."""
    if not isinstance(value, str) or len(value) > TEXT_CHARS_MAX:
        raise BadPolicy(f"{name} must be a text of at most {TEXT_CHARS_MAX} characters")
    return value


def limit(name: str, value: Any) -> int:
    """-1 or more. Raises BadPolicy."""
    number = whole_number(name, value)
    if number < -1:
        raise BadPolicy(f"{name} value is not valid: it must be -1 (off) or more", 412)
    return number


def _priority(name: str, value: Any) -> str:
    return one_of(*READ_PRIORITIES)(
        name, value.lower().replace("_", "-") if isinstance(value, str) else value
    )


_MEMBERS: Final = (
    ("offloadersDirectory", "offloaders_directory", text, "./offloaders"),
    ("managedLedgerOffloadDriver", "driver", text, None),
    ("managedLedgerOffloadMaxThreads", "threads_max", int32, 2),
    ("managedLedgerOffloadPrefetchRounds", "prefetch_rounds", int32, 1),
    ("managedLedgerOffloadThresholdInSeconds", "threshold_s", limit, None),
    ("managedLedgerOffloadThresholdInBytes", "threshold_bytes", limit, None),
    ("managedLedgerOffloadDeletionLagInMillis", "deletion_lag_ms", limit, None),
    ("managedLedgerOffloadedReadPriority", "read_priority", _priority, None),
    ("s3ManagedLedgerOffloadRegion", "s3_region", text, None),
    ("s3ManagedLedgerOffloadBucket", "s3_bucket", text, None),
    ("s3ManagedLedgerOffloadServiceEndpoint", "s3_service_endpoint", text, None),
    ("s3ManagedLedgerOffloadMaxBlockSizeInBytes", "s3_block_bytes_max", int32, 64 * 1024 * 1024),
    ("s3ManagedLedgerOffloadReadBufferSizeInBytes", "s3_read_buffer_bytes", int32, 1024 * 1024),
    ("s3ManagedLedgerOffloadCredentialId", "s3_credential_id", text, None),
    ("s3ManagedLedgerOffloadCredentialSecret", "s3_credential_secret", text, None),
    ("s3ManagedLedgerOffloadRole", "s3_role", text, None),
    ("s3ManagedLedgerOffloadRoleSessionName", "s3_role_session_name", text, "pulsar-s3-offload"),
    ("gcsManagedLedgerOffloadRegion", "gcs_region", text, None),
    ("gcsManagedLedgerOffloadBucket", "gcs_bucket", text, None),
    ("gcsManagedLedgerOffloadMaxBlockSizeInBytes", "gcs_block_bytes_max", int32, 128 * 1024 * 1024),
    ("gcsManagedLedgerOffloadReadBufferSizeInBytes", "gcs_read_buffer_bytes", int32, 1024 * 1024),
    ("gcsManagedLedgerOffloadServiceAccountKeyFile", "gcs_service_account_key_file", text, None),
    ("fileSystemProfilePath", "file_system_profile_path", text, None),
    ("fileSystemURI", "file_system_uri", text, None),
    ("managedLedgerOffloadBucket", "bucket", text, None),
    ("managedLedgerOffloadRegion", "region", text, None),
    ("managedLedgerOffloadServiceEndpoint", "service_endpoint", text, None),
    ("managedLedgerOffloadMaxBlockSizeInBytes", "block_bytes_max", int32, None),
    ("managedLedgerOffloadReadBufferSizeInBytes", "read_buffer_bytes", int32, None),
)
"""Name in JSON, in metadata, how it is read, and what is shown when it is not given."""

_EXTRA: Final = "managedLedgerExtraConfigurations"


@dataclass(frozen=True, slots=True)
class OffloadPolicies:
    """A driver with what it needs, and when ledgers go."""

    type_name: str = "OffloadPolicies"

    def put(self, policies: Policies, field: str, value: Any, rest_name: str) -> None:
        given = json_object(rest_name, value)
        read = Policies.Offload()
        for name, proto, reader, default in _MEMBERS:
            item = given.get(name)
            if item is not None and (found := reader(name, item)) != default:
                setattr(read, proto, found)
        extra = json_object(_EXTRA, given.get(_EXTRA) or {})
        read.extra_configurations.update({text(_EXTRA, key): text(key, each) for key, each in extra.items()})
        _check(read)
        getattr(policies, field).CopyFrom(read)

    def get(self, policies: Policies, field: str) -> Any:
        message: Policies.Offload = getattr(policies, field)
        shown: dict[str, Any] = {_EXTRA: dict(message.extra_configurations)}
        for name, proto, _, default in _MEMBERS:
            item = getattr(message, proto) if message.HasField(proto) else default  # type: ignore[arg-type]
            if item is not None:
                shown[name] = item
        driver = message.driver.lower()
        return {
            **shown,
            "s3Driver": driver in _S3,
            "gcsDriver": driver == _GCS,
            "fileSystemDriver": driver == _FILES,
        }


def _check(offload: Policies.Offload) -> None:
    driver = offload.driver.lower()
    if driver not in (each.lower() for each in DRIVERS):
        raise BadPolicy(f"The driver is not supported, support value: {','.join(DRIVERS)}", 412)
    bucket = offload.bucket
    if driver in _S3:
        bucket = bucket or offload.s3_bucket
    elif driver == _GCS:
        bucket = bucket or offload.gcs_bucket
    if not bucket and driver != _FILES:
        raise BadPolicy("The bucket must be specified for namespace offload.", 412)
