"""The options of `set-offload-policies`, with pulsar-admin's names for namespaces and for topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click
from magnetar.cli.admin.policies.options import Choice
from magnetar.cli.option_values import SECONDS, SIZE
from magnetar.common.admin_types.offload import DRIVERS, READ_PRIORITIES

_OF_DRIVER: Final = {
    "region": "Region",
    "bucket": "Bucket",
    "endpoint": "ServiceEndpoint",
    "block_size": "MaxBlockSizeInBytes",
    "read_buffer": "ReadBufferSizeInBytes",
}
"""Members whose names begin with the driver's name."""

_OF_ALL: Final = {
    "driver": "managedLedgerOffloadDriver",
    "aws_id": "s3ManagedLedgerOffloadCredentialId",
    "aws_secret": "s3ManagedLedgerOffloadCredentialSecret",
    "s3_role": "s3ManagedLedgerOffloadRole",
    "s3_role_session_name": "s3ManagedLedgerOffloadRoleSessionName",
    "threshold": "managedLedgerOffloadThresholdInBytes",
    "threshold_s": "managedLedgerOffloadThresholdInSeconds",
    "read_priority": "managedLedgerOffloadedReadPriority",
}
_PREFIXES: Final = {"s3": "s3Managed", "aws-s3": "s3Managed", "google-cloud-storage": "gcsManaged"}


def _body(given: Mapping[str, Any]) -> dict[str, Any]:
    prefix = _PREFIXES.get(given["driver"].lower(), "managed")
    body = {member: given[name] for name, member in _OF_ALL.items()}
    body |= {f"{prefix}LedgerOffload{end}": given[name] for name, end in _OF_DRIVER.items()}
    if given["lag"] is not None:
        body["managedLedgerOffloadDeletionLagInMillis"] = (
            given["lag"] * 1000 if given["lag"] > 0 else given["lag"]
        )
    return {member: value for member, value in body.items() if value is not None}


def _option(names: list[str], help_text: str, **more: Any) -> click.Option:
    return click.Option(names, help=help_text, **more)


OFFLOAD: Final = Choice(
    (
        _option(
            ["--driver", "-d"],
            "Offload driver.",
            type=click.Choice(DRIVERS, case_sensitive=False),
            required=True,
        ),
        _option(["--region", "-r"], "Region of the bucket."),
        _option(["--bucket", "-b"], "Bucket; not for the driver filesystem."),
        _option(
            ["--endpoint", "-e"],
            "Endpoint of the object store; must equal AWS_ENDPOINT_URL of brokers and jobs.",
        ),
        _option(
            ["--aws-id", "-i"], "Not supported: brokers and jobs read credentials from their environment."
        ),
        _option(["--aws-secret", "-s"], "Refused, likewise."),
        _option(["--s3-role", "-ro"], "Role to assume."),
        _option(["--s3-role-session-name", "-rsn"], "Session name of the assumed role."),
        _option(
            ["--maxBlockSize", "-mbs", "--maxBlockSizeInBytes", "-m", "block_size"], "As 64M.", type=SIZE
        ),
        _option(
            ["--readBufferSize", "-rbs", "--readBufferSizeInBytes", "-rb", "read_buffer"],
            "As 1M.",
            type=SIZE,
        ),
        _option(
            ["--offloadAfterThreshold", "-oat", "--offloadThresholdInBytes", "-t", "threshold"],
            "Bytes of a topic to keep on bookies, such as 10G; -1: no automatic offload.",
            type=SIZE,
        ),
        _option(
            [
                "--offloadAfterThresholdInSeconds",
                "-oats",
                "--offloadThresholdInSeconds",
                "-ts",
                "threshold_s",
            ],
            "Age up to which closed ledgers stay on bookies, such as 3h; -1: no automatic offload.",
            type=SECONDS,
        ),
        _option(
            ["--offloadAfterElapsed", "-oae", "--offloadDeletionLag", "-dl", "lag"],
            "Time that bookies keep an offloaded ledger, such as 3h; -1: no limit.",
            type=SECONDS,
        ),
        _option(
            ["--offloadReadPriority", "-orp", "--offloadedReadPriority", "read_priority"],
            "Storage to read from while both have a ledger.",
            type=click.Choice(READ_PRIORITIES),
        ),
    ),
    _body,
)
