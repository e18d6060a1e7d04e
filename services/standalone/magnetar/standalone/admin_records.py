"""Large answers on a terminal: figures as facts, and what there is several of as tables.

People see rounded numbers, times as such, and not what is 0 or empty; programs get everything as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from magnetar.standalone.admin_output import Row, draw_facts, draw_rows, moment_text

_ALL_FACTS_MAX: Final = 12
"""So many facts are all shown, be they 0 or not."""

_COLUMNS_MAX: Final = 8

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
    draw_facts(title, {name: _cell(name, value) for name, value in shown.items()})
    for name, rows in tables.items():
        _draw_table(name, rows)
    if shown is not facts:
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


def _draw_table(name: str, rows: Sequence[Row]) -> None:
    known = _COLUMNS.get(name)
    if known is None:
        known = dict(list(_plain_fields(rows).items())[:_COLUMNS_MAX])
    columns = {
        head: field
        for head, field in known.items()
        if any(row.get(field) is not None and row[field] is not False for row in rows)
    }
    drawn = [{head: _cell(field, row.get(field)) for head, field in columns.items()} for row in rows]
    draw_rows(name, list(columns), drawn)


def _plain_fields(rows: Iterable[Row]) -> dict[str, str]:
    return {
        field: field for row in rows for field, value in row.items() if not isinstance(value, dict | list)
    }


def _cell(field: str, value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and "timestamp" in field.lower():
        return moment_text(value)
    if field == "address":
        return str(value).removeprefix("/")
    if value == "[]":
        return None
    if isinstance(value, list) and not any(isinstance(each, dict | list) for each in value):
        return value
    return json.dumps(value) if isinstance(value, dict | list) else value
