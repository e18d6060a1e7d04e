"""Acknowledgements in transactions, as far as consumers and delivery are concerned.

The topic's transactions keep what is pending. A consumer no longer holds what it acknowledged in a
transaction, so limits and a disconnection no longer concern it. After an abort it is delivered again.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.broker.subscriptions.consumers.holders import holder_of
from magnetar.broker.subscriptions.entries.entry_source import EntrySource
from magnetar.broker.subscriptions.filters.withheld_acks import WithheldAcks
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from pyroaring import BitMap


def take_from_holders(
    consumers: Iterable[Consumer], likely: Consumer, acked: PendingAck, cursor: Cursor, withheld: WithheldAcks
) -> None:
    """Removes what was acknowledged in a transaction from the consumers that hold it, `likely` first."""
    for ledger_id, entry_ids in acked.individual.items():
        for entry_id in entry_ids:
            holder = holder_of(consumers, likely, ledger_id, entry_id)
            if holder is not None:
                holder.pending.remove(ledger_id, entry_id)
    for (ledger_id, entry_id), (_, size) in acked.batches.items():
        holder = holder_of(consumers, likely, ledger_id, entry_id)
        if holder is None:
            continue
        taken = cursor.batch_acked(ledger_id, entry_id) | withheld.bits(ledger_id, entry_id)
        left = size - (taken & (1 << size) - 1).bit_count()
        if left > 0:
            holder.pending.reduce(ledger_id, entry_id, left)
        else:
            holder.pending.remove(ledger_id, entry_id)


def give_back(source: EntrySource, consumers: Iterable[Consumer], aborted: PendingAck, cursor: Cursor) -> int:
    """Delivers again what an aborted transaction acknowledged message by message; returns how many entries.

    What it acknowledged cumulatively comes again when its consumer asks for it or reconnects: anything else
    would break the order.
    """
    entries = {ledger_id: entry_ids.copy() for ledger_id, entry_ids in aborted.individual.items()}
    behind = aborted.cumulative
    for ledger_id, entry_id in aborted.batches:
        if behind is not None and (ledger_id, entry_id - 1) == behind:
            continue  # acknowledged cumulatively, up to the middle of a batch
        entries.setdefault(ledger_id, BitMap()).add(entry_id)
        for consumer in consumers:
            consumer.pending.remove(ledger_id, entry_id)
    count = 0
    for ledger_id, entry_ids in entries.items():
        read = source.read_position
        if ledger_id > read.ledger_id:
            continue  # not read yet
        if ledger_id == read.ledger_id:
            entry_ids.remove_range(read.entry_id + 1, 1 << 32)
        for entry_id in entry_ids:
            cursor.count_redelivery(ledger_id, entry_id)
        if entry_ids:
            source.read_again(ledger_id, entry_ids)
            count += len(entry_ids)
    return count
