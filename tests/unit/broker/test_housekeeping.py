"""One task a look, none a topic: in slices, and a topic that fails does not end a pass."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

from magnetar.broker.housekeeping import SLICE_S, Housekeeping, look_at_all
from magnetar.broker.policies.config import PolicyConfig, QuotaConfig, RetentionConfig
from magnetar.common.errors import LogFailed
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.clock import SystemClock

from tests.unit.broker.topics.simulated_broker import SimBroker, simulated


@dataclass(eq=False)
class Idle:
    """As much of a topic as a pass asks for."""

    name: TopicName
    closing: bool = False


class TickingClock:
    """Each look at it takes a tenth of a slice."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += SLICE_S / 10
        return self.now

    def wall_ms(self) -> int:
        return 0


def topics(count: int) -> list[Any]:
    return [Idle(TopicName.parse(f"persistent://public/default/t{number}")) for number in range(count)]


def test_other_work_gets_its_turn_after_each_slice() -> None:
    async def main() -> None:
        looked: list[object] = []
        turns: list[int] = []

        async def other_work() -> None:
            while True:
                turns.append(len(looked))
                await asyncio.sleep(0)

        other = asyncio.create_task(other_work())
        await look_at_all("test", topics(100), looked.append, TickingClock())
        other.cancel()
        assert len(looked) == 100
        steps = [after - before for before, after in itertools.pairwise(turns)]
        assert 10 <= max(steps) <= 11

    asyncio.run(main())


def test_a_look_that_fails_does_not_end_the_pass_and_closing_topics_are_left_alone() -> None:
    async def main() -> None:
        looked: list[Any] = []
        three = topics(4)
        three[2].closing = True

        async def work() -> None:
            raise LogFailed("the disk is having a bad day")

        def look(topic: Any) -> Any:
            looked.append(topic)
            if topic is three[0]:
                return work()
            if topic is three[1]:
                raise ValueError("a bug")
            return None

        await look_at_all("test", three, look, SystemClock())
        assert looked == [three[0], three[1], three[3]]

    asyncio.run(main())


def test_the_passes_come_at_their_intervals() -> None:
    async def scenario(broker: SimBroker) -> None:
        looks = {name: interval_s for name, interval_s, _ in broker.housekeeping.looks()}
        assert looks == {
            "retention": 120,
            "message expiry": 300,
            "subscription expiry": 300,
            "inactive topics": 60,
            "backlog quotas": 60,
        }
        topic = await broker.topic()
        subscription = await broker.subscription(topic)
        await broker.publish(topic, 1)
        for name, config in {
            "message expiry": RetentionConfig(expiry_check_interval_s=7),
            "backlog quotas": QuotaConfig(check_enabled=False),
        }.items():
            retention = config if isinstance(config, RetentionConfig) else RetentionConfig()
            quotas = config if isinstance(config, QuotaConfig) else QuotaConfig()
            made = Housekeeping(
                broker.registry,
                broker.partitioned,
                PolicyConfig(retention=retention, quotas=quotas),
                broker.clock,
                broker.ledgers.restored,
            )
            intervals = {each: interval_s for each, interval_s, _ in made.looks()}
            assert intervals.get(name) == (7 if name == "message expiry" else None)
        broker.housekeeping.start(broker.tasks.spawn)
        subscription.cursor.ack_cumulative(topic.ledger.last_position)
        await broker.topic("persistent://public/default/unused")
        await asyncio.sleep(200)
        assert set(broker.registry.loaded) == {topic.name.full}, "nobody uses the other one"

    simulated(scenario)
