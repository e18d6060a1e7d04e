"""Offload policies in the JSON of Pulsar's OffloadPolicies.

Members, defaults and validation are Pulsar's; unset members without a default are omitted from a response.
Thresholds, deletion lag, read priority, driver, bucket and URI have Pulsar's meaning. Threads, prefetching
and sizes of blocks and buffers are stored and returned only, since jobs and readers have their own settings.
Credentials are refused, because metadata is not a place for secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from magnetar.broker.admin.policies.policy_json import BadPolicy, int32, json_object, one_of, whole_number
from magnetar.broker.offload_policy.location import normalized
from magnetar.broker.offload_policy.policy import EXACT
from magnetar.common.admin_types.offload import DRIVERS, FILES_DRIVER, GCS_DRIVER, READ_PRIORITIES, S3_DRIVERS
from magnetar.common.metadata.values import Policies
from magnetar.common.offload.offload_refusals import BadLocation

TEXT_CHARS_MAX: Final = 4_096

_SECRET: Final = (
    "{name} is refused, since policies must not contain secrets: give credentials to brokers and jobs in "
    "their environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or a role of the machine)"
)


def text(name: str, value: Any) -> str:
    """Validates a text. Raises BadPolicy."""
    if not isinstance(value, str) or len(value) > TEXT_CHARS_MAX:
        raise BadPolicy(f"{name} must be a string of at most {TEXT_CHARS_MAX} characters")
    return value


def limit(name: str, value: Any) -> int:
    """Validates a limit of -1 or more. Raises BadPolicy."""
    number = whole_number(name, value)
    if number < -1:
        raise BadPolicy(f"{name} value is not valid: it must be -1 (off) or more", 412)
    return number


def _secret(name: str, value: Any) -> None:
    """Accepts only an empty string. Raises BadPolicy."""
    if text(name, value):
        raise BadPolicy(_SECRET.format(name=name), 412)


def _uri(name: str, value: Any) -> str | None:
    """Validates a URI; returns None for an empty one. Raises BadPolicy."""
    try:
        return normalized(text(name, value)) if value else None
    except BadLocation as error:
        raise BadPolicy(f"{name} cannot be used: {error}", 412) from error


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
    ("s3ManagedLedgerOffloadCredentialId", "s3_credential_id", _secret, None),
    ("s3ManagedLedgerOffloadCredentialSecret", "s3_credential_secret", _secret, None),
    ("s3ManagedLedgerOffloadRole", "s3_role", text, None),
    ("s3ManagedLedgerOffloadRoleSessionName", "s3_role_session_name", text, "pulsar-s3-offload"),
    ("gcsManagedLedgerOffloadRegion", "gcs_region", text, None),
    ("gcsManagedLedgerOffloadBucket", "gcs_bucket", text, None),
    ("gcsManagedLedgerOffloadMaxBlockSizeInBytes", "gcs_block_bytes_max", int32, 128 * 1024 * 1024),
    ("gcsManagedLedgerOffloadReadBufferSizeInBytes", "gcs_read_buffer_bytes", int32, 1024 * 1024),
    ("gcsManagedLedgerOffloadServiceAccountKeyFile", "gcs_service_account_key_file", text, None),
    ("fileSystemProfilePath", "file_system_profile_path", text, None),
    ("fileSystemURI", "file_system_uri", _uri, None),
    ("managedLedgerOffloadBucket", "bucket", text, None),
    ("managedLedgerOffloadRegion", "region", text, None),
    ("managedLedgerOffloadServiceEndpoint", "service_endpoint", text, None),
    ("managedLedgerOffloadMaxBlockSizeInBytes", "block_bytes_max", int32, None),
    ("managedLedgerOffloadReadBufferSizeInBytes", "read_buffer_bytes", int32, None),
)
"""Members as (name in JSON, name in metadata, parser, value shown when unset)."""

_EXTRA: Final = "managedLedgerExtraConfigurations"


@dataclass(frozen=True, slots=True)
class OffloadPolicies:
    """The offload policies: a driver with its location, and the thresholds."""

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
        _check_exact(read)
        getattr(policies, field).CopyFrom(read)

    def get(self, policies: Policies, field: str) -> Any:
        message: Policies.Offload = getattr(policies, field)
        shown: dict[str, Any] = {_EXTRA: dict(message.extra_configurations)}
        for name, proto, reader, default in _MEMBERS:
            if reader is _secret:
                continue  # releases without offload stored them
            item = getattr(message, proto) if message.HasField(proto) else default  # type: ignore[arg-type]
            if item is not None:
                shown[name] = item
        driver = message.driver.lower()
        return {
            **shown,
            "s3Driver": driver in S3_DRIVERS,
            "gcsDriver": driver == GCS_DRIVER,
            "fileSystemDriver": driver == FILES_DRIVER,
        }


def _check(offload: Policies.Offload) -> None:
    driver = offload.driver.lower()
    if driver not in (each.lower() for each in DRIVERS):
        raise BadPolicy(f"The driver is not supported, support value: {','.join(DRIVERS)}", 412)
    bucket = offload.bucket
    if driver in S3_DRIVERS:
        bucket = bucket or offload.s3_bucket
    elif driver == GCS_DRIVER:
        bucket = bucket or offload.gcs_bucket
    if not bucket and driver != FILES_DRIVER:
        raise BadPolicy("The bucket must be specified for namespace offload.", 412)


def _check_exact(offload: Policies.Offload) -> None:
    exact = offload.extra_configurations.get(EXACT, "false")
    if exact not in ("true", "false"):
        raise BadPolicy(f"{EXACT} must be true (entries are kept verbatim, too) or false", 412)
