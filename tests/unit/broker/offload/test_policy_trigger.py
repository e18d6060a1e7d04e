"""What policies have offloaded: as much as Pulsar would, once, and nowhere without a location."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.offload.policy_trigger import PolicyTrigger, due
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.offload_policy.policy import OffloadPolicy
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, SpanOffload
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers
from structlog.testing import capture_logs

from tests.unit.broker.topics.simulated_broker import TOPIC, SimBroker, counted, simulated

NOW_MS = 10_000_000


def spans(*sizes: int, offloaded: int = 0, open_size: int = 0) -> list[LedgerSpan]:
    """Closed ledgers of these sizes, each closed a second after the one before, the last one now."""
    found = []
    for number, size in enumerate(sizes, start=1):
        closed_ms = NOW_MS - 1_000 * (len(sizes) - number)
        span = LedgerSpan(LedgerRef(number, 1), entries=1, byte_length=size, closed=True, closed_ms=closed_ms)
        if number <= offloaded:
            span.offload = SpanOffload(1, Offload.COMPLETE)
        found.append(span)
    if open_size:
        found.append(LedgerSpan(LedgerRef(99, 1), entries=1, byte_length=open_size))
    return found


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (OffloadPolicy(), []),
        (OffloadPolicy(threshold_bytes=0), [1, 2, 3]),
        (OffloadPolicy(threshold_bytes=34), [1, 2, 3]),
        (OffloadPolicy(threshold_bytes=35), [1, 2]),
        (OffloadPolicy(threshold_bytes=55), [1]),
        (OffloadPolicy(threshold_bytes=65), []),
        (OffloadPolicy(threshold_s=0), [1, 2, 3]),
        (OffloadPolicy(threshold_s=1), [1, 2]),
        (OffloadPolicy(threshold_s=3), []),
        (OffloadPolicy(threshold_bytes=55, threshold_s=1), [1, 2]),
    ],
)
def test_the_oldest_go_that_are_beyond_the_bytes_or_the_seconds(
    policy: OffloadPolicy, expected: list[int]
) -> None:
    found = due(spans(10, 20, 30, open_size=5), policy, NOW_MS)
    assert [span.ref.id for span in found] == expected


def test_offloaded_ledgers_count_and_are_not_offloaded_again() -> None:
    found = due(spans(10, 20, 30, offloaded=1), OffloadPolicy(threshold_bytes=30), NOW_MS)
    assert [span.ref.id for span in found] == [2]


def configured(**offload: object) -> BrokerConfig:
    return BrokerConfig(offload=OffloadConfig(**offload))  # type: ignore[arg-type]


def wants_of(broker: SimBroker) -> tuple[PolicyTrigger, OffloadLedgers]:
    ledgers = OffloadLedgers(broker.ledgers.metadata, broker.ledgers.keys, broker.clock)
    return PolicyTrigger(
        lambda: broker.registry.loaded, ledgers, broker.config.offload, broker.clock
    ), ledgers


def test_a_pass_writes_each_wish_once_and_jobs_find_it() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.subscription(topic)
        await broker.publish(topic, 11, runs=4)
        await asyncio.sleep(1)
        closed = [span.ref.id for span in topic.ledger.spans.spans if span.closed]
        assert len(closed) >= 2
        wants, ledgers = wants_of(broker)
        before = counted("magnetar_offload_wanted_total")
        with capture_logs() as lines:
            await wants.look()
        (line,) = [each for each in lines if each["log_level"] == "info"]
        assert (line["topics"], line["ledgers"]) == (1, len(closed)), "one line, however many topics"
        assert counted("magnetar_offload_wanted_total") - before == len(closed)
        found = (await ledgers.of_topic(TopicName.parse(TOPIC))).ledgers
        assert [each.ref.id for each in found if each.offload.state == Offload.WANTED] == closed
        assert {each.offload.location for each in found} == {"file:///cold"}
        wanted_ms = [each.offload.wanted_ms for each in found]
        assert all(span.offload for span in topic.ledger.spans.spans if span.closed), "its owner knows"
        await asyncio.sleep(1)
        await wants.look()
        assert counted("magnetar_offload_wanted_total") - before == len(closed)
        assert counted("magnetar_offload_ledgers", state="waiting") == len(closed)
        again = (await ledgers.of_topic(TopicName.parse(TOPIC))).ledgers
        assert [each.offload.wanted_ms for each in again] == wanted_ms

    simulated(scenario, configured(location="/cold", threshold_bytes=0))


def test_without_a_location_nothing_is_wanted_and_that_shows() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.subscription(topic)
        await broker.publish(topic, 11, runs=3)
        await asyncio.sleep(1)
        wants, ledgers = wants_of(broker)
        await wants.look()
        assert counted("magnetar_offload_topics_without_location") == 1
        found = (await ledgers.of_topic(TopicName.parse(TOPIC))).ledgers
        assert found
        assert not any(each.HasField("offload") for each in found)
        topic.apply_policies(replace(topic.policies, offload=OffloadPolicy(location="file:///cold")))
        await wants.look()
        assert counted("magnetar_offload_topics_without_location") == 0, "nobody wants it any more"

    simulated(scenario, configured(threshold_s=0))
