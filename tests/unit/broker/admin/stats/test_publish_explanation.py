"""Each reason why publishes were slow, from a topic whose storage or client produces it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from magnetar.broker.admin.stats.publish_explanation import publish_explanation
from magnetar.broker.read_pauses import PUBLISH_RATE, ReadPauses
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.publish.slow_publishes import (
    SLOW_S,
    WINDOW_S,
    PublishStep,
    SlowPublishes,
    steps_of,
)
from magnetar.ledger.ledger_store import WriteReport
from magnetar.ledger.managed_ledger.appender import QueueWait

from tests.unit.broker.topics.simulated_broker import SimBroker, simulated


def disk_takes(topic: PersistentTopic, seconds: float) -> None:
    """From now on the simulated disk writes, syncs and reports after up to so many seconds each."""
    current = topic.ledger.writes.current
    assert current is not None
    current.writer._log.group_commit._syncer._delay_max_s = seconds  # type: ignore[attr-defined]


def explained(broker: SimBroker, topic: PersistentTopic) -> dict[str, Any]:
    found = publish_explanation(topic, broker.clock)
    assert all(each["next"] for each in found["reasons"])
    for each in found["publishes"]:
        assert sum(step["milliseconds"] for step in each["steps"]) == pytest.approx(
            each["milliseconds"], abs=0.3
        )
    return found


def codes(found: dict[str, Any]) -> list[str]:
    return [each["code"] for each in found["reasons"]]


def test_quick_publishes_are_not_recorded() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.publish(topic)  # opens the first ledger
        await asyncio.sleep(WINDOW_S + 1)
        disk_takes(topic, SLOW_S / 10)
        await broker.publish(topic)
        found = explained(broker, topic)
        assert (codes(found), found["publishes"]) == (["no_slow_publish"], [])

    simulated(scenario)


def test_a_slow_disk_is_found_and_forgotten_after_a_minute() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        await broker.publish(topic)
        await asyncio.sleep(WINDOW_S + 1)
        disk_takes(topic, 1.0)
        await broker.publish(topic, 3)
        found = explained(broker, topic)
        (reason,) = found["reasons"]
        assert (reason["code"], reason["data"]["publishes"]) == ("log_write", 1)
        (slow,) = found["publishes"]
        assert (slow["producer"], slow["entries"], slow["bytes"]) == ("a-producer", 3, 300)
        assert slow["steps"][0]["step"] == "log_write"
        await asyncio.sleep(WINDOW_S)
        assert codes(explained(broker, topic)) == ["no_slow_publish"]

    simulated(scenario)


def test_a_publish_waits_for_the_sync_before_it() -> None:
    async def scenario(broker: SimBroker) -> None:
        first, second = await broker.topic(), await broker.topic("persistent://public/default/second")
        await broker.publish(first)
        await broker.publish(second)
        await asyncio.sleep(WINDOW_S + 1)
        disk_takes(first, 5.0)
        ahead = asyncio.ensure_future(broker.publish(first))
        await asyncio.sleep(0.001)
        disk_takes(first, 0.01)
        await asyncio.gather(ahead, broker.publish(second))
        (reason,) = explained(broker, second)["reasons"]
        assert reason["code"] == "waited_for_sync"
        (slow,) = explained(broker, second)["publishes"]
        assert [each["step"] for each in slow["steps"]] == ["waited_for_sync", "log_write"]

    simulated(scenario)


def test_a_publish_waits_for_its_first_ledger() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        topic.ledger.writes.held = True  # as while a transaction is registered
        publish = asyncio.ensure_future(broker.publish(topic))
        await asyncio.sleep(2)
        (waiting,) = explained(broker, topic)["reasons"]
        assert (waiting["code"], waiting["stops"], waiting["data"]["cause"]) == (
            "unconfirmed",
            True,
            "no ledger was open",
        )
        topic.ledger.writes.release()
        await publish
        (reason,) = explained(broker, topic)["reasons"]
        assert (reason["code"], reason["data"]["detail"]) == ("waited_for_ledger", "no ledger was open")

    simulated(scenario)


def test_reading_was_paused() -> None:
    async def scenario(broker: SimBroker) -> None:
        topic = await broker.topic()
        producer = await broker.producer(topic)
        pauses = producer.peer.read_pauses
        pauses.begin(PUBLISH_RATE, broker.clock.monotonic())
        await asyncio.sleep(3)
        (reason,) = explained(broker, topic)["reasons"]
        assert (reason["code"], reason["stops"], reason["data"]["milliseconds"]) == ("not_read", True, 3000)
        pauses.end(PUBLISH_RATE, broker.clock.monotonic())
        (reason,) = explained(broker, topic)["reasons"]
        assert (reason["stops"], reason["data"]["addresses"]) == (False, ["10.0.0.1:40000"])
        assert "because of publish rate: 1 pauses of 3000.0 ms" in reason["text"]
        await asyncio.sleep(WINDOW_S + 1)
        assert codes(explained(broker, topic)) == ["no_slow_publish"]

    simulated(scenario)


def test_pauses_that_are_remembered_are_bounded() -> None:
    pauses = ReadPauses()
    for number in range(1000):
        pauses.begin(PUBLISH_RATE, number)
        pauses.end(PUBLISH_RATE, number + 0.5)
    assert [each.since_s for each in pauses.since(0)] == list(range(984, 1000))


def test_bookies_that_answered_and_that_did_not_are_named() -> None:
    report = WriteReport(100.0, 100.9, ("b1", "b2"), ("b3",), ("b2",))
    first, second = steps_of(100.0, 101.0, report, None)
    assert first.step is PublishStep.BOOKIES
    assert first.seconds == pytest.approx(0.9)
    assert first.detail == ("acknowledged by b1, b2, not yet by b3; b2 replaced failed bookies meanwhile")
    assert second.step is PublishStep.RECEIPT
    assert second.seconds == pytest.approx(0.1)


def test_the_steps_of_a_publish_add_up_whatever_is_known() -> None:
    for report in (None, WriteReport(99.0, 99.5), WriteReport(100.2, 100.4), WriteReport(102.0, 103.0)):
        for waited in (
            None,
            QueueWait(1, 0, 1, 99.0, "x"),
            QueueWait(1, 0, 1, 100.5, "x"),
            QueueWait(1, 0, 1, 200, "x"),
        ):
            steps = steps_of(100.0, 101.0, report, waited)
            assert sum(each.seconds for each in steps) == pytest.approx(1.0)
            assert all(each.seconds >= 0 for each in steps)
    (step,) = steps_of(100.0, 101.0, None, None)
    assert step.step is PublishStep.STORAGE


def test_only_the_slowest_of_a_second_is_recorded() -> None:
    slow, now = SlowPublishes(), float(int(time.monotonic()) + 1000)
    assert slow.wants(now, 0.1)
    assert not slow.wants(now + 0.1, 0.1)
    assert not slow.wants(now + 0.2, 0.12), "not much slower"
    assert slow.wants(now + 0.3, 0.2)
    assert slow.wants(now + 1.0, 0.02), "another second"


def test_the_records_of_all_topics_are_limited() -> None:
    now = float(int(time.monotonic()) + 2000)
    wanted = sum(SlowPublishes().wants(now, 1.0) for _ in range(10_000))
    assert wanted == 200
