"""A cursor: a named position in a topic with its acknowledgements."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.ack_state import AckDelta, AckState
from magnetar.ledger.managed_ledger.cursor_records import CursorSnapshot
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpans


class Cursor(AckState):
    """A durable or non-durable cursor; created and persisted by its managed ledger.

    `durable_mark` is the mark-delete position known to be on disk: trimming uses it, never the position in
    memory. `cursor_id` is unique in the topic and never reused; `sequence` is the number of its last change
    record.
    """

    __slots__ = (
        "advanced_ms",
        "cursor_id",
        "durable_acked",
        "durable_mark",
        "name",
        "on_dirty",
        "properties",
        "reads_view",
        "sequence",
    )

    def __init__(
        self,
        name: str,
        spans: LedgerSpans,
        mark_delete: Position,
        *,
        durable: bool,
        cursor_id: int = 0,
        sequence: int = 0,
        properties: dict[str, str] | None = None,
    ) -> None:
        super().__init__(spans, mark_delete, durable=durable)
        self.name = name
        self.cursor_id = cursor_id
        self.sequence = sequence
        self.properties = properties or {}
        self.durable_mark = mark_delete
        self.advanced_ms = 0
        """Time of the last advance of `durable_mark`, ms since 1970 UTC; 0: none since the load."""
        self.reads_view = False
        """Whether its consumer reads the compacted view, so that positions before the first ledger count."""
        self.on_dirty: Callable[[Cursor], None] | None = None
        self.durable_acked = self.acked_entries
        """The durable part of `acked_entries`."""

    @property
    def dirty(self) -> bool:
        """Whether a durable cursor has changes that no flush has included yet."""
        return self.durable and self._dirty

    @property
    def acked_entries(self) -> int:
        """Number of wholly acknowledged entries, including those before the load or trimmed since."""
        return self._spans.total - self.backlog()

    @property
    def acks_at_risk(self) -> int:
        """Number of acknowledged entries that would be redelivered if this process ended now; for a durable
        cursor.
        """
        return max(0, self.acked_entries - self.durable_acked) if self.durable else 0

    def snapshot(self, acks: AckDelta) -> CursorSnapshot:
        """Returns a snapshot of this cursor with `acks` as its state."""
        return CursorSnapshot(self.cursor_id, self.sequence, self.name, self.properties, acks)

    def _on_dirty(self) -> None:
        if self.on_dirty is not None:
            self.on_dirty(self)
