"""Encodes the metadata of a message as Pulsar's HTTP headers."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from magnetar.common.naming.position import Position
from magnetar.common.wire.pulsar_pb2 import CompressionType, MessageMetadata
from magnetar.ledger.ledger_store import Run

_Field: TypeAlias = Literal[
    "deliver_at_time",
    "partition_key",
    "ordering_key",
    "schema_version",
    "highest_sequence_id",
    "marker_type",
    "txnid_least_bits",
    "txnid_most_bits",
]


def message_headers(
    position: Position,
    metadata: MessageMetadata,
    run: Run,
    *,
    uncommitted: bool = False,
    aborted: bool = False,
) -> dict[str, str]:
    """Returns the headers of the one entry of `run`.

    `uncommitted`: consumers do not get it yet, because it is in or after an open transaction. `aborted`: they
    never get it.
    """
    properties = {each.key: each.value for each in metadata.properties}
    headers = {
        "Message-ID": f"{position.ledger_id}:{position.entry_id}",
        "PROPERTY": json.dumps(properties, separators=(",", ":")),
        "Broker-Entry-METADATA-timestamp": _time(run.publish_time_ms),
        "Broker-Entry-METADATA-index": str(run.first_index + run.messages - 1),
        "publish-time": _time(metadata.publish_time),
        "Is-Encrypted": _flag(bool(metadata.encryption_keys)),
        "producer-name": metadata.producer_name,
        "sequence-id": str(metadata.sequence_id),
        "txn-uncommitted": _flag(uncommitted),
        **_optional(metadata),
    }
    if run.txn is not None:
        headers["txn-aborted"] = _flag(aborted)
    if metadata.HasField("num_messages_in_batch"):
        headers["num-batch-message"] = str(metadata.num_messages_in_batch)
        headers["batch-size"] = str(run.byte_length - metadata.ByteSize())
    for name, key in (("TOTAL_CHUNKS", "TOTAL-CHUNKS"), ("CHUNK_ID", "CHUNK-ID")):
        if name in properties:
            headers[f"PROPERTY-{key}"] = properties[name]
    return {f"X-Pulsar-{name}": _clean(value) for name, value in headers.items()}


def _optional(metadata: MessageMetadata) -> dict[str, str]:
    """Headers of optional metadata."""
    headers: dict[str, str] = {}

    def add(name: str, given: object, value: str) -> None:
        if given:
            headers[name] = value

    def add_field(name: str, field: _Field, value: str) -> None:
        add(name, metadata.HasField(field), value)

    add("event-time", metadata.event_time, _time(metadata.event_time))
    add_field("deliver-at-time", "deliver_at_time", _time(metadata.deliver_at_time))
    add_field("partition-key", "partition_key", metadata.partition_key)
    add("partition-key-b64-encoded", metadata.partition_key_b64_encoded, "true")
    add("null-partition-key", metadata.null_partition_key, "true")
    add("null-value", metadata.null_value, "true")
    add_field("Base64-ordering-key", "ordering_key", _base64(metadata.ordering_key))
    for name in ("Base64-schema-version", "Base64-schema-version-b64encoded"):
        add_field(name, "schema_version", _base64(metadata.schema_version))  # brokers and clients differ
    add_field("highest-sequence-id", "highest_sequence_id", str(metadata.highest_sequence_id))
    add("replicated-from", metadata.replicated_from, metadata.replicated_from)
    add("replicated-to", metadata.replicate_to, ",".join(metadata.replicate_to))
    add_field("marker-type", "marker_type", str(metadata.marker_type))
    add_field("txnid-least-bits", "txnid_least_bits", str(metadata.txnid_least_bits))
    add_field("txnid-most-bits", "txnid_most_bits", str(metadata.txnid_most_bits))
    if metadata.compression:
        headers["compression"] = CompressionType.Name(metadata.compression)
        headers["uncompressed-size"] = str(metadata.uncompressed_size)
    if metadata.HasField("chunk_id"):
        headers["chunk-id"] = str(metadata.chunk_id)
        headers["num-chunks-from-msg"] = str(metadata.num_chunks_from_msg)
        headers["total-chunk-msg-size"] = str(metadata.total_chunk_msg_size)
        headers["uuid"] = metadata.uuid
    if metadata.encryption_keys:
        headers["encryption-algo"] = metadata.encryption_algo
        headers["Base64-encryption-param"] = _base64(metadata.encryption_param)
        keys = [_base64(key.SerializeToString()) for key in metadata.encryption_keys]
        headers["Base64-encryption-keys"] = ",".join(keys)
    return headers


def _flag(value: bool) -> str:
    return str(value).lower()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _clean(value: str) -> str:
    """Removes characters that would end a header."""
    return value.replace("\r", " ").replace("\n", " ").replace("\0", " ")


def _time(time_ms: int) -> str:
    """Formats a time in ISO 8601; whole seconds without a fraction."""
    try:
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)  # a producer may send any value
    return at.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").partition("+")[0] + "Z"
