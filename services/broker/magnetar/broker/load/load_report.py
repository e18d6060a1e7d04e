"""Load reports: measurement per bundle, and the decision whether a report is due.

A report is bounded: it names the most loaded bundles. Work is a cost that can be added up and compared: one
per message, plus the bytes that take as long as handling one message; idle sessions cost little but not
nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from magnetar.broker.load.config import ReportConfig
from magnetar.common.control.control_pb2 import BundleLoad, Load, LoadReport
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName

BYTES_A_MESSAGE: Final = 1_000
"""Bytes that cost as much as one message."""

WORK_A_TOPIC: Final = 0.1
WORK_A_SESSION: Final = 0.1
"""Work of an idle session, in messages per second."""

_BYTES_A_GIGABIT: Final = 1e9 / 8


class Rates(Protocol):
    """A topic's rates per second."""

    message_rate_in: float
    message_rate_out: float
    byte_rate_in: float
    byte_rate_out: float


class Subscribed(Protocol):
    """The part of a subscription that load measurement needs."""

    @property
    def consumer_count(self) -> int: ...


class Measured(Protocol):
    """The part of a loaded topic that load measurement needs."""

    @property
    def stats(self) -> Rates: ...

    @property
    def producer_count(self) -> int: ...

    @property
    def subscriptions(self) -> Mapping[str, Subscribed]: ...


def load_of(topic: Measured) -> Load:
    """Returns the load of one topic."""
    stats = topic.stats
    return Load(
        message_rate_in=stats.message_rate_in,
        message_rate_out=stats.message_rate_out,
        byte_rate_in=stats.byte_rate_in,
        byte_rate_out=stats.byte_rate_out,
        topics=1,
        producers=topic.producer_count,
        consumers=sum(each.consumer_count for each in topic.subscriptions.values()),
    )


def add(total: Load, load: Load) -> None:
    """Adds a load to a total, in place."""
    total.message_rate_in += load.message_rate_in
    total.message_rate_out += load.message_rate_out
    total.byte_rate_in += load.byte_rate_in
    total.byte_rate_out += load.byte_rate_out
    total.topics += load.topics
    total.producers += load.producers
    total.consumers += load.consumers


def work(load: Load) -> float:
    """Returns the work of a load, in messages per second."""
    messages = load.message_rate_in + load.message_rate_out
    bytes_as_messages = (load.byte_rate_in + load.byte_rate_out) / BYTES_A_MESSAGE
    idle = load.topics * WORK_A_TOPIC + (load.producers + load.consumers) * WORK_A_SESSION
    return messages + bytes_as_messages + idle


@dataclass(frozen=True, slots=True)
class OwnedLoad:
    """The load of one owned bundle."""

    namespace: NamespaceName
    bundle: BundleRange
    owner_version: int
    load: Load


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource usage of this process."""

    cpu_percent: float
    """Percent of one processor."""
    memory_bytes: int
    memory_bytes_max: int


def make_report(
    broker_id: str,
    run: int,
    usage: Usage,
    owned: Sequence[OwnedLoad],
    *,
    bundles_max: int,
    taken_ms: int,
    draining: bool,
) -> LoadReport:
    """Builds the report of a broker that owns these bundles."""
    report = LoadReport(
        broker_id=broker_id,
        run=run,
        cpu_percent=usage.cpu_percent,
        memory_bytes=usage.memory_bytes,
        memory_bytes_max=usage.memory_bytes_max,
        bundles=len(owned),
        taken_ms=taken_ms,
        draining=draining,
    )
    for each in owned:
        add(report.total, each.load)
    for each in heapq.nlargest(bundles_max, owned, key=lambda one: work(one.load)):
        report.loads.append(
            BundleLoad(
                namespace=str(each.namespace),
                bundle=str(each.bundle),
                load=each.load,
                owner_version=each.owner_version,
            )
        )
    return report


def usage_by_resource(report: LoadReport, nic_gbps: float) -> dict[str, float]:
    """Returns the usage of each resource in percent; 0 for a resource without a known limit."""
    total, memory_max, nic = report.total, report.memory_bytes_max, nic_gbps * _BYTES_A_GIGABIT
    return {
        "cpu": report.cpu_percent,
        "memory": 100 * report.memory_bytes / memory_max if memory_max else 0.0,
        "bandwidth_in": 100 * total.byte_rate_in / nic if nic else 0.0,
        "bandwidth_out": 100 * total.byte_rate_out / nic if nic else 0.0,
    }


def usage_percent(report: LoadReport, config: ReportConfig) -> float:
    """Returns the broker's load in percent: its most used resource after weighting."""
    used = usage_by_resource(report, config.nic_gbps)
    return max(
        used["cpu"] * config.cpu_weight,
        used["memory"] * config.memory_weight,
        used["bandwidth_in"] * config.bandwidth_in_weight,
        used["bandwidth_out"] * config.bandwidth_out_weight,
    )


def is_news(before: LoadReport, now: LoadReport, config: ReportConfig) -> bool:
    """Whether the load changed enough to report, or something changed that affects decisions directly."""
    if (before.draining, before.bundles) != (now.draining, now.bundles):
        return True
    if len(now.loads) == now.bundles and _names(before) != _names(now):
        return True
    threshold = config.threshold_percent
    if abs(usage_percent(now, config) - usage_percent(before, config)) >= threshold:
        return True
    return any(abs(a - b) > threshold / 100 * max(a, b) for a, b in _figures(before, now))


def _names(report: LoadReport) -> set[tuple[str, str]]:
    return {(each.namespace, each.bundle) for each in report.loads}


def _figures(before: LoadReport, now: LoadReport) -> Iterable[tuple[float, float]]:
    one, other = before.total, now.total
    yield one.message_rate_in + one.message_rate_out, other.message_rate_in + other.message_rate_out
    yield one.byte_rate_in + one.byte_rate_out, other.byte_rate_in + other.byte_rate_out
    yield one.topics, other.topics
    yield one.producers + one.consumers, other.producers + other.consumers
