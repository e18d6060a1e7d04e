"""Large responses on a terminal: scalar values as facts, lists as tables.

Terminals get rounded numbers and formatted times, without zeros and empty values; programs get the raw data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from magnetar.cli.admin.output import Row, draw_facts, draw_rows, moment_text
from magnetar.cli.quantity_text import size_text

_ALL_FACTS_MAX: Final = 12
"""Number of facts up to which zeros are shown as well."""

_COLUMNS_MAX: Final = 8

_SIZE: Final = re.compile(
    r"bytes|(storage|backlog|ledger|total|msg|message|offloaded\w*)size(?!.*MB)", re.IGNORECASE
)
"""Names of fields that are sizes in bytes."""

_EXACT_MAX: Final = 10_000
"""Size in bytes from which KiB, MiB or GiB is shown as well."""

_COLUMNS: Final[dict[str, dict[str, str]]] = {
    "publishers": {
        "producer": "producerName",
        "access": "accessMode",
        "msg/s": "msgRateIn",
        "bytes/s": "msgThroughputIn",
        "bytes/msg": "averageMsgSize",
        "from": "address",
        "client": "clientVersion",
    },
    "subscriptions": {
        "subscription": "name",
        "type": "type",
        "backlog": "msgBacklog",
        "delayed": "msgDelayed",
        "unacked": "unackedMessages",
        "replay": "msgInReplay",
        "out/s": "msgRateOut",
        "acks/s": "messageAckRate",
        "again/s": "msgRateRedeliver",
        "blocked": "blockedSubscriptionOnUnackedMsgs",
    },
    "consumers": {
        "of": "of",
        "consumer": "consumerName",
        "permits": "availablePermits",
        "unacked": "unackedMessages",
        "out/s": "msgRateOut",
        "acks/s": "messageAckRate",
        "last sent": "lastConsumedTimestamp",
        "last ack": "lastAckedTimestamp",
        "blocked": "blockedConsumerOnUnackedMsgs",
        "from": "address",
    },
    "partitions": {
        "partition": "name",
        "in/s": "msgRateIn",
        "out/s": "msgRateOut",
        "in": "msgInCounter",
        "out": "msgOutCounter",
        "entries": "numberOfEntries",
        "stored bytes": "storageSize",
        "backlog bytes": "backlogSize",
        "last entry": "lastConfirmedEntry",
    },
    "ledgers": {"ledger": "ledgerId", "entries": "entries", "bytes": "size"},
    "cursors": {
        "subscription": "name",
        "mark-delete": "markDeletePosition",
        "read": "readPosition",
        "acked beyond": "individuallyDeletedMessages",
        "waits": "waitingReadOp",
        "active": "active",
        "ledger": "cursorLedger",
    },
}
"""Columns by list name: heading -> field. A column with only empty values or "no" is left out."""


def draw_record(title: str, record: Mapping[str, Any]) -> None:
    """Draw a response with many fields, some of which contain records."""
    if list(record.values()) == [[]]:
        print(f"{title}: none")
        return
    facts: dict[str, Any] = {}
    tables: dict[str, list[Row]] = {}
    for name, value in record.items():
        rows = _rows_of(value)
        if rows is not None:
            tables[name] = rows
        elif isinstance(value, dict):
            facts |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            facts[name] = value
    consumers = [
        {"of": row["name"], **each}
        for row in tables.get("subscriptions", ())
        for each in row.get("consumers", ())
    ]
    if consumers:
        tables["consumers"] = consumers
    shown = facts
    if len(facts) > _ALL_FACTS_MAX:
        shown = {name: value for name, value in facts.items() if value}
    if shown or not tables:
        draw_facts(title, {name: _cell(name, value) for name, value in shown.items()})
    spared = [_draw_table(name, rows) for name, rows in tables.items()]
    if shown is not facts or any(spared):
        print("Zero, false and empty values are hidden; use --output json for all.")


def _rows_of(value: Any) -> list[Row] | None:
    """Return the records in a list, or in a dict by name; None when the value has none."""
    if (
        isinstance(value, dict)
        and any(value.values())
        and all(isinstance(each, dict) for each in value.values())
    ):
        return [{"name": name, **each} for name, each in value.items()]
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return value
    return None


def _draw_table(name: str, rows: Sequence[Row]) -> bool:
    """Draw a table; returns True when empty columns were left out."""
    known = _COLUMNS.get(name)
    if known is None:
        known = dict(list(_plain_fields(rows).items())[:_COLUMNS_MAX])
    columns = {
        head: field
        for head, field in known.items()
        if any(row.get(field) is not None and row[field] is not False for row in rows)
    }
    drawn = [
        {head: _table_cell(head, field, row.get(field)) for head, field in columns.items()} for row in rows
    ]
    return draw_rows(name, list(columns), drawn, spare_zeros=True)


def _table_cell(head: str, field: str, value: Any) -> Any:
    """Formats a value like a fact, but partitions as their number, and sizes without a unit (the heading
    has it).
    """
    if head == "partition":
        number = str(value).rpartition("-partition-")[2]
        return int(number) if number.isdigit() else value
    return value if isinstance(value, int) and _SIZE.search(field) else _cell(field, value)


def _plain_fields(rows: Iterable[Row]) -> dict[str, str]:
    return {
        field: field for row in rows for field, value in row.items() if not isinstance(value, dict | list)
    }


def _cell(field: str, value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and ("timestamp" in field.lower() or field == "lastUpdate"):
        return moment_text(value)
    if isinstance(value, int) and value >= _EXACT_MAX and _SIZE.search(field):
        return f"{value:,} ({size_text(value)})"
    if field == "address":
        return str(value).removeprefix("/")
    if value == "[]":
        return None
    if isinstance(value, list) and not any(isinstance(each, dict | list) for each in value):
        return value
    return json.dumps(value) if isinstance(value, dict | list) else value
