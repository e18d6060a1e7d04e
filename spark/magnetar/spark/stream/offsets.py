"""How far a stream has read, as it stands in Spark's checkpoint, and how far a micro-batch goes: values only.

    {"version": 1, "since_ms": 1767225600000,
     "topics": {"persistent://public/default/a": {"creation": "123", "at": "12:34", "index": 5600}}}

`at` is the place of the next entry, `index` the topic-wide number of its first message. Entries are never
cut: so a batch that Spark repeats is the same messages, wherever they are read from by then. Only where a
query begins `at` may be inside of an entry. `since_ms` is starting.time as it was when the query began; it is
kept, as that of a restart, an hour ago for example, would leave out what came while the query was down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from magnetar.common.errors import MagnetarError
from magnetar.spark.message_ids import MessageAt, parse_message_id

OFFSET_VERSION: Final = 1

UNKNOWN: Final = -1
"""Index of unknown value: without the number of earlier messages, a loss cannot be detected."""


class BadOffset(MagnetarError):
    """The checkpoint has a format that this release does not support."""


@dataclass(frozen=True, slots=True)
class TopicOffset:
    """The offset of one topic."""

    creation_id: int
    at: MessageAt
    """The next entry."""
    index: int
    """Index of its first message: the number of messages before it. May be UNKNOWN."""


Offsets = Mapping[str, TopicOffset]
"""Offsets by the full name of a topic or partition."""


def to_json(offsets: Offsets, since_ms: int | None = None) -> dict[str, Any]:
    """Encode for Spark's checkpoint; equal offsets give equal text."""
    topics = {
        topic: {
            "creation": str(each.creation_id),
            "at": str(each.at),
            "index": each.index,
        }
        for topic, each in sorted(offsets.items())
    }
    since = {} if since_ms is None else {"since_ms": since_ms}
    return {"version": OFFSET_VERSION, **since, "topics": topics}


def since_of(value: Mapping[str, Any]) -> int | None:
    """Return the time from which messages count, ms since 1970; None: all do. Raises BadOffset."""
    since = value.get("since_ms")
    if since is not None and not isinstance(since, int):
        raise BadOffset(f"the checkpoint has {since!r} for a time")
    return since


def from_json(value: Mapping[str, Any]) -> dict[str, TopicOffset]:
    """Raises BadOffset."""
    if value.get("version") != OFFSET_VERSION:
        raise BadOffset(
            f"the checkpoint has offsets of version {value.get('version')!r}, this release reads version "
            f"{OFFSET_VERSION}: run the release that wrote it, or begin with a new checkpoint"
        )
    try:
        return {
            topic: TopicOffset(int(each["creation"]), parse_message_id(each["at"]), int(each["index"]))
            for topic, each in value["topics"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadOffset(f"the checkpoint holds offsets that are none: {error!r}") from None


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """The messages of a topic in one ledger: from an entry on, with their indexes."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    first_index: int
    """Index of the first message in `first_entry_id`."""
    end_index: int
    """Index after the last message in `last_entry_id`."""
    entry_bytes: float
    """Average bytes of an entry."""

    @property
    def messages(self) -> int:
        return self.end_index - self.first_index

    @property
    def byte_length(self) -> float:
        return self.entry_bytes * (self.last_entry_id - self.first_entry_id + 1)


def shares(available: Sequence[int], limit: int) -> list[int]:
    """`limit` shared out among topics in proportion to what they have.

    Each topic with waiting messages gets a share, and no part of the limit is left while a topic has more
    waiting.
    """
    total = sum(available)
    if total <= limit:
        return list(available)
    given = [min(have, have * limit // total) for have in available]
    left = max(limit - sum(given), 0)
    for number, have in enumerate(available):
        if have and not given[number]:
            given[number] = 1
            left -= 1
    # The rounding remainder goes to the topics with the most.
    for number in sorted(range(len(available)), key=lambda each: -available[each]):
        if left <= 0:
            break
        more = min(left, available[number] - given[number])
        given[number] += more
        left -= more
    return given


def cut_by_bytes(runs: Sequence[LedgerRun], most: int) -> MessageAt | None:
    """The place behind the entries that make up `most` bytes, by ledgers' averages, at least one entry.

    None: all of them are less.
    """
    room = float(most)
    first = True
    for run in runs:
        if run.byte_length <= room:
            room -= run.byte_length
            first = False
            continue
        entries = int(room // run.entry_bytes) if run.entry_bytes else 0
        entries = max(entries, 1 if first else 0)
        at = MessageAt(run.ledger_id, run.first_entry_id + entries)
        return at if at.entry_id <= run.last_entry_id else None if run is runs[-1] else at
    return None
