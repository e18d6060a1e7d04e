"""Finds segments of compacted views whose ledgers do not exist any more."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import CompactedView, TopicHead, decode
from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.view_record import ledgers_of


@dataclass(frozen=True, slots=True)
class LostSegment:
    """A ledger that a view names and that is gone."""

    topic: str
    """Full name; empty if no topic has the view."""
    ledger_id: int
    first: Position | None
    """First and last position of the segment's entries; None for the ledger of dead sets."""
    last: Position | None
    entries: int


async def lost_segments(metadata: MetadataStore, keys: Keys) -> list[LostSegment]:
    """Returns the lost segments of all topics, by view. Reads the metadata of all views and of their ledgers,
    and with a loss that of all topics. Raises MetadataError.
    """
    lost: list[tuple[int, CompactedView, int]] = []
    for item in (await metadata.children(keys.compacted_views_prefix)).items:
        missing = await _missing(metadata, keys, decode(CompactedView, item.value))
        # A run may have replaced the view, and deleted its ledgers, since it was listed.
        now = await metadata.get(item.key) if missing else None
        if now is not None:
            view = decode(CompactedView, now.value)
            creation_id = keys.creation_id_of_view(item.key)
            lost += [(creation_id, view, each) for each in await _missing(metadata, keys, view)]
    topics: dict[int, str] = {}
    if lost:
        for item in (await metadata.children(keys.topic_heads_prefix())).items:
            topics[decode(TopicHead, item.value).creation_id] = keys.topic_of_head(item.key).full
    return [_described(topics.get(creation_id, ""), view, ledger) for creation_id, view, ledger in lost]


async def _missing(metadata: MetadataStore, keys: Keys, view: CompactedView) -> list[int]:
    return [ref.id for ref in ledgers_of(view) if await metadata.get(keys.ledger(ref.id)) is None]


def _described(topic: str, view: CompactedView, ledger_id: int) -> LostSegment:
    for segment in view.segments:
        if segment.ref.id == ledger_id:
            first = Position(segment.first.ledger_id, segment.first.entry_id)
            last = Position(segment.last.ledger_id, segment.last.entry_id)
            return LostSegment(topic, ledger_id, first, last, segment.entries)
    return LostSegment(topic, ledger_id, None, None, 0)
