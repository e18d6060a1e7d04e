"""Message commands, assembled by hand, a run at a time: equal to protobuf's encoding, byte for byte.

    totalSize(4) commandSize(4) | 08 09  4a length  08 consumer_id
                                  12 length (08 ledgerId 10 entryId [18 partition])
                                  [18 redelivery_count]  {20 ack_set}  [28 consumer_epoch]
    [0x0e02 size(4) BrokerEntryMetadata] | entry as it is stored

Between the messages of a run only totalSize and the entry id differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from magnetar.common.wire.frame import MAGIC_ENTRY_METADATA
from magnetar.common.wire.pulsar_pb2 import BrokerEntryMetadata
from magnetar.common.wire.varint import ascending, consecutive, encode_varint

_TYPE_AND_FIELD: Final = b"\x08\x09\x4a"

_COMMANDS_KEPT: Final = 16
"""Command templates cached per ledger; ordinary deliveries use one to three."""


class MessageFramer:
    """Builds the Message frames of one consumer."""

    __slots__ = ("_commands", "_consumer", "_ledger", "_ledger_id", "_partition")

    def __init__(self, consumer_id: int, partition: int = -1) -> None:
        """Creates a framer. `partition` is the topic's partition index, -1 for a non-partitioned topic."""
        self._consumer = b"\x08" + encode_varint(consumer_id)
        self._partition = b"" if partition == -1 else b"\x18" + encode_varint(partition)
        self._ledger_id = -1
        self._ledger = b""
        self._commands: dict[tuple[int, int], tuple[bytes, int]] = {}

    def frames(
        self,
        out: list[bytes],
        ledger_id: int,
        first_entry_id: int,
        entries: Sequence[bytes],
        *,
        redelivery_count: int = 0,
        ack_set: Sequence[int] | None = None,
        consumer_epoch: int | None = None,
        entry_metadata: Sequence[bytes] | None = None,
    ) -> None:
        """Appends the frames of entries with consecutive ids to `out`: alternating headers and entries.

        The entries are not copied. `ack_set` is in wire words (see ack_set.py) and, like `redelivery_count`,
        applies to all the entries: pass it with a single entry. `entry_metadata` is serialized
        BrokerEntryMetadata by entry, for clients that announced support.
        """
        self._set_ledger(ledger_id)
        after = _after_message_id(redelivery_count, ack_set, consumer_epoch)
        if entry_metadata is None and len(entries) == 1:
            entry = entries[0]
            entry_id = encode_varint(first_entry_id)
            command, command_bytes = self._command(len(entry_id), len(after))
            total = 4 + command_bytes + len(entry)
            out.append(total.to_bytes(4, "big") + command + entry_id + self._partition + after)
            out.append(entry)
            return
        ids = consecutive(first_entry_id, len(entries))
        self._append(out, ids, entries, after, entry_metadata)

    def frames_of(
        self,
        out: list[bytes],
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[bytes],
        *,
        consumer_epoch: int | None = None,
        entry_metadata: Sequence[bytes] | None = None,
    ) -> None:
        """Appends frames of new entries whose ids ascend with gaps."""
        self._set_ledger(ledger_id)
        after = _after_message_id(0, None, consumer_epoch)
        self._append(out, ascending(entry_ids), entries, after, entry_metadata)

    def _set_ledger(self, ledger_id: int) -> None:
        if ledger_id != self._ledger_id:
            self._ledger_id = ledger_id
            self._ledger = b"\x08" + encode_varint(ledger_id) + b"\x10"
            self._commands.clear()

    def _append(
        self,
        out: list[bytes],
        ids: Iterable[tuple[list[bytes], bytes]],
        entries: Sequence[bytes],
        after: bytes,
        entry_metadata: Sequence[bytes] | None,
    ) -> None:
        done = 0
        for heads, tail in ids:
            taken = entries[done : done + len(heads)]
            command, command_bytes = self._command(len(heads[0]) + len(tail), len(after))
            tail += self._partition + after
            overhead = 4 + command_bytes
            if entry_metadata is None:
                if len(taken[0]) == len(taken[-1]):
                    _append_alike(out, heads, tail, taken, overhead, command)
                else:
                    for head, entry in zip(heads, taken, strict=True):
                        out.append((overhead + len(entry)).to_bytes(4, "big") + command + head + tail)
                        out.append(entry)
            else:
                added = entry_metadata[done : done + len(heads)]
                for head, entry, metadata in zip(heads, taken, added, strict=True):
                    total = overhead + 6 + len(metadata) + len(entry)
                    size = len(metadata).to_bytes(4, "big")
                    out.append(
                        total.to_bytes(4, "big")
                        + command
                        + head
                        + tail
                        + MAGIC_ENTRY_METADATA
                        + size
                        + metadata
                    )
                    out.append(entry)
            done += len(heads)

    def _command(self, entry_id_bytes: int, after_bytes: int) -> tuple[bytes, int]:
        """Returns (commandSize and the command up to the entry id, size of the command)."""
        known = self._commands.get((entry_id_bytes, after_bytes))
        if known is not None:
            return known
        message_id_bytes = len(self._ledger) + entry_id_bytes + len(self._partition)
        message_id = b"\x12" + encode_varint(message_id_bytes) + self._ledger
        body_bytes = len(self._consumer) + 2 + message_id_bytes + after_bytes
        prefix = _TYPE_AND_FIELD + encode_varint(body_bytes)
        command_bytes = len(prefix) + body_bytes
        made = command_bytes.to_bytes(4, "big") + prefix + self._consumer + message_id, command_bytes
        if len(self._commands) < _COMMANDS_KEPT:
            self._commands[entry_id_bytes, after_bytes] = made
        return made


def _after_message_id(
    redelivery_count: int, ack_set: Sequence[int] | None, consumer_epoch: int | None
) -> bytes:
    after = b""
    if redelivery_count:
        after = b"\x18" + encode_varint(redelivery_count)
    if ack_set is not None:
        after += b"".join([b"\x20" + encode_varint(word) for word in ack_set])
    if consumer_epoch is not None:
        after += b"\x28" + encode_varint(consumer_epoch)
    return after


def run_entry_metadata(
    publish_time_ms: int, first_index: int, count: int, message_counts: Sequence[int] | None
) -> list[bytes]:
    """Returns serialized BrokerEntryMetadata for each entry of a run; `index` is that of the entry's last
    message.
    """
    counts = [1] * count if message_counts is None else message_counts
    serialized = []
    next_index = first_index
    for messages in counts:
        next_index += messages
        metadata = BrokerEntryMetadata(broker_timestamp=publish_time_ms, index=next_index - 1)
        serialized.append(metadata.SerializeToString())
    return serialized


def _append_alike(
    out: list[bytes],
    heads: Sequence[bytes],
    tail: bytes,
    entries: Sequence[bytes],
    overhead: int,
    command: bytes,
) -> None:
    """Append messages of entries most of which have one length, and so the same bytes before their ids."""
    entry_bytes, before = -1, b""
    for head, entry in zip(heads, entries, strict=True):
        if len(entry) != entry_bytes:
            entry_bytes = len(entry)
            before = (overhead + entry_bytes).to_bytes(4, "big") + command
        out.append(before + head + tail)
        out.append(entry)
