"""Reads a whole ledger of records, after fencing and closing it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar.common.errors import EntryUnreadable
from magnetar.ledger.ledger_store import ClosedLedger, LedgerReader

READ_BYTES_MAX: Final = 1024 * 1024

SLICE_BYTES: Final = 16 * 1024
"""Bytes of entries after which other tasks have their turn."""


async def replay_records(
    reader: LedgerReader,
    closed: ClosedLedger,
    feed: Callable[[int, bytes], None],
    damaged: Callable[[int, str], None],
) -> None:
    """Calls `feed` with the id and the bytes of each entry of a closed ledger, in order, or `damaged` with a
    reason where an entry is unreadable. Raises other storage errors.
    """
    at = 0
    while at <= closed.last_entry_id:
        try:
            runs = await reader.read(at, closed.last_entry_id, READ_BYTES_MAX)
        except EntryUnreadable as error:
            damaged(at, str(error))
            at += 1
            continue
        fed = 0
        for run in runs:
            for number, data in enumerate(run.entries):
                feed(run.first_entry_id + number, data)
                fed += len(data)
                if fed >= SLICE_BYTES:
                    fed = 0
                    await asyncio.sleep(0)
            at = run.last_entry_id + 1
