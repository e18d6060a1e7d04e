"""Reads a ledger that metadata lacks from the bookies that hold it, for inspection by operators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients, BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerState, Record
from magnetar.ledger.bookie_protocol.records import decode_run
from magnetar.ledger.ledger_store import LedgerRef

READ_BYTES_MAX: Final = 1 << 20


async def entries_of(
    clients: BookieClients, ref: LedgerRef, held: Mapping[str, LedgerState]
) -> AsyncIterator[tuple[int, bytes | None]]:
    """Yields the entries from the first to the last that a bookie holds; None for one without an intact copy.

    The last entries may never have been confirmed to their producer.
    """
    last = max(state.last_entry_id for state in held.values())
    at = 0
    while at <= last:
        entries: dict[int, bytes] = {}
        for bookie_id in sorted(held, key=lambda each: -held[each].last_entry_id):
            try:
                answer = await clients.client(bookie_id).read(ref, at, last, READ_BYTES_MAX)
            except BookieUnreachable:
                continue
            entries = _entries(answer.records, at)
            if entries:
                break
        if not entries:
            yield at, None
            at += 1
        for entry_id, entry in entries.items():
            yield entry_id, entry
            at = entry_id + 1


def _entries(records: Sequence[Record], first: int) -> dict[int, bytes]:
    """Returns the consecutive intact entries from `first` on."""
    found: dict[int, bytes] = {}
    at = first
    for record in records:
        try:
            run = decode_run(record)
        except (DataCorruption, UnsupportedFormat):
            break
        for number, entry in enumerate(run.entries, run.first_entry_id):
            if number == at:
                found[at] = entry
                at += 1
    return found
