"""Rebuilding a view of which a segment is damaged or lost, from the topic's own entries.

A view whose segments are complete up to one of them, together with all of the topic's entries from the first
position of that segment on, says the same as the whole view. So a run may begin there again if the topic
still has those entries, and replace that segment and all later ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from magnetar.common.naming.position import Position
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.compacted.view import View
from prometheus_client import Counter

REBUILT: Final = Counter(
    "magnetar_compacted_view_rebuilt_segments",
    "Damaged or lost segments of compacted views that a compaction replaced from the topic's entries.",
    registry=REGISTRY,
)


def rebuild_start(view: View, trimmed_until: Position, retain_null_key: bool) -> View | None:
    """Returns the view before its first damaged segment: a run that goes on from there replaces the rest.

    None if no segment is known to be damaged; if the topic's entries up to `trimmed_until` include some of
    that segment; if a chunked message begins before it and is incomplete; or if messages without a key were
    treated differently.
    """
    at = next((at for at, segment in enumerate(view.segments) if segment.damaged), None)
    if at is None or view.retain_null_key != retain_null_key:
        return None
    first = view.segments[at].first
    if trimmed_until >= first or any(each.positions[0] < first for each in view.pending):
        return None
    before = Position(first.ledger_id, first.entry_id - 1)
    return replace(view, horizon=before, segments=view.segments[:at], pending=())
