"""A writer's changes of its ledger's metadata: gaps, closing, and fencing.

A gap records that a bookie of a fragment lacks entries. While the ledger is open and no replacement is
available, the gap is open too: it ends at `OPEN_GAP_END`, which covers all later entries. The next ensemble
change, the bookie's return or the closing sets its end.
"""

from __future__ import annotations

from typing import Final

from magnetar.common.metadata.values import LedgerMetadata

OPEN_GAP_END: Final = 2**63 - 1

GAPS_MAX: Final = 1_000
FRAGMENTS_MAX: Final = 1_000
"""Maximum fragments, above which the ledger is replaced by a new one: unbounded data never lives in one key.
"""


def add_gap(value: LedgerMetadata, bookie_id: str, first: int, last: int) -> None:
    """Records that a bookie lacks entries; joined with an adjacent gap of the same bookie."""
    for gap in value.gaps:
        if gap.bookie_id == bookie_id and first <= gap.last_entry_id + 1 and gap.first_entry_id <= last + 1:
            gap.first_entry_id = min(first, gap.first_entry_id)
            gap.last_entry_id = max(last, gap.last_entry_id)
            return
    value.gaps.add(bookie_id=bookie_id, first_entry_id=first, last_entry_id=last)


def end_gaps(value: LedgerMetadata, last: int, bookie_id: str | None = None) -> None:
    """Cuts the gaps, of all bookies or of one, at an entry: the bookie has left the ensemble, or the ledger
    ends there.
    """
    kept = []
    for gap in value.gaps:
        if bookie_id is None or gap.bookie_id == bookie_id:
            if last < 0 or gap.first_entry_id > last:
                continue
            gap.last_entry_id = min(gap.last_entry_id, last)
        kept.append(LedgerMetadata.Gap.FromString(gap.SerializeToString()))
    del value.gaps[:]
    value.gaps.extend(kept)


def too_long(value: LedgerMetadata) -> bool:
    """Returns whether the ledger has so many fragments that it should be replaced."""
    return len(value.fragments) > FRAGMENTS_MAX or len(value.gaps) > GAPS_MAX
