"""Rebuilding of deduplication state from the entries after its snapshot, while a topic is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from magnetar.broker.topics.publish.deduplication import UNCOUNTED, DeduplicationState, counted_ids
from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import Position
from magnetar.common.wire.batch import parse_metadata
from magnetar.ledger.ledger_store import RUN_MARKER, Run
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger

_READ_ENTRIES: Final = 1_000
_READ_BYTES: Final = 1 << 20


async def replay(ledger: ManagedLedger, state: DeduplicationState) -> int:
    """Adds the entries after the state's position to it; returns how many there were. Raises StorageError.

    Entries of open transactions are added as such, those of aborted ones are not, so everything stored is
    read, also what may not be delivered yet.
    """
    entries = 0
    while (at := ledger.next_stored(state.position)) is not None:
        result = await ledger.read(at, _READ_ENTRIES, _READ_BYTES, uncommitted=True)
        for run in result.runs:
            _add(run, ledger, state)
            entries += len(run.entries)
        state.position = Position(result.next.ledger_id, result.next.entry_id - 1)
    return entries


def _add(run: Run, ledger: ManagedLedger, state: DeduplicationState) -> None:
    if run.flags & RUN_MARKER:
        return
    txn, transactions = run.txn, ledger.transactions
    if txn is None or transactions is None:
        for name, _, highest in _counted(run):
            state.replay(name, highest, run.publish_time_ms)
    elif txn in transactions.open:
        for name, first, highest in _counted(run):
            state.replay_open(name, txn, first, highest, run.publish_time_ms)
    elif not transactions.is_aborted(run.ledger_id, run.first_entry_id):
        for name, _, highest in _counted(run):
            state.replay(name, highest, run.publish_time_ms)


def _counted(run: Run) -> Iterator[tuple[str, int, int]]:
    """Yields (producer name, first id, highest id) of the entries that count."""
    for entry in run.entries:
        try:
            metadata = parse_metadata(entry)
        except DataCorruption:
            continue  # stored in the client's format: not a message that a client could resend
        first, highest = counted_ids(metadata)
        if first != UNCOUNTED:
            yield metadata.producer_name, first, highest
