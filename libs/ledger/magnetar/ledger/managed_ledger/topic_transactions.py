"""The transactions of a topic: which are open, which entries were aborted, and how far may be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger.cursor_ledger import Done
from pyroaring import BitMap


class TopicTransactions(Protocol):
    """Transactions of one topic."""

    @property
    def open(self) -> Mapping[TxnId, object]: ...

    @property
    def aborted(self) -> Mapping[int, BitMap]: ...

    def accept(self, txn: TxnId) -> None: ...

    def is_aborted(self, ledger_id: int, entry_id: int) -> bool: ...

    def last_readable(self) -> Position: ...

    def end(self, txn: TxnId, action: Action, low_watermark: int, done: Done) -> None: ...
