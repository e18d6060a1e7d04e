"""Statistics of a topic, partitioned or not, as its pages need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from magnetar.common.naming.topic_name import TopicName
from magnetar.console.admin_api import Caller
from magnetar.console.admin_paths import topic_path

ROWS_MAX: Final = 100
"""Clients, subscriptions or partitions shown on a page; a topic may have thousands."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic and its statistics, those of all partitions together."""

    name: TopicName
    partitions: int
    """0: it is not partitioned."""
    stats: dict[str, Any]

    @property
    def subscriptions(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.stats.get("subscriptions", {})
        return found

    @property
    def backlog(self) -> int:
        """Entries that wait, of all subscriptions together."""
        return sum(each.get("msgBacklog", 0) for each in self.subscriptions.values())

    @property
    def parts(self) -> list[str]:
        """Names of the partitions."""
        return [self.name.partition(index).full for index in range(self.partitions)]


async def topic_facts(admin: Caller, name: TopicName, **query: object) -> TopicFacts:
    """Collect the facts of a topic. Raises AdminRefused (404) for a topic that does not exist.

    `query` are further parameters of the statistics.
    """
    path = topic_path(name)
    partitions = int((await admin.get(f"{path}/partitions") or {}).get("partitions", 0))
    if partitions:
        stats = await admin.get(f"{path}/partitioned-stats", perPartition=True, **query)
    else:
        stats = await admin.get(f"{path}/stats", **query)
    return TopicFacts(name, partitions, stats or {})


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger of a topic, in the order of its entries."""

    ledger_id: int
    entries: int
    size: int
    """Bytes."""
    offloaded: bool


def ledgers_of(internal: Mapping[str, Any]) -> list[Ledger]:
    """Return the ledgers of internal statistics; the last one, which is open, has figures of its own."""
    rows = internal.get("ledgers", [])
    found = []
    for number, row in enumerate(rows, 1):
        is_open = number == len(rows) and not row.get("entries")
        entries = internal.get("currentLedgerEntries", 0) if is_open else row.get("entries", 0)
        size = internal.get("currentLedgerSize", 0) if is_open else row.get("size", 0)
        found.append(Ledger(row["ledgerId"], entries, size, bool(row.get("offloaded"))))
    return found


def entries_from(ledgers: list[Ledger], ledger_id: int, entry_id: int) -> int:
    """Return the number of entries from a position, with it, to the end."""
    found = 0
    for each in ledgers:
        if each.ledger_id > ledger_id:
            found += each.entries
        elif each.ledger_id == ledger_id:
            found += max(0, each.entries - max(0, entry_id))
    return found


def position_before_end(ledgers: list[Ledger], entries: int) -> tuple[int, int] | None:
    """Return the position of the entry with which so many remain to the end; None for an empty topic.

    With fewer entries in the topic, that of its first.
    """
    first = None
    for each in reversed(ledgers):
        if not each.entries:
            continue
        if each.entries >= entries:
            return each.ledger_id, each.entries - entries
        entries -= each.entries
        first = each.ledger_id, 0
    return first
