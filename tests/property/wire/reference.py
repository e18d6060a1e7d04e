"""A second codec: slow, obvious, protobuf throughout. What the real one must agree with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import crc32c
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.events import (
    AckGroup,
    AckRun,
    Command,
    Event,
    SendRejected,
    SendRun,
    SendUnsupported,
    TransactionalAcks,
    TransactionalSends,
)

Flat = tuple[Any, ...]
"""An event in comparable form; a run is taken apart into its Sends."""


def read(data: bytes) -> list[Flat]:
    """The events of a stream of whole, well-formed frames."""
    events: list[Flat] = []
    position = 0
    while position < len(data):
        total = int.from_bytes(data[position : position + 4], "big")
        size = int.from_bytes(data[position + 4 : position + 8], "big")
        command = pb.BaseCommand.FromString(data[position + 8 : position + 8 + size])
        rest = data[position + 8 + size : position + 4 + total]
        events.append(read_send(command.send, rest) if command.type == command.SEND else read_other(command))
        position += 4 + total
    return events


def read_other(command: pb.BaseCommand) -> Flat:
    """Plain individual Acks are events of their own, however they are written."""
    ack = command.ack
    if command.type == command.ACK and ack.message_id:
        plain = pb.CommandAck(
            consumer_id=ack.consumer_id,
            ack_type=pb.CommandAck.Individual,
            message_id=[_bare(one) for one in ack.message_id],
            request_id=ack.request_id if ack.HasField("request_id") else None,
        )
        if ack.HasField("txnid_least_bits") and ack.HasField("txnid_most_bits"):
            plain.txnid_least_bits, plain.txnid_most_bits = ack.txnid_least_bits, ack.txnid_most_bits
            if ack == plain:
                return "ack in a transaction", command
        if ack == plain:
            if len(ack.message_id) == 1 and not ack.HasField("request_id"):
                return "ack", ack.consumer_id, ack.message_id[0].ledgerId, ack.message_id[0].entryId
            by_ledger: dict[int, list[int]] = {}
            for one in ack.message_id:
                by_ledger.setdefault(one.ledgerId, []).append(one.entryId)
            request_id = ack.request_id if ack.HasField("request_id") else None
            by_ledger = {ledger_id: sorted(ids) for ledger_id, ids in by_ledger.items()}
            return "acks", ack.consumer_id, request_id, by_ledger
    return "command", command


def _bare(message_id: pb.MessageIdData) -> pb.MessageIdData:
    return pb.MessageIdData(ledgerId=message_id.ledgerId, entryId=message_id.entryId)


def read_send(send: pb.CommandSend, rest: bytes) -> Flat:
    highest = max(send.sequence_id, send.highest_sequence_id)
    if rest[:2] == b"\x0e\x02":
        rest = rest[6 + int.from_bytes(rest[2:6], "big") :]
    if rest[:2] == b"\x0e\x01":
        if crc32c.crc32c(rest[6:]) != int.from_bytes(rest[2:6], "big"):
            return "rejected", send.producer_id, highest, pb.ChecksumError
        entry = rest
    else:
        entry = b"\x0e\x01" + crc32c.crc32c(rest).to_bytes(4, "big") + rest
    in_txn = send.HasField("txnid_least_bits")
    half = in_txn != send.HasField("txnid_most_bits")
    if half or send.HasField("message_id") or send.num_messages > 2**20:
        return "unsupported", send.producer_id, highest, pb.NotAllowedError
    txn = (send.txnid_most_bits, send.txnid_least_bits) if in_txn else None
    numbers = (send.producer_id, send.sequence_id, highest, send.num_messages)
    return "send", txn, *numbers, send.is_chunk, send.marker, entry


def flatten(events: Iterable[Event]) -> list[Flat]:
    flat: list[Flat] = []
    for event in events:
        match event:
            case SendRun():
                flat += flat_run(event, None)
            case TransactionalSends():
                flat += flat_run(event.sends, event.txn)
            case SendUnsupported():
                flat.append(("unsupported", event.producer_id, event.sequence_id, event.error))
            case SendRejected():
                flat.append(("rejected", event.producer_id, event.sequence_id, event.error))
            case Command():
                flat.append(read_other(event.base_command))
            case AckRun():
                assert event.entry_ids
                flat += [
                    ("ack", event.consumer_id, event.ledger_id, entry_id) for entry_id in event.entry_ids
                ]
            case TransactionalAcks():
                taken = [pb.BaseCommand.FromString(encoded) for encoded in event.commands]
                assert taken
                assert {each.ack.consumer_id for each in taken} == {event.consumer_id}
                assert {(each.ack.txnid_most_bits, each.ack.txnid_least_bits) for each in taken} == {
                    event.txn
                }
                answered = [each.ack.request_id for each in taken if each.ack.HasField("request_id")]
                assert event.request_ids == answered
                acked = [(one.ledgerId, one.entryId) for each in taken for one in each.ack.message_id]
                known = [(ledger, entry) for ledger, ids in event.entry_ids.items() for entry in ids]
                assert sorted(known) == sorted(acked)
                flat += [("ack in a transaction", each) for each in taken]
            case AckGroup():
                by_ledger = {ledger_id: sorted(ids) for ledger_id, ids in event.entry_ids.items()}
                flat.append(("acks", event.consumer_id, event.request_id, by_ledger))
    return flat


def flat_run(run: SendRun, txn: tuple[int, int] | None) -> list[Flat]:
    assert run.byte_length == sum(map(len, run.entries))
    assert len(run.entries) == len(run.sequence_varints) > 0
    flat: list[Flat] = []
    for index, entry in enumerate(run.entries):
        count = 1 if run.message_counts is None else run.message_counts[index]
        numbers = (run.sequence_id(index), run.highest_sequence_id(index), count)
        flat.append(("send", txn, run.producer_id, *numbers, run.is_chunk, run.marker, entry))
    return flat
