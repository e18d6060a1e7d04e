"""Possible content of a torn last group, and the meaning of its loss.

One group is in flight at a time, and it is answered once it is synced. So a torn group that no later one
names durable was never answered, unless the disk lost what it had synced. That is another doubt than an
emptied disk or damage among durable groups: there confirmed entries certainly may be missing.

The group's directory, if it is sound, names each record. Then nothing is missing of ledgers that it does not
name, nor of those whose records are all sound.
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
    """All that may be missing was in a last group, which nothing says was durable."""

    ledgers: frozenset[LedgerRef] | None
    """Those it named with records that are lost; None: any."""

    def joined(self, other: Torn) -> Torn:
        """Both."""
        if self.ledgers is None or other.ledgers is None:
            return Torn(None)
        return Torn(self.ledgers | other.ledgers)


class OnDoubt(Protocol):
    """Told why entries or marks may be lost; without `torn` it may be any of any ledger. Blocks until that is
    durably noted; raises OSError."""

    def __call__(self, reason: str, torn: Torn | None = None) -> None: ...


Directory: TypeAlias = Callable[[GroupAt], "list[DirectoryEntry] | None"]


def torn_by(groups: Collection[GroupAt], directory: Directory, kept: Collection[EncodedRecord]) -> Torn:
    """Loss in groups with sound headers and nothing unexplained between them."""
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
