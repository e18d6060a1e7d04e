"""What a client puts on the wire, made by protobuf: the reference that the codec is tested against."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
from magnetar.common.wire import pulsar_pb2 as pb


def command(**fields: Any) -> pb.BaseCommand:
    """A command; the first keyword names the field of BaseCommand that its type stands for."""
    base_command: Any = pb.BaseCommand
    number = pb.BaseCommand.DESCRIPTOR.fields_by_name[next(iter(fields))].number
    made: pb.BaseCommand = base_command(type=number, **fields)
    return made


def simple(**fields: Any) -> bytes:
    """A simple frame; the keyword names the field of BaseCommand."""
    return simple_bytes(command(**fields).SerializeToString())


def simple_bytes(encoded: bytes) -> bytes:
    return struct.pack(">II", len(encoded) + 4, len(encoded)) + encoded


def metadata(sequence_id: int = 0, **fields: Any) -> bytes:
    fields = {"producer_name": "p", "publish_time": 1_700_000_000_000, **fields}
    return pb.MessageMetadata(sequence_id=sequence_id, **fields).SerializeToString()


def body(payload: bytes = b"payload", encoded_metadata: bytes | None = None) -> bytes:
    """metadataSize, metadata, payload: what the checksum covers."""
    encoded_metadata = metadata() if encoded_metadata is None else encoded_metadata
    return struct.pack(">I", len(encoded_metadata)) + encoded_metadata + payload


def entry(payload: bytes = b"payload", encoded_metadata: bytes | None = None, crc_xor: int = 0) -> bytes:
    checked = body(payload, encoded_metadata)
    return b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(checked) ^ crc_xor) + checked


def with_entry_metadata(entry: bytes) -> bytes:
    added = pb.BrokerEntryMetadata(broker_timestamp=5, index=6).SerializeToString()
    return b"\x0e\x02" + struct.pack(">I", len(added)) + added + entry


def send_command(producer_id: int, sequence_id: int, **fields: Any) -> bytes:
    send = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, **fields)
    return pb.BaseCommand(type=pb.BaseCommand.SEND, send=send).SerializeToString()


def send_frame(encoded_command: bytes, entry: bytes) -> bytes:
    sizes = struct.pack(">II", 4 + len(encoded_command) + len(entry), len(encoded_command))
    return sizes + encoded_command + entry


def send(producer_id: int, sequence_id: int, payload: bytes = b"payload", **fields: Any) -> bytes:
    """A Send as clients write it."""
    return send_frame(send_command(producer_id, sequence_id, **fields), entry(payload))
