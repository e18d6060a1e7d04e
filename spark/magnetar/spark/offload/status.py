"""The offload state of every ledger of some topics."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import COMPLETE, RUNNING, WANTED, Ledger

_NAMES = {WANTED: "waits", RUNNING: "running", COMPLETE: "offloaded"}


def state_of(ledger: Ledger) -> str:
    """Return the state in a word or two."""
    if not ledger.closed_ms:
        return "open"
    if ledger.held:
        return "held"
    if not ledger.HasField("offload"):
        return "on bookies"
    if ledger.offload.state == COMPLETE and ledger.offload.left_bookies_ms:
        return "offloaded, left bookies"
    return _NAMES.get(ledger.offload.state, "on bookies")


def described(channel: OffloadChannel, topics: Iterable[str]) -> Iterator[dict[str, Any]]:
    """One record for each ledger, in order. Raises what the calls raise."""
    for topic in topics:
        for ledger in channel.describe(topic).ledgers:
            offload = ledger.offload
            yield {
                "topic": topic,
                "ledgerId": ledger.ledger_id,
                "entries": ledger.entries,
                "bytes": ledger.byte_length,
                "state": state_of(ledger),
                "rows": offload.rows,
                "rawEntries": offload.raw_entries,
                "objectBytes": offload.object_bytes,
                "failures": offload.failures,
                "error": ledger.held or offload.error,
                "objects": f"{offload.location}/{offload.path}" if offload.path else "",
            }


def show(records: Iterator[dict[str, Any]], *, as_json: bool) -> None:
    """A table on a terminal, tab-separated lines elsewhere, or JSON lines."""
    if as_json:
        for record in records:
            print(json.dumps(record))
        return
    columns = ("topic", "ledgerId", "entries", "bytes", "state", "rows", "rawEntries", "objectBytes", "error")
    if not sys.stdout.isatty():
        print("\t".join(columns))
        for record in records:
            print("\t".join(str(record[name]).replace("\t", " ") for name in columns))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in columns:
        number = name not in ("topic", "state", "error")
        table.add_column(name, justify="right" if number else "left")
    for record in records:
        table.add_row(
            *(f"{record[name]:,}" if isinstance(record[name], int) else str(record[name]) for name in columns)
        )
    Console().print(table)
