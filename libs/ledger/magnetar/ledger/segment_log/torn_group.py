"""Possible content of a torn last group, and the consequences of its loss.

One group is in flight at a time, and it is answered once it is synced. So a torn group that no later one
records as durable was never answered, unless the disk lost synced data. An emptied disk, or damage among
durable groups, is worse: confirmed entries may certainly be missing.

The group's directory, if intact, lists each record. Then nothing is missing of ledgers that it does not list,
nor of those whose records are all intact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.codec_v1 import DirectoryEntry, EncodedRecord
from magnetar.ledger.segment_log.scan import GroupAt


@dataclass(frozen=True, slots=True)
class Torn:
    """Data loss limited to a last group that is not known to have been durable."""

    ledgers: frozenset[LedgerRef] | None
    """The ledgers of lost records in it; None: any."""

    def joined(self, other: Torn) -> Torn:
        """Returns the union of both."""
        if self.ledgers is None or other.ledgers is None:
            return Torn(None)
        return Torn(self.ledgers | other.ledgers)


class OnDoubt(Protocol):
    """Called with the reason why entries or marks may be lost; without `torn`, any record of any ledger.
    Blocks until that is durably recorded; raises OSError.
    """

    def __call__(self, reason: str, torn: Torn | None = None) -> None: ...


Directory: TypeAlias = Callable[[GroupAt], "list[DirectoryEntry] | None"]


def torn_by(groups: Collection[GroupAt], directory: Directory, kept: Collection[EncodedRecord]) -> Torn:
    """Returns the loss in groups with intact headers and nothing unexplained between them."""
    sound = Counter((each.ledger_id, each.ledger_key, each.first_entry_id, each.entry_count) for each in kept)
    lost: set[LedgerRef] = set()
    for group in groups:
        lines = directory(group)
        if lines is None:
            return Torn(None)
        for line in lines:
            name = line.ledger_id, line.ledger_key, line.first_entry_id, line.entry_count
            if not sound[name]:
                lost.add(LedgerRef(line.ledger_id, line.ledger_key))
            sound[name] -= 1
    return Torn(frozenset(lost))
