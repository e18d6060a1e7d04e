"""The metadata value of a topic's compacted view."""

from __future__ import annotations

from magnetar.common.errors import DataCorruption
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore, Versioned
from magnetar.common.metadata.values import COMPACTED, CompactedView, TopicHead, decode
from magnetar.common.naming.position import Position
from magnetar.ledger.compacted.figures import ViewEnd
from magnetar.ledger.compacted.view import PendingGroup, View, ViewSegment
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.topic_head import read_ref, ref_value


async def find_view(metadata: MetadataStore, keys: Keys, head: TopicHead) -> Versioned | None:
    """Returns a topic's stored view; None without one. Reads nothing for topics without compaction. Raises
    MetadataError.
    """
    if not head.format.incompatible_features & COMPACTED:
        return None
    return await metadata.get(keys.compacted_view(head.creation_id))


async def load_view(ctx: ManagedLedgerContext, topic: str, head: TopicHead) -> View | None:
    """Loads a topic's view; None without one. Raises DataCorruption if the head says that there is a view and
    it is missing, UnsupportedFormat, MetadataError.
    """
    found = await find_view(ctx.metadata, ctx.keys, head)
    if found is not None:
        return decode_view(ctx, topic, found.value)
    if head.format.incompatible_features & COMPACTED:
        raise DataCorruption(
            f"the compacted view of {topic} is missing in metadata. The topic is not loaded with an empty "
            "view; restore metadata, or delete the topic"
        )
    return None


def ledgers_of(value: CompactedView) -> list[LedgerRef]:
    """Returns every ledger that a view names."""
    refs = [read_ref(segment.ref) for segment in value.segments]
    return [*refs, read_ref(value.dead_sets)] if value.HasField("dead_sets") else refs


def encode_view(view: View, now_ms: int) -> CompactedView:
    """Returns the value of a view."""
    value = CompactedView(
        horizon=_position(view.horizon),
        hash_key=view.hash_key,
        runs=view.runs,
        retain_null_key=view.retain_null_key,
        merge_credit=view.merge_credit,
        created_ms=now_ms,
    )
    for segment in view.segments:
        value.segments.add(
            ref=ref_value(segment.ref),
            first=_position(segment.first),
            last=_position(segment.last),
            entries=segment.entries,
            keyed=segment.keyed,
            unkeyed=segment.unkeyed,
            byte_length=segment.byte_length,
            stored_bytes=segment.stored_bytes,
            dead=segment.dead,
            dead_set=segment.dead_set,
            dead_first_page=segment.dead_first_page,
            dead_pages=segment.dead_pages,
        )
    if view.end is not None:
        value.last.position.CopyFrom(_position(view.end.position))
        value.last.batch_index = view.end.batch_index
    if view.dead_sets is not None:
        value.dead_sets.CopyFrom(ref_value(view.dead_sets))
    for group in view.pending:
        value.pending.add(
            group_hash=group.group_hash,
            key_hash=group.key_hash,
            positions=[_position(each) for each in group.positions],
        )
    return value


def decode_view(ctx: ManagedLedgerContext, topic: str, data: bytes) -> View:
    """Returns the view of a stored value; reads nothing. Raises DataCorruption, UnsupportedFormat."""
    value = decode(CompactedView, data)
    return View(
        topic,
        _read_position(value.horizon),
        tuple([_segment(segment) for segment in value.segments]),
        ViewEnd(_read_position(value.last.position), value.last.batch_index)
        if value.HasField("last")
        else None,
        value.hash_key,
        ctx.ledgers.open,
        ctx.pages,
        read_ref(value.dead_sets) if value.HasField("dead_sets") else None,
        tuple(
            [
                PendingGroup(
                    group.group_hash,
                    group.key_hash,
                    tuple([_read_position(each) for each in group.positions]),
                )
                for group in value.pending
            ]
        ),
        value.runs,
        value.retain_null_key,
        value.merge_credit,
    )


def _segment(value: CompactedView.Segment) -> ViewSegment:
    return ViewSegment(
        read_ref(value.ref),
        _read_position(value.first),
        _read_position(value.last),
        value.entries,
        value.keyed,
        value.unkeyed,
        value.byte_length,
        value.stored_bytes,
        value.dead,
        value.dead_set,
        value.dead_first_page,
        value.dead_pages,
    )


def _position(position: Position) -> CompactedView.Position:
    return CompactedView.Position(ledger_id=position.ledger_id, entry_id=position.entry_id)


def _read_position(value: CompactedView.Position) -> Position:
    return Position(value.ledger_id, value.entry_id)
