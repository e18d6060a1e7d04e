"""Message counts of single entries that are stored in a topic's managed ledger."""

from __future__ import annotations

from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.wire.batch import parse_metadata
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger


async def messages_of(ledger: ManagedLedger, position: Position, read_bytes_max: int) -> int:
    """How many messages the entry at `position` holds; 1 when there is none. Raises StorageError."""
    run = ledger.read_cached(position, 1, read_bytes_max)
    if run is None:
        runs = (await ledger.read(position, 1, read_bytes_max)).runs
        run = runs[0] if runs else None
    if run is None or (run.ledger_id, run.first_entry_id) != position:
        return 1
    return run.messages


def last_in_view(ledger: ManagedLedger) -> tuple[Position, int] | None:
    """Position and batch index (-1 when it is no batch) of the last message of the compacted view.

    None if consumers get entries after the view, or without a view; -1:-1 for an empty view.
    """
    horizon = ledger.compaction.horizon
    if horizon is None:
        return None
    last = last_readable(ledger)
    if last.entry_id >= 0 and last > horizon:
        return None
    return ledger.compaction.view_end or (EARLIEST, -1)


def last_readable(ledger: ManagedLedger) -> Position:
    """Position of the last entry that consumers get: neither aborted nor after an open transaction."""
    transactions = ledger.transactions
    return ledger.read_limit() if transactions is None else transactions.last_readable()


async def last_message_id(ledger: ManagedLedger, read_bytes_max: int) -> tuple[Position, int]:
    """Position of the last entry that consumers get, and the batch index of its last message (-1 when it is
    no batch).

    Raises StorageError.
    """
    position = last_readable(ledger)
    if position.entry_id < 0:
        return position, -1
    result = await ledger.read(position, 1, read_bytes_max)
    if not result.runs:
        return position, -1
    metadata = parse_metadata(result.runs[0].entries[0])
    if not metadata.HasField("num_messages_in_batch"):
        return position, -1
    return position, metadata.num_messages_in_batch - 1
