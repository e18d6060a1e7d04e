"""Single messages over HTTP: the payload is the body, what is said of it is in headers."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Final

from aiohttp import web
from magnetar.broker.admin.backlogs import nth_unacked
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.http_errors import Refused
from magnetar.broker.admin.topic_calls import persistent, stored_subscription
from magnetar.broker.admin.topics import topic_routes
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.naming.position import Position
from magnetar.common.wire.batch import parse_metadata, payload_of
from magnetar.common.wire.pulsar_pb2 import CompressionType, MessageMetadata
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

_READ_BYTES_MAX: Final = 1


async def _peek(call: Call) -> web.Response:
    """The nth entry, from 1 on, that the subscription has not acknowledged."""
    number = call.number("position")
    topic = await persistent(call, "Peek messages")
    subscription = stored_subscription(topic, call.subscription)
    position = await nth_unacked(topic.ledger, subscription, number) if number > 0 else None
    if position is None:
        raise Refused(404, "Message not found")
    return await _entry(topic, position)


async def _by_id(call: Call) -> web.Response:
    position = Position(call.number("ledger"), call.number("entry"))
    topic = await persistent(call, "GetMessageById")
    before = Position(position.ledger_id, position.entry_id - 1)
    if min(position) < 0 or topic.ledger.next_position(before) != position:
        raise Refused(404, "Message id not found")
    return await _entry(topic, position)


async def _examine(call: Call) -> web.Response:
    """The nth entry from the beginning or the end of the topic."""
    number = call.query_number("messagePosition", 1)
    from_end = call.request.query.get("initialPosition", "latest")
    if from_end not in ("latest", "earliest"):
        raise Refused(412, "initialPosition is latest or earliest")
    topic = await persistent(call, "Examine messages")
    entries = topic.ledger.entries
    if not entries:
        raise Refused(412, "Could not examine messages due to the total message is zero")
    index = min(max(number, 1), entries)
    position = nth_entry(topic.ledger, entries - index + 1 if from_end == "latest" else index)
    return await _entry(topic, position)


def nth_entry(ledger: ManagedLedger, number: int) -> Position:
    """The existing entry with this number, from 1 up to how many there are."""
    for span in ledger.spans.spans:
        if number <= span.entries:
            return Position(span.ref.id, number - 1)
        number -= span.entries
    raise AssertionError("the number is at most that of the entries")


async def _entry(topic: PersistentTopic, position: Position) -> web.Response:
    result = await topic.ledger.read(position, 1, _READ_BYTES_MAX)
    run = result.runs[0] if result.runs else None
    if run is None or (run.ledger_id, run.first_entry_id) != position:
        raise Refused(404, "Message not found")
    entry = run.entries[0]
    return web.Response(
        body=bytes(payload_of(entry)),
        content_type="application/json",
        headers=_headers(position, parse_metadata(entry), len(entry)),
    )


def _headers(position: Position, metadata: MessageMetadata, entry_bytes: int) -> dict[str, str]:
    properties = {each.key: each.value for each in metadata.properties}
    headers = {
        "X-Pulsar-Message-ID": f"{position.ledger_id}:{position.entry_id}",
        "X-Pulsar-PROPERTY": json.dumps(properties, separators=(",", ":")),
        "X-Pulsar-publish-time": _time(metadata.publish_time),
        "X-Pulsar-Is-Encrypted": str(bool(metadata.encryption_keys)).lower(),
        "X-Pulsar-producer-name": metadata.producer_name,
        "X-Pulsar-sequence-id": str(metadata.sequence_id),
        "X-Pulsar-txn-uncommitted": "false",
    }
    if metadata.event_time:
        headers["X-Pulsar-event-time"] = _time(metadata.event_time)
    if metadata.HasField("deliver_at_time"):
        headers["X-Pulsar-deliver-at-time"] = _time(metadata.deliver_at_time)
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
        headers["X-Pulsar-batch-size"] = str(entry_bytes)
    if metadata.HasField("partition_key"):
        headers["X-Pulsar-partition-key"] = metadata.partition_key
        if metadata.partition_key_b64_encoded:
            headers["X-Pulsar-partition-key-b64-encoded"] = "true"
    if metadata.HasField("ordering_key"):
        headers["X-Pulsar-Base64-ordering-key"] = base64.b64encode(metadata.ordering_key).decode()
    if metadata.HasField("schema_version"):
        headers["X-Pulsar-Base64-schema-version"] = base64.b64encode(metadata.schema_version).decode()
    if metadata.compression:
        headers["X-Pulsar-compression"] = CompressionType.Name(metadata.compression)
        headers["X-Pulsar-uncompressed-size"] = str(metadata.uncompressed_size)
    if metadata.HasField("chunk_id"):
        headers["X-Pulsar-chunk-id"] = str(metadata.chunk_id)
        headers["X-Pulsar-num-chunks-from-msg"] = str(metadata.num_chunks_from_msg)
        headers["X-Pulsar-total-chunk-msg-size"] = str(metadata.total_chunk_msg_size)
        headers["X-Pulsar-uuid"] = metadata.uuid
    return {name: _clean(value) for name, value in headers.items()}


def _clean(value: str) -> str:
    """Without what would end a header."""
    return value.replace("\r", " ").replace("\n", " ").replace("\0", " ")


def _time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")[:23] + "Z"
    except (OverflowError, ValueError, OSError):
        return str(time_ms)  # a producer may say what it likes


_ERRORS: Final = {
    404: "Topic not found; Subscription not found; Message not found",
    405: "not on a partitioned or non-persistent topic",
}

ROUTES: Final = [
    *topic_routes(
        "GET",
        "subscription/{subscription}/position/{position}",
        _peek,
        "Look at an entry that is not acknowledged; it stays so.",
        answer="bytes",
        errors=_ERRORS,
    ),
    *topic_routes(
        "GET",
        "ledger/{ledger}/entry/{entry}",
        _by_id,
        "An entry by its id.",
        answer="bytes",
        errors=_ERRORS,
    ),
    *topic_routes(
        "GET",
        "examinemessage",
        _examine,
        "An entry by its place in the topic.",
        query=("initialPosition:String=latest", "messagePosition:long=1"),
        answer="bytes",
        errors={**_ERRORS, 412: "the topic is empty; initialPosition is neither latest nor earliest"},
    ),
]
