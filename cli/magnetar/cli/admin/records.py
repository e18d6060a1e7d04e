"""Large answers on a terminal: figures as facts, and what there is several of as tables.

People see rounded numbers, times as such, and not what is 0 or empty; programs get everything as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from magnetar.cli.admin.output import Row, draw_facts, draw_rows, moment_text
from magnetar.cli.quantity_text import size_text

_ALL_FACTS_MAX: Final = 12
"""So many facts are all shown, be they 0 or not."""

_COLUMNS_MAX: Final = 8

_SIZE: Final = re.compile(
    r"bytes|(storage|backlog|ledger|total|msg|message|offloaded\w*)size(?!.*MB)", re.IGNORECASE
)
"""Fields that are a number of bytes."""

_EXACT_MAX: Final = 10_000
"""From there on people want to see how many KiB or GiB that is."""

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
"""By the name of what there is several of: heading -> field. A column with nothing or "no" is left out."""


def draw_record(title: str, record: Mapping[str, Any]) -> None:
    """An answer with many fields, some of which hold records themselves."""
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
        print("What is 0, false or empty is not shown; --output json has everything.")


def _rows_of(value: Any) -> list[Row] | None:
    """The records in a list, or in a dict by name; None when it holds none."""
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
    """True when columns without anything were left out."""
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
    """Formats a value like a fact, but partitions by number; headings name the unit of sizes."""
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
