"""The open transactions that hold a topic's readers back, for statistics and explanations."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from magnetar.broker.dispatch.eligibility import Code, reason
from magnetar.broker.reason import Reason
from magnetar.common.naming.txn_id import TxnId
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.transaction_state import OpenTransaction

SHOWN_MAX: Final = 20
"""Maximum transactions that acknowledge messages and are named."""


def blocking(ledger: ManagedLedger) -> tuple[TxnId, OpenTransaction] | None:
    """Returns the open transaction whose first message is the first entry that may not be read; None without
    one. Transactions are in the order in which they began here, so it is found early.
    """
    if ledger.transactions is None:
        return None
    first = ledger.next_stored(ledger.read_limit())
    if first is None:
        return None
    opened = ledger.transactions.open.items()
    return next(((txn, each) for txn, each in opened if each.first_position == first), None)


def blocker(ledger: ManagedLedger) -> str | None:
    """Describes the open transaction behind which nothing may be read; None without one."""
    found = blocking(ledger)
    return None if found is None else _described(ledger, *found)


def blocked_s(ledger: ManagedLedger) -> float:
    """Returns the age in seconds of the open transaction that readers wait for; 0 without one, or when its
    begin is not known.
    """
    found = blocking(ledger)
    return 0.0 if found is None else _age_ms(ledger, found[1]) / 1000


def open_transactions(ledger: ManagedLedger, cursor: Cursor) -> list[Reason]:
    """Returns the open transactions that keep messages from a subscription: the one whose first message ends
    what may be read, and those that acknowledge messages in it, up to SHOWN_MAX.
    """
    transactions = ledger.transactions
    if transactions is None:
        return []
    found: list[Reason] = []
    limit = blocking(ledger)
    if limit is not None:
        txn, opened = limit
        first = str(opened.first_position)
        text = f"waits for {_described(ledger, txn, opened)}: nothing from its message {first} on may be read"
        found.append(_reason(txn, opened, text, firstMessage=first))
    pending = transactions.pending(cursor)
    for txn, acked in islice(({} if pending is None else pending.transactions).items(), SHOWN_MAX):
        described = _described(ledger, txn, transactions.open.get(txn))
        entries = sum(map(len, acked.individual.values())) + len(acked.batches)
        text = f"waits for {described}, in which messages are acknowledged"
        found.append(_reason(txn, transactions.open.get(txn), text, acknowledgedEntries=entries))
    return found


def _reason(txn: TxnId, opened: OpenTransaction | None, text: str, **data: Any) -> Reason:
    since_ms = 0 if opened is None else opened.began_ms
    return reason(Code.TRANSACTION_OPEN, text, since_ms=since_ms, transaction=str(txn), **data)


def _described(ledger: ManagedLedger, txn: TxnId, opened: OpenTransaction | None) -> str:
    if opened is None or not opened.began_ms:
        return f"transaction {txn}"
    age_s = _age_ms(ledger, opened) // 1000
    return f"transaction {txn}, open for {age_s} s"


def _age_ms(ledger: ManagedLedger, opened: OpenTransaction) -> int:
    return max(0, ledger.now_ms() - opened.began_ms) if opened.began_ms else 0
