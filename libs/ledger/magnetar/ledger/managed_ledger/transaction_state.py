"""Which transactions are open in a topic, and which of its entries were aborted. Pure state, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.common.naming.position import Position


@dataclass(slots=True)
class OpenTransaction:
    """A transaction with messages or acknowledgements in a topic."""

    began_ms: int
    """When the topic first had something of it, ms since 1970 UTC; 0: not known."""
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    """Its confirmed entries in order, as (ledger id, first, last)."""
    unconfirmed: int = 0
    """Number of its runs that are neither confirmed nor refused."""
    pending_acks: int = 0
    """Number of cursors in which it has pending acknowledgements."""

    @property
    def first_position(self) -> Position | None:
        """Its first confirmed entry; None without any."""
        if not self.ranges:
            return None
        ledger_id, first, _ = self.ranges[0]
        return Position(ledger_id, first)

    @property
    def entries(self) -> int:
        """Number of its confirmed entries."""
        return sum(last - first + 1 for _, first, last in self.ranges)
