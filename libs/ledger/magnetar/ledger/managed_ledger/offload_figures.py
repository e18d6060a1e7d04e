"""Offload figures of a topic's ledgers, as known to its owner.

Jobs may offload ledgers through any broker; the owner refreshes its topics' keys periodically, so these
figures may be as old as magnetarOffloadRefreshIntervalSeconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan


@dataclass(slots=True)
class OffloadFigures:
    """Figures of one topic, or the sum over many."""

    waiting: int = 0
    """Ledgers waiting for a job."""
    running: int = 0
    complete: int = 0
    """Ledgers with complete objects, including those that left bookies."""
    left: int = 0
    """Ledgers that only the objects have."""
    byte_length: int = 0
    """Stored bytes of the complete ledgers."""
    object_bytes: int = 0
    """Bytes of the objects of the complete ledgers."""
    last_ledger_id: int = 0
    """The most recently completed ledger; 0 without one."""
    last_completed_ms: int = 0

    def add(self, spans: Iterable[LedgerSpan]) -> None:
        """Adds the figures of these ledgers."""
        for span in spans:
            offload = span.offload
            if offload is None:
                continue
            if offload.state == Offload.COMPLETE:
                self.complete += 1
                self.left += offload.left_bookies
                self.byte_length += span.byte_length
                self.object_bytes += offload.object_bytes
                if offload.completed_ms >= self.last_completed_ms:
                    self.last_ledger_id, self.last_completed_ms = span.ref.id, offload.completed_ms
            elif offload.state == Offload.RUNNING:
                self.running += 1
            elif offload.state == Offload.WANTED:
                self.waiting += 1

    @property
    def under_way(self) -> bool:
        """Whether ledgers wait or run: an attempt at one of them may have failed."""
        return bool(self.waiting or self.running)


def figures_of(spans: Iterable[LedgerSpan]) -> OffloadFigures:
    """Return the figures of one topic."""
    figures = OffloadFigures()
    figures.add(spans)
    return figures


def is_offloaded(span: LedgerSpan) -> bool:
    """Return whether complete objects have the ledger's entries."""
    return span.offload is not None and span.offload.complete


def offloaded_bytes(spans: Iterable[LedgerSpan]) -> int:
    """Bytes of the offloaded ledgers, as they were stored."""
    return sum([span.byte_length for span in spans if is_offloaded(span)])
