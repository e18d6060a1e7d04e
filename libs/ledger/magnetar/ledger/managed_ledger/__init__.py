"""The managed ledger: the ledgers of one topic, its cursors and its entry cache."""

from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext, ManagedLedgerListener, ReadResult
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.deduplication import DeduplicationSnapshot, ProducerSequence
from magnetar.ledger.managed_ledger.directory import (
    create_managed_ledgers,
    delete_managed_ledger,
    list_managed_ledgers,
    managed_ledger_exists,
)
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from magnetar.ledger.managed_ledger.intents import finish_intents
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.topic_loading import open_managed_ledger

__all__ = [
    "Cursor",
    "DeduplicationSnapshot",
    "EntryCache",
    "ManagedLedger",
    "ManagedLedgerConfig",
    "ManagedLedgerContext",
    "ManagedLedgerListener",
    "ProducerSequence",
    "ReadResult",
    "create_managed_ledgers",
    "delete_managed_ledger",
    "finish_intents",
    "list_managed_ledgers",
    "managed_ledger_exists",
    "open_managed_ledger",
]
