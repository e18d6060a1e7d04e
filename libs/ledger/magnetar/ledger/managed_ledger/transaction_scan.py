"""Finds the entries in transactions that a topic's records do not cover, when the topic is loaded."""

from __future__ import annotations

from typing import Final

from magnetar.common.errors import DataCorruption, EntryUnreadable
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.obs.logs import get_logger
from magnetar.common.wire.batch import parse_metadata
from magnetar.ledger.cold.cold_reader import ObjectsDamaged
from magnetar.ledger.ledger_store import RUN_TXN, Run
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from magnetar.ledger.managed_ledger.span_reads import SpanReads
from magnetar.ledger.managed_ledger.transaction_state import TransactionState

log = get_logger(__name__)

_READ_BYTES: Final = 1 << 20


async def scan_transactions(reads: SpanReads, spans: LedgerSpans, state: TransactionState) -> None:
    """Adds the runs after `state.scan_from` to the state. Raises StorageError, MetadataError.

    An unreadable entry is left out: it cannot be delivered either.
    """
    after = state.scan_from
    for span in spans.spans:
        if span.last_position > after:
            first = after.entry_id + 1 if span.ref.id == after.ledger_id else 0
            await _scan(reads, span, first, state)
    if spans.spans:
        state.trimmed(spans.spans[0].ref.id)


async def _scan(reads: SpanReads, span: LedgerSpan, first: int, state: TransactionState) -> None:
    while first < span.entries:
        try:
            runs = await reads.read(span, first, span.entries - 1, _READ_BYTES)
        except ObjectsDamaged:
            raise  # it may come back
        except EntryUnreadable as error:
            log.warning("an entry was skipped in the search for transactions", error=str(error))
            first += 1
            continue
        for run in runs:
            if run.flags & RUN_TXN:
                state.found(_transaction_of(run), run)
        first = runs[-1].last_entry_id + 1


def _transaction_of(run: Run) -> TxnId:
    """Returns the transaction of a run; runs from objects have it only in the metadata of their entries."""
    if run.txn is not None:
        return run.txn
    metadata = parse_metadata(run.entries[0])
    if not metadata.HasField("txnid_most_bits"):
        raise DataCorruption(f"entry {run.ledger_id}:{run.first_entry_id} does not name its transaction")
    return TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits)
