"""Finds the entries in transactions that a topic's records do not cover, when the topic is loaded."""

from __future__ import annotations

from typing import Final

from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import Position
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.batch import parse_metadata
from magnetar.ledger.ledger_store import RUN_TXN, Run
from magnetar.ledger.managed_ledger import storage_reads
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpans
from magnetar.ledger.managed_ledger.span_reads import SpanReads
from magnetar.ledger.managed_ledger.transaction_state import TransactionState

_READ_ENTRIES: Final = 10_000
_READ_BYTES: Final = 1 << 20


async def scan_transactions(reads: SpanReads, spans: LedgerSpans, state: TransactionState) -> None:
    """Adds the runs after `state.scan_from` to the state. Raises StorageError, MetadataError.

    An entry that is damaged on its only copy is left out: it is never delivered. One that another copy may
    bring back is an error, because it could belong to an open or aborted transaction.
    """
    if not spans.spans:
        return
    last = spans.spans[-1].last_position
    at = Position(state.scan_from.ledger_id, state.scan_from.entry_id + 1)
    while at <= last:
        result = await storage_reads.read(reads, spans, at, last, _READ_ENTRIES, _READ_BYTES)
        if not result.runs and not result.unreadable:
            break
        for run in result.runs:
            if run.flags & RUN_TXN:
                state.found(_transaction_of(run), run)
        at = result.next
    state.trimmed(spans.spans[0].ref.id)


def _transaction_of(run: Run) -> TxnId:
    """Returns the transaction of a run; runs from objects have it only in the metadata of their entries."""
    if run.txn is not None:
        return run.txn
    metadata = parse_metadata(run.entries[0])
    if not metadata.HasField("txnid_most_bits"):
        raise DataCorruption(f"entry {run.ledger_id}:{run.first_entry_id} does not name its transaction")
    return TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits)
