"""Entries that are sent and not confirmed, in the order of their sequence ids. No I/O.

add -> confirm      stored: the callbacks of its messages have their ids
add -> refuse       refused: its callbacks have the error
add -> expire       not confirmed in time; it may be stored or not
frames              all of them again, after a reconnection
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from magnetar.client.errors import ClientError
from magnetar.client.messages import MessageId, OnSent


@dataclass(slots=True)
class PendingEntry:
    """An entry of one message, of a batch, or of a chunk, whose last one completes its message."""

    sequence_id: int
    frame: bytes
    done: list[OnSent | None]
    """For each message; empty for a chunk that others follow."""
    byte_length: int
    """Bytes that its messages take of the client's memory limit."""
    sent_at: float
    is_batch: bool = False
    last_sequence_id: int = -1
    """The highest sequence id of a batch."""


class PendingEntries:
    """The unconfirmed entries of one producer; `message_count` is the number of their messages."""

    __slots__ = ("_chunk_at", "_entries", "_first_chunk", "_partition", "message_count")

    def __init__(self, partition: int) -> None:
        """`partition` is part of the ids; -1 for a topic that is not partitioned."""
        self._entries: deque[PendingEntry] = deque()
        self._partition = partition
        self._first_chunk: MessageId | None = None
        self._chunk_at: tuple[int, int] | None = None
        """The place of the last chunk that was confirmed, while others of its message are to follow."""
        self.message_count = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def oldest_sent_at(self) -> float | None:
        """When the oldest entry was sent."""
        return self._entries[0].sent_at if self._entries else None

    @property
    def next_sequence_id(self) -> int | None:
        """The sequence id of the receipt that is expected next."""
        return self._entries[0].sequence_id if self._entries else None

    def frames(self) -> Iterator[bytes]:
        """Yields the frames of all entries in order."""
        return (entry.frame for entry in self._entries)

    def add(self, entry: PendingEntry) -> None:
        """Adds an entry after the others."""
        self._entries.append(entry)
        self.message_count += len(entry.done)

    def confirm(self, sequence_id: int, ledger_id: int, entry_id: int) -> PendingEntry | None:
        """Completes the oldest entry, whose callbacks are called. None: the receipt is for none that is
        pending, such as one of an entry that was sent twice, or expired.
        """
        entries = self._entries
        if not entries or entries[0].sequence_id != sequence_id:
            return None
        if self._chunk_at is not None:  # All chunks have one sequence id: is it the same receipt again?
            if self._chunk_at == (ledger_id, entry_id) and ledger_id >= 0:
                return None
            self._chunk_at = None
        entry = entries.popleft()
        done = entry.done
        self.message_count -= len(done)
        if not done:
            self._first_chunk = self._first_chunk or MessageId(ledger_id, entry_id, self._partition)
            self._chunk_at = ledger_id, entry_id
        elif entry.is_batch:
            size, partition = len(done), self._partition
            for index, each in enumerate(done):
                if each is not None:
                    each(None, MessageId(ledger_id, entry_id, partition, index, size))
        else:
            first, self._first_chunk = self._first_chunk, None
            if (each := done[0]) is not None:
                each(None, MessageId(ledger_id, entry_id, self._partition, -1, 0, first))
        return entry

    def refuse(self, sequence_id: int, error: ClientError) -> list[PendingEntry]:
        """Removes the entry with that sequence id (all chunks of a message), and fails its callbacks."""
        refused = [entry for entry in self._entries if entry.sequence_id == sequence_id]
        self._entries = deque(entry for entry in self._entries if entry.sequence_id != sequence_id)
        return self._failed(refused, error)

    def expire(self, now: float, limit_s: float, error: ClientError) -> list[PendingEntry]:
        """Removes the entries sent `limit_s` ago or earlier, and fails their callbacks."""
        expired = []
        # As the caller's timer adds them: the difference may be rounded to less than the limit.
        while self._entries and self._entries[0].sent_at + limit_s <= now:
            expired.append(self._entries.popleft())
        return self._failed(expired, error)

    def fail(self, error: ClientError) -> list[PendingEntry]:
        """Removes all entries, and fails their callbacks."""
        failed = list(self._entries)
        self._entries.clear()
        return self._failed(failed, error)

    def _failed(self, entries: list[PendingEntry], error: ClientError) -> list[PendingEntry]:
        for entry in entries:
            self.message_count -= len(entry.done)
        self._first_chunk = self._chunk_at = None
        for entry in entries:
            for each in entry.done:
                if each is not None:
                    each(error, None)
        return entries
