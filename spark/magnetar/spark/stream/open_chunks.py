"""Chunked messages that are still incomplete at a position: their first chunks are needed after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from magnetar.common.errors import MagnetarError
from magnetar.common.obs.logs import get_logger
from magnetar.spark.message_ids import MessageAt
from magnetar.spark.source.earlier_entries import read_back
from magnetar.spark.source.range_reader import ReadContext
from magnetar.spark.source.reading_plan import EntryRange, TopicLedgers, earlier_entries

log = get_logger(__name__)

LOOKED_AT: Final = 64
"""Entries before the place: who sends a message in chunks sends them one after the other."""

LOOKED_AT_BYTES: Final = 16 << 20
"""Bytes of entries to look at: fewer entries where they are large, but at least LOOKED_AT_MIN."""
LOOKED_AT_MIN: Final = 4

_COLUMNS: Final = (
    "ledger_id",
    "entry_id",
    "batch_index",
    "producer_name",
    "chunk_uuid",
    "chunk_id",
    "chunk_total",
)


class SeenEntry(NamedTuple):
    """An entry, and of which message it is a chunk."""

    ledger_id: int
    entry_id: int
    producer_name: str | None
    uuid: str | None
    """None: it is no chunk."""
    number: int | None
    total: int | None


def first_needed(newest_first: Iterable[SeenEntry], looked_at: int = LOOKED_AT) -> MessageAt | None:
    """The first entry that belongs to a message whose last chunk is not among these; None: there is none."""
    ended: set[tuple[str | None, str]] = set()
    unfinished: dict[tuple[str | None, str], bool] = {}
    needed: MessageAt | None = None
    for seen, entry in enumerate(newest_first):
        if seen >= looked_at and all(unfinished.values()):
            break
        if entry.uuid is None:
            continue
        key = entry.producer_name, entry.uuid
        if key in ended:
            continue
        if entry.total is not None and entry.number == entry.total - 1:
            ended.add(key)
            continue
        if not unfinished.get(key, False):
            needed = MessageAt(entry.ledger_id, entry.entry_id)
            unfinished[key] = entry.number == 0
    return needed


def first_needed_before(topic: TopicLedgers, at: MessageAt) -> MessageAt:
    """`at`, or an earlier place that messages in chunks reach back to."""
    last = topic.ledgers[-1] if topic.ledgers else None
    entry_bytes = last.byte_length // max(last.entries, 1) if last is not None else 0
    looked_at = min(LOOKED_AT, max(LOOKED_AT_MIN, LOOKED_AT_BYTES // max(entry_bytes, 1)))
    before = earlier_entries(topic, EntryRange(at.ledger_id, at.entry_id, at.entry_id))
    context = ReadContext(service=topic.service, columns=_COLUMNS)
    try:
        return first_needed(_seen(read_back(context, topic.topic, topic.partition, before)), looked_at) or at
    except MagnetarError as error:
        log.warning("chunks not looked for", topic=topic.topic, at=str(at), error=str(error))
        return at


def _seen(tables: Iterable[Any]) -> Iterator[SeenEntry]:
    for table in tables:
        rows = list(zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True))
        for ledger_id, entry_id, batch_index, *chunk in reversed(rows):
            if batch_index <= 0:
                yield SeenEntry(ledger_id, entry_id, *chunk)
