"""The plan of a search: the ledgers of a topic that may have a match, and where each is read. No I/O.

    ledgers    1 cold   2 cold   3 hot   4 hot   5 cold   6 open
    stretches  [1]      [2]      [3 and 4]       [5]      [6 ...]

Cold ledgers are read from objects, one at a time; consecutive hot ones by one reader, as clients read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import click
from magnetar.cli.search.option_types import GivenId
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.cold.search.cold_objects import ColdObjects
from magnetar.ledger.cold.search.condition import BEGINNING, Condition, MessagePosition

TIME_SLACK_MS: Final = 3_600_000
"""A ledger is left out by its times, which are the broker's, only if they are off by more: clocks of
producers differ, and a producer may have waited for its broker.
"""


@dataclass(frozen=True, slots=True)
class ColdStretch:
    """One offloaded ledger."""

    objects: ColdObjects
    entries: int


@dataclass(frozen=True, slots=True)
class HotStretch:
    """Consecutive ledgers that a broker reads."""

    first_ledger_id: int
    last_ledger_id: int | None
    """None: to the end of the topic."""
    entries: int
    """At most: of an open ledger it is not known, and counts as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The search in one topic or partition."""

    topic: str
    """Full name."""
    partition: int
    condition: Condition
    stretches: tuple[ColdStretch | HotStretch, ...]
    cold_ledgers: int
    """All offloaded ledgers, also those that are left out."""
    object_bytes: int
    """Bytes of their objects."""

    @property
    def entries(self) -> int:
        """Entries of the planned ledgers, as far as they are known."""
        return sum(stretch.entries for stretch in self.stretches)


def topics_of(topic: str, info: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the stored state of each partition by name, in order, or of the topic itself.

    `info` is a broker's answer to internal-info.
    """
    partitions = info.get("partitions")
    if not isinstance(partitions, Mapping):
        return {TopicName.parse(topic).full: info}
    return dict(sorted(partitions.items(), key=lambda each: TopicName.parse(each[0]).partition_index))


def plan_search(
    infos: Mapping[str, Mapping[str, Any]],
    condition: Condition,
    *,
    at: GivenId | None = None,
    start: GivenId | None = None,
    through_brokers: bool = False,
) -> list[TopicPlan]:
    """Returns the plan of each topic or partition that may have a match, in order.

    `infos` are the results of `topics_of`, `at` is the one message that is searched, `start` where the search
    begins; with `through_brokers` offloaded ledgers are read by brokers, too. Raises UsageError for an id
    that does not tell its partition.
    """
    if at is not None:
        position = at.position
        batch = position.batch_index if position.batch_index >= 0 else None
        condition = replace(
            condition, ledger_id=position.ledger_id, entry_id=position.entry_id, batch_index=batch
        )
    begin = -1 if start is None else _partition_of(start, infos)
    plans = []
    for name, info in infos.items():
        partition = TopicName.parse(name).partition_index
        if partition < begin or (at is not None and at.partition not in (None, partition)):
            continue
        first = start.position if start is not None and partition == begin else BEGINNING
        plans.append(
            _topic_plan(
                name, partition, info, replace(condition, start=first), through_brokers=through_brokers
            )
        )
    return plans


def _partition_of(start: GivenId, infos: Mapping[str, Mapping[str, Any]]) -> int:
    partitions = [TopicName.parse(name).partition_index for name in infos]
    if start.partition in partitions:
        return start.partition
    if start.partition is not None:
        raise click.UsageError(
            f"--from names partition {start.partition}, and the topic has "
            f"{f'{len(partitions)} partitions' if partitions != [-1] else 'no partitions'}"
        )
    if len(infos) == 1:
        return partitions[0]
    for partition, info in zip(partitions, infos.values(), strict=True):
        if any(each["ledgerId"] == start.position.ledger_id for each in info["ledgers"]):
            return partition
    raise click.UsageError(
        f"--from {start.position.ledger_id}:{start.position.entry_id} does not tell its partition, and no "
        "partition has this ledger; write it as LEDGER:ENTRY:PARTITION"
    )


def _topic_plan(
    name: str, partition: int, info: Mapping[str, Any], condition: Condition, *, through_brokers: bool
) -> TopicPlan:
    stretches: list[ColdStretch | HotStretch] = []
    cold_ledgers = object_bytes = 0
    ledgers = info["ledgers"]
    for number, ledger in enumerate(ledgers):
        to = None if through_brokers else ledger.get("offloadedTo")
        is_last = number == len(ledgers) - 1
        if to is not None:
            cold_ledgers += 1
            object_bytes += to["objectBytes"]
        if not condition.may_be_in(ledger["ledgerId"]):
            continue
        if to is not None:
            if _may_have_times(to, condition):
                sha256 = bytes.fromhex(to["manifestSha256"])
                objects = ColdObjects(ledger["ledgerId"], to["location"], to["path"], sha256)
                stretches.append(ColdStretch(objects, ledger.get("entries", 0)))
            continue
        stretches = _with_hot(
            stretches,
            ledger["ledgerId"],
            None if is_last else ledger["ledgerId"],
            ledger.get("entries", 0),
            follows=number > 0 and not _is_cold(ledgers[number - 1], through_brokers),
        )
    return TopicPlan(
        topic=name,
        partition=partition,
        condition=condition,
        stretches=tuple(stretches),
        cold_ledgers=cold_ledgers,
        object_bytes=object_bytes,
    )


def _is_cold(ledger: Mapping[str, Any], through_brokers: bool) -> bool:
    return not through_brokers and ledger.get("offloadedTo") is not None


def _with_hot(
    stretches: list[ColdStretch | HotStretch], first: int, last: int | None, entries: int, *, follows: bool
) -> list[ColdStretch | HotStretch]:
    """Adds a hot ledger, to the stretch before it if that is its predecessor's."""
    before = stretches[-1] if stretches else None
    if follows and isinstance(before, HotStretch):
        return [*stretches[:-1], HotStretch(before.first_ledger_id, last, before.entries + entries)]
    return [*stretches, HotStretch(first, last, entries)]


def _may_have_times(to: Mapping[str, Any], condition: Condition) -> bool:
    """Returns whether an offloaded ledger may have messages within the times. Event times tell nothing."""
    if condition.by_event_time:
        return True
    newest, opened = to["maxPublishTimestamp"], to["openedTimestamp"]
    if condition.since_ms is not None and 0 < newest < condition.since_ms - TIME_SLACK_MS:
        return False
    return condition.until_ms is None or not 0 < condition.until_ms <= opened - TIME_SLACK_MS


def continuation(position: MessagePosition) -> MessagePosition:
    """Returns the first position after a message, with which another search goes on."""
    return position._replace(batch_index=position.batch_index + 1)


def left_out(infos: Iterable[Mapping[str, Any]], ledger_id: int) -> bool:
    """Returns whether no topic or partition has a ledger."""
    return not any(each["ledgerId"] == ledger_id for info in infos for each in info["ledgers"])
