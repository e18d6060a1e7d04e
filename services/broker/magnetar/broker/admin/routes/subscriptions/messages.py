"""Routes that return single messages: the payload in the body, the metadata in headers.

Messages of open and aborted transactions are returned as well, and two headers tell: a client that wants only
committed messages skips them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.objects.backlogs import nth_unacked
from magnetar.broker.admin.objects.topics import owned_topic_routes, persistent, stored_subscription
from magnetar.broker.admin.routes.subscriptions.message_headers import message_headers
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import Position
from magnetar.common.security.authorization.operations import Operation
from magnetar.common.wire.batch import parse_metadata, payload_of
from magnetar.common.wire.pulsar_pb2 import MessageMetadata
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.payload_codecs import decompress

_READ_BYTES_MAX: Final = 1


async def _peek(call: Call) -> web.Response:
    """Returns the nth unacknowledged entry of the subscription, from 1 on.

    A subscription that does not exist has acknowledged nothing. Pulsar creates it for this call; this broker
    does not.
    """
    number, name = call.number("position"), call.subscription
    topic = await persistent(call, "Peek messages")
    position: Position | None = None
    if number > 0 and name in topic.subscriptions:
        subscription = stored_subscription(topic, name)
        position = await nth_unacked(topic.ledger, subscription, number, uncommitted=True)
    elif 0 < number <= topic.ledger.entries:
        position = nth_entry(topic.ledger, number)
    if position is None:
        raise Refused(404, "Message not found")
    return await _entry(topic, position)


async def _by_id(call: Call) -> web.Response:
    position = Position(call.number("ledger"), call.number("entry"))
    topic = await persistent(call, "GetMessageById")
    before = Position(position.ledger_id, position.entry_id - 1)
    if min(position) < 0 or topic.ledger.next_stored(before) != position:
        raise Refused(404, "Message id not found")
    return await _entry(topic, position)


async def _examine(call: Call) -> web.Response:
    """Returns the nth entry from the beginning or the end of the topic."""
    number = call.query_number("messagePosition", 1)
    from_end = call.request.query.get("initialPosition", "latest")
    if from_end not in ("latest", "earliest"):
        raise Refused(412, "initialPosition must be latest or earliest")
    topic = await persistent(call, "Examine messages")
    entries = topic.ledger.entries
    if not entries:
        raise Refused(412, "Could not examine messages due to the total message is zero")
    index = min(max(number, 1), entries)
    position = nth_entry(topic.ledger, entries - index + 1 if from_end == "latest" else index)
    return await _entry(topic, position)


def nth_entry(ledger: ManagedLedger, number: int) -> Position:
    """Returns the position of the entry with this number, counted from 1."""
    for span in ledger.spans.spans:
        if number <= span.entries:
            return Position(span.ref.id, number - 1)
        number -= span.entries
    raise AssertionError("the number exceeds the number of entries")


async def _entry(topic: PersistentTopic, position: Position) -> web.Response:
    ledger, transactions = topic.ledger, topic.ledger.transactions
    result = await ledger.read(position, 1, _READ_BYTES_MAX, uncommitted=True)
    run = result.runs[0] if result.runs else None
    if run is None or (run.ledger_id, run.first_entry_id) != position:
        raise Refused(404, "Message not found")
    run = run.slice(position.entry_id, position.entry_id)
    entry = run.entries[0]
    try:
        metadata = parse_metadata(entry)
        payload = await asyncio.to_thread(_payload, entry, metadata, topic.policies.max_message_bytes)
    except DataCorruption as error:
        raise Refused(422, f"the metadata of this message is invalid: {error}") from error
    return web.Response(
        body=payload,
        content_type="application/json",
        headers=message_headers(
            position,
            metadata,
            run,
            uncommitted=position > ledger.read_limit(),
            aborted=transactions is not None and transactions.is_aborted(*position),
        ),
    )


def _payload(entry: bytes, metadata: MessageMetadata, bytes_max: int) -> bytes:
    """Decompresses the payload, unless it is encrypted or a chunk of a compressed message."""
    payload = bytes(payload_of(entry))
    if not metadata.compression or metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
        return payload
    size = min(metadata.uncompressed_size, max(len(entry), bytes_max))
    return decompress(metadata.compression, payload, size)


_ERRORS: Final = {
    404: "Topic not found; Message not found",
    405: "the topic is partitioned or not persistent",
    422: "the message cannot be decoded",
}

ROUTES: Final = [
    *owned_topic_routes(
        "GET",
        "subscription/{subscription}/position/{position}",
        _peek,
        "Peek at an unacknowledged entry of a subscription.",
        answer="bytes",
        errors=_ERRORS,
        operation=Operation.TOPIC_CONSUME,
        reads_messages=True,
    ),
    *owned_topic_routes(
        "GET",
        "ledger/{ledger}/entry/{entry}",
        _by_id,
        "Get an entry by its id.",
        answer="bytes",
        errors=_ERRORS,
        operation=Operation.TOPIC_CONSUME,
        reads_messages=True,
    ),
    *owned_topic_routes(
        "GET",
        "examinemessage",
        _examine,
        "Get an entry by its number in the topic.",
        query=("initialPosition:String=latest", "messagePosition:long=1"),
        answer="bytes",
        errors={**_ERRORS, 412: "the topic is empty; initialPosition is neither latest nor earliest"},
        operation=Operation.TOPIC_CONSUME,
        reads_messages=True,
    ),
]
