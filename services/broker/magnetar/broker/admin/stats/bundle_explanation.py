"""The place of a bundle as the admin API shows it, and the load of its topics."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.load.explanation import BundlePlacement
from magnetar.broker.metrics.views import TopicView
from magnetar.broker.reason import Reason
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively

if TYPE_CHECKING:  # not loaded by a standalone
    from magnetar.common.control.control_pb2 import Load

TOPICS_MAX: Final = 20
"""Topics that are named: those with most load."""


def reasons_json(here: list[Reason], moves: list[Reason]) -> dict[str, Any]:
    """Returns the reasons of a place as the admin API shows them."""
    return {"reasons": [each.to_json() for each in here], "moves": [each.to_json() for each in moves]}


def brokers_json(placement: BundlePlacement) -> list[dict[str, Any]]:
    """Returns the running brokers with the figures that placement goes by."""
    return [
        {
            "brokerId": each.broker_id,
            "usage": round(each.usage, 1),
            "topics": each.topics,
            "bundles": each.bundles,
            "bundlesOfNamespace": each.of_namespace,
            "draining": each.draining,
            "allowed": each.broker_id in placement.allowed,
        }
        for each in placement.candidates
    ]


async def measured(topics: Iterable[TopicView]) -> tuple[Load, list[dict[str, Any]]]:
    """Returns the load of these topics as their owner measures it, and the topics with most of it."""
    from magnetar.broker.load.load_report import add, load_of, work
    from magnetar.common.control.control_pb2 import Load

    total = Load()
    found: list[tuple[float, str, Load]] = []
    async for topic in iterate_cooperatively(list(topics)):
        load = load_of(topic)
        add(total, load)
        found.append((work(load), topic.name.full, load))
    return total, [_topic(*each) for each in heapq.nlargest(TOPICS_MAX, found, key=lambda each: each[:2])]


def _topic(work: float, name: str, load: Load) -> dict[str, Any]:
    return {
        "topic": name,
        "work": round(work, 1),
        "msgRate": round(load.message_rate_in + load.message_rate_out, 1),
        "byteRate": round(load.byte_rate_in + load.byte_rate_out, 1),
        "producers": load.producers,
        "consumers": load.consumers,
    }
