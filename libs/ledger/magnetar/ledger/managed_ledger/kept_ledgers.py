"""The reasons why a topic's ledgers are kept: who needs entries, retention, and what is being deleted.

`ManagedLedger.trim` deletes by what is here, and `kept_ledgers` explains it ledger by ledger, so that the two
cannot differ. Pure functions over the state of a topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from magnetar.common.naming.position import LATEST, Position
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan
from magnetar.ledger.managed_ledger.topic_compaction import TopicCompaction
from magnetar.ledger.managed_ledger.topic_cursors import TopicCursors
from magnetar.ledger.managed_ledger.topic_deduplication import TopicDeduplication
from magnetar.ledger.managed_ledger.topic_transactions import TopicTransactions
from magnetar.ledger.managed_ledger.trimming import Keeper, Retention, kept_by


class HolderKind(StrEnum):
    """Kinds of parties that need entries."""

    SUBSCRIPTION = "subscription"
    DEDUPLICATION = "deduplication"
    COMPACTION = "compaction"
    TRANSACTIONS = "transactions"


@dataclass(frozen=True, slots=True)
class Holder:
    """A party that needs the entries after a position."""

    kind: HolderKind
    position: Position
    name: str = ""
    """The subscription; empty for other kinds."""


def holders_of(
    cursors: TopicCursors,
    deduplication: TopicDeduplication,
    compaction: TopicCompaction | None,
    transactions: TopicTransactions | None,
) -> list[Holder]:
    """Returns everyone who needs entries of a topic, subscriptions with the positions that are on disk."""
    found = [Holder(HolderKind.SUBSCRIPTION, position, name) for name, position in cursors.needed()]
    for kind, part in ((HolderKind.DEDUPLICATION, deduplication), (HolderKind.COMPACTION, compaction)):
        position = None if part is None else part.holds_back(None)
        if position is not None and position < LATEST:
            found.append(Holder(kind, position))
    if transactions is not None:
        # Asked with what the others need: it stores its own state only when that is what is waited for.
        transactions.holds_back(min((each.position for each in found), default=None))
        found.append(Holder(HolderKind.TRANSACTIONS, transactions.record.durable_mark))
    return found


@dataclass(frozen=True, slots=True)
class Kept:
    """The state that keeps ledgers of a topic now."""

    holders: Sequence[Holder]
    retention: Retention
    deleting: Sequence[LedgerSpan]
    """Ledgers that are off the list and wait for their deletion."""
    suspended: bool
    """Whether nothing is deleted because metadata was restored and not released yet."""

    @property
    def needed(self) -> Position | None:
        """The position that trimming must not pass; None when nothing is needed."""
        return min((each.position for each in self.holders), default=None)


@dataclass(frozen=True, slots=True)
class KeptLedger:
    """A ledger of a topic, and what keeps it."""

    span: LedgerSpan
    keeper: Keeper | None
    """None: it is deleted at the next trim, unless `behind` or trimming is suspended."""
    holders: Sequence[Holder] = ()
    """Those that need entries of it, the slowest first; only with Keeper.NEEDED."""
    behind: int = 0
    """The ledger before it that is kept, which trimming does not pass; 0 for none, or when it is kept
    itself.
    """


def kept_ledgers(spans: Sequence[LedgerSpan], kept: Kept, now_ms: int) -> list[KeptLedger]:
    """Returns what keeps each ledger of a topic; `now_ms` is the wall clock.

    The first ones without a keeper are those that `trimmable` counts.
    """
    found: list[KeptLedger] = []
    needed = kept.needed
    left = sum(span.byte_length for span in spans)
    holders = sorted(kept.holders, key=lambda each: each.position)
    first_kept = 0
    for span in spans:
        left -= span.byte_length
        keeper = kept_by(span, left, needed, kept.retention, now_ms)
        need = [each for each in holders if each.position < span.last_position]
        if keeper is not Keeper.NEEDED:
            need = []
        found.append(KeptLedger(span, keeper, need, first_kept if keeper is None else 0))
        if keeper is not None and not first_kept:
            first_kept = span.ref.id
    return found
