"""One cursor: a named place in a topic, with what was acknowledged beyond it."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.common.naming.position import Position
from magnetar.ledger.managed_ledger.ack_state import AckDelta, AckState
from magnetar.ledger.managed_ledger.cursor_records import CursorSnapshot
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpans


class Cursor(AckState):
    """A durable or non-durable cursor; made and written down by its managed ledger.

    `durable_mark` is the mark-delete position that is certainly on disk: trimming goes by it, never by what
    is only in memory. `cursor_id` is unique in the topic and never used again, `sequence` that of its last
    change record.
    """

    __slots__ = (
        "advanced_ms",
        "cursor_id",
        "durable_acked",
        "durable_mark",
        "name",
        "on_dirty",
        "properties",
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
        """When `durable_mark` last moved, ms since 1970 UTC; 0: not since the load."""
        self.on_dirty: Callable[[Cursor], None] | None = None
        self.durable_acked = self.acked_entries
        """`acked_entries` of what is certainly on disk."""

    @property
    def dirty(self) -> bool:
        """True when a durable cursor has changes that no flush has taken yet."""
        return self.durable and self._dirty

    @property
    def acked_entries(self) -> int:
        """Entries that are acknowledged wholly, those before the topic's load or trimmed since included."""
        return self._spans.total - self.backlog()

    @property
    def acks_at_risk(self) -> int:
        """Entries that are acknowledged and come back if this process ends now; of a durable cursor."""
        return max(0, self.acked_entries - self.durable_acked) if self.durable else 0

    def snapshot(self, acks: AckDelta) -> CursorSnapshot:
        """This cursor with `acks` as its state, for records."""
        return CursorSnapshot(self.cursor_id, self.sequence, self.name, self.properties, acks)

    def _on_dirty(self) -> None:
        if self.on_dirty is not None:
            self.on_dirty(self)
