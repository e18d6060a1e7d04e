"""A topic's history for tests of compaction, with messages of every kind, and a naive model of the view."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.frame import encode_entry
from magnetar.common.wire.pulsar_pb2 import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    CompressionType,
    MessageMetadata,
    SingleMessageMetadata,
)
from magnetar.ledger.ledger_store import RUN_CHUNK, RUN_MARKER, Run
from magnetar.ledger.payload_codecs import compress

CODECS = (NONE, LZ4, ZLIB, ZSTD, SNAPPY)


class Message(NamedTuple):
    """A message as the model knows it; `batch_index` is -1 outside of batches."""

    key: str | None
    value: bytes
    batch_index: int = -1
    compacted_out: bool = False


class Chunk(NamedTuple):
    """A chunk of a larger message."""

    uuid: str
    chunk_id: int
    chunks: int


@dataclass
class Entry:
    """A published entry. `messages` is empty for opaque ones and markers."""

    data: bytes
    messages: list[Message] = field(default_factory=list)
    opaque: bool = False
    chunk: Chunk | None = None
    count: int = 1
    flags: int = 0
    txn: TxnId | None = None
    aborted: bool = False
    position: Position = EARLIEST

    def run(self) -> Run:
        """Returns it as a run to append."""
        counts = None if self.count == 1 else [self.count]
        return Run([self.data], message_counts=counts, flags=self.flags, txn=self.txn)


def metadata_of(number: int, **fields: object) -> MessageMetadata:
    """Returns metadata as every client sends it."""
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1_600_000_000_000 + number)
    for name, value in fields.items():
        setattr(metadata, name, value)
    return metadata


def single(number: int, key: str | None, value: bytes, **fields: object) -> Entry:
    """Returns a message outside of batches; without `uncompressed_size` unless it is given."""
    metadata = metadata_of(number, **fields)
    if key is not None:
        metadata.partition_key = key
    return Entry(encode_entry(metadata.SerializeToString(), value), [Message(key, value)])


def batch(
    number: int,
    messages: Sequence[tuple[str | None, bytes]],
    codec: CompressionType.ValueType = NONE,
    compacted_out: frozenset[int] = frozenset(),
    *,
    encrypted: bool = False,
    garbage: bool = False,
) -> Entry:
    """Returns a batch of (key, value)."""
    payload = b""
    noted = []
    for index, (key, value) in enumerate(messages):
        one = SingleMessageMetadata(payload_size=len(value))
        if key is not None:
            one.partition_key = key
        if index in compacted_out:
            one = SingleMessageMetadata(payload_size=0, compacted_out=True)
            value = b""
        noted.append(Message(key, value, index, index in compacted_out))
        encoded = one.SerializeToString()
        payload += len(encoded).to_bytes(4, "big") + encoded + value
    metadata = metadata_of(number, num_messages_in_batch=len(messages), uncompressed_size=len(payload))
    if messages[0][0] is not None:
        metadata.partition_key = messages[0][0]
    if codec != NONE:
        metadata.compression = codec
        payload = compress(codec, payload)
    if encrypted:
        metadata.encryption_keys.add(key="k", value=b"secret")
        payload = bytes(reversed(payload))
    if garbage:
        payload = payload[:-1]
    opaque = encrypted or garbage
    data = encode_entry(metadata.SerializeToString(), payload)
    return Entry(data, [] if opaque else noted, opaque, count=len(messages))


def chunk(number: int, key: str | None, value: bytes, which: Chunk) -> Entry:
    """Returns a chunk."""
    metadata = metadata_of(
        number,
        uuid=which.uuid,
        chunk_id=which.chunk_id,
        num_chunks_from_msg=which.chunks,
        total_chunk_msg_size=100,
    )
    if key is not None:
        metadata.partition_key = key
    data = encode_entry(metadata.SerializeToString(), value)
    return Entry(data, [Message(key, value)], chunk=which, flags=RUN_CHUNK)


def marker(number: int) -> Entry:
    """Returns a marker of the server."""
    metadata = metadata_of(number, marker_type=3)
    return Entry(encode_entry(metadata.SerializeToString(), b""), flags=RUN_MARKER)


Place = tuple[int, int]
"""Number of an entry in the history, index in its batch."""


@dataclass
class _Group:
    key: str
    chunks: list[int] = field(default_factory=list)


def expected_view(history: Sequence[Entry], retain_null_key: bool = False) -> dict[Position, set[int]]:
    """Folds a history up to the horizon: surviving batch indexes by position, {-1} outside of batches."""
    latest: dict[str, tuple[list[Place], bool]] = {}
    kept: set[Place] = set()
    groups: dict[str, _Group] = {}
    for number, entry in enumerate(history):
        if entry.aborted:
            continue
        if entry.opaque:
            kept.add((number, -1))
        for message in entry.messages:
            place = (number, message.batch_index)
            if message.compacted_out:
                continue
            if message.key is None:
                if retain_null_key:
                    kept.add(place)
            elif entry.chunk is None:
                latest[message.key] = ([place], message.value == b"")
            else:
                uuid, chunk_id, chunks = entry.chunk
                if chunk_id == 0:
                    groups[uuid] = _Group(message.key)
                group = groups.get(uuid)
                if group is None or chunk_id != len(group.chunks):
                    continue
                group.chunks.append(number)
                if chunk_id + 1 == chunks:
                    latest[message.key] = ([(each, -1) for each in group.chunks], False)
                    del groups[uuid]
    for places, deletes in latest.values():
        if not deletes:
            kept.update(places)
    for group in groups.values():
        kept.update((each, -1) for each in group.chunks)
    view: dict[Position, set[int]] = {}
    for number, index in sorted(kept):
        view.setdefault(history[number].position, set()).add(index)
    return view


class RandomHistory:
    """Random entries of every kind over few keys."""

    def __init__(self, rng: random.Random, *, keys: int = 8) -> None:
        self._rng = rng
        self._keys = [*(f"key-{number}" for number in range(keys)), ""]
        self._number = 0
        self._open: list[tuple[str | None, Chunk]] = []

    def next(self) -> Entry:
        """Returns another entry."""
        rng = self._rng
        self._number += 1
        number = self._number
        what = rng.random()
        if what < 0.4:
            value = self._value()
            fields = {"uncompressed_size": len(value)} if rng.random() < 0.5 else {}
            entry = single(number, self._key(), value, **fields)
        elif what < 0.7:
            count = rng.choice((1, 2, 3, 7))
            messages = [(self._key(), self._value()) for _ in range(count)]
            out = frozenset(at for at in range(count) if rng.random() < 0.1)
            entry = batch(number, messages, rng.choice(CODECS), out)
        elif what < 0.75:
            messages = [(self._key(), self._value()) for _ in range(3)]
            encrypted = rng.random() < 0.5
            entry = batch(number, messages, NONE, encrypted=encrypted, garbage=not encrypted)
        elif what < 0.78:
            entry = marker(number)
        else:
            entry = self._chunk(number)
        return entry

    def _chunk(self, number: int) -> Entry:
        rng = self._rng
        if not self._open or rng.random() < 0.3:
            key, which = self._key(), Chunk(f"p-{number}", 0, rng.choice((2, 3, 4)))
        else:
            key, last = self._open.pop(rng.randrange(len(self._open)))
            lost = rng.random()
            if lost < 0.1:
                which = last  # sent again
            elif lost < 0.15:
                which = last._replace(chunk_id=0)  # from the beginning
            elif lost < 0.2:
                which = last._replace(chunk_id=min(last.chunk_id + 2, last.chunks - 1))
            else:
                which = last._replace(chunk_id=last.chunk_id + 1)
        if which.chunk_id + 1 < which.chunks:
            self._open.append((key, which))
        return chunk(number, key, self._value() or b"x", which)

    def _key(self) -> str | None:
        return None if self._rng.random() < 0.1 else self._rng.choice(self._keys)

    def _value(self) -> bytes:
        if self._rng.random() < 0.2:
            return b""
        return b"%d " % self._rng.randrange(1 << 30) + bytes(self._rng.choice((0, 5, 300)))
