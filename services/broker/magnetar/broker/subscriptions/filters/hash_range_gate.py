"""Hash ranges of an Exclusive consumer: it gets only the entries whose key hashes fall into them.

Other entries stay in the backlog, unacknowledged (Apache Pulsar 4.0: readers that divide a topic by key).
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.dispatch.key_shared.sticky_key import slots_of
from magnetar.ledger.ledger_store import RUN_MARKER, Run
from pyroaring import BitMap


class HashRangeGate:
    """Lets the entries of some slots pass. Implements entry_gate.EntryGate."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Takes `ranges` of slots, both ends inclusive."""
        self._ranges = ranges

    def hold(self, run: Run) -> Sequence[Run]:
        if run.flags & RUN_MARKER:
            return [run]
        parts: list[Run] = []
        start: int | None = None
        for entry_id, slot in enumerate(slots_of(run.entries), run.first_entry_id):
            if any(first <= slot <= last for first, last in self._ranges):
                start = entry_id if start is None else start
            elif start is not None:
                parts.append(run.slice(start, entry_id - 1))
                start = None
        if start is not None:
            parts.append(run.slice(start, run.last_entry_id))
        return parts

    def kept(self, ledger_id: int) -> BitMap | None:
        return None

    def clear(self) -> None:
        """Does nothing: the gate has no state."""
