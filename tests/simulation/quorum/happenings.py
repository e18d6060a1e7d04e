"""What runs count: trouble that really came about, by name."""

from __future__ import annotations

from typing import Final

LATE_COMMITS: Final = "commits that landed late"
HELD_BACK: Final = "appends held back"
COPIES_BESIDE: Final = "copies beside a writer"
MOVED_LATE: Final = "moves that outlast a grace"
RACED_IDS: Final = "races for a ledger id"
REFUSED_AT_A_FENCE: Final = "refusals during a fence"
REPAIRS_COMPACTED: Final = "compactions of repairs"

RARER_KINDS: Final = (
    LATE_COMMITS,
    HELD_BACK,
    COPIES_BESIDE,
    MOVED_LATE,
    RACED_IDS,
    REFUSED_AT_A_FENCE,
    REPAIRS_COMPACTED,
)
