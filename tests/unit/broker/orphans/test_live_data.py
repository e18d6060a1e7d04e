"""Whoever clears what is left over, and however often, nothing goes that belongs to a topic that is there.

Owners take topics from each other, roll ledgers and cursor ledgers, trim and delete; answers of metadata are
lost; two reconcilers without patience and whoever finishes intents go on all the time beside them.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from magnetar.broker.orphans.config import OrphanConfig
from magnetar.broker.orphans.reconciler import Reconciler
from magnetar.common.errors import MagnetarError
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.managed_ledger import delete_managed_ledger, finish_intents, open_managed_ledger

from tests.simulation.power_loss import KEYS
from tests.unit.broker.topics.world import Topics, in_a_broker
from tests.unit.ledger.managed_ledger.harness import Listener, Topic

NAMES = ["persistent://public/default/a", "persistent://public/default/b"]
TURNS = 12


@dataclass
class Life:
    """What one life of a topic owes its clients."""

    confirmed: dict[Position, bytes] = field(default_factory=dict)
    acked: set[Position] = field(default_factory=set)
    has_cursor: bool = False


class Owners:
    """Clients and owners of the topics of a world; `lives` by name and creation id."""

    def __init__(self, made: Topics, rng: random.Random) -> None:
        self.ledgers = made.ledgers
        self.rng = rng
        self.lives: dict[str, dict[int, Life]] = defaultdict(lambda: defaultdict(Life))
        self.deletions: dict[str, int] = defaultdict(int)

    async def open(self, name: str) -> Topic:
        listener = Listener()
        ledger = await open_managed_ledger(self.ledgers, name, listener, create=True, properties={})
        return Topic(self.ledgers, ledger, listener)

    async def own(self, name: str) -> None:
        """Take the topic, use it for a while, and leave it, more or less in order."""
        topic = await self.open(name)
        life = self.lives[name][topic.ledger.creation_id]
        try:
            cursor = await topic.ledger.create_cursor("s", EARLIEST, {})
            life.has_cursor = True
            for _ in range(self.rng.randrange(1, 4)):
                topic.publish(self.rng.randrange(1, 8))
                await asyncio.sleep(self.rng.uniform(0, 0.02))
                life.confirmed.update(topic.listener.confirmed)
                for position, _ in topic.listener.confirmed[: self.rng.randrange(8)]:
                    life.acked.add(position)
                    cursor.ack(*position)
                await topic.flushed()
                if self.rng.random() < 0.3:
                    topic.ledger.roll()
        finally:
            life.confirmed.update(topic.listener.confirmed)
            if self.rng.random() < 0.5:
                await asyncio.wait_for(topic.ledger.close(), 5)
                life.confirmed.update(topic.listener.confirmed)

    async def delete(self, name: str) -> None:
        self.deletions[name] += 1
        await delete_managed_ledger(self.ledgers, name)


async def forever(act: Callable[[], Awaitable[object]], rng: random.Random) -> None:
    while True:
        with suppress(MagnetarError):
            await act()
        await asyncio.sleep(rng.uniform(0, 0.01))


@pytest.mark.parametrize("seed", range(6))
def test_nothing_goes_that_a_topic_has(seed: int) -> None:
    async def scenario(made: Topics) -> None:
        rng = random.Random(seed)
        made.ledgers.config = replace(
            made.ledgers.config, ledger_entries_max=6, ledger_age_min_minutes=0, cursor_ledger_entries_max=4
        )
        owners, metadata = Owners(made, rng), made.process.metadata
        reconcilers = [Reconciler(made.ledgers, made.registry, OrphanConfig(age_min_s=0)) for _ in range(2)]
        cleared: list[str] = []

        async def reconcile(reconciler: Reconciler) -> None:
            await reconciler.look()
            done, _ = await reconciler.clear(asked=True)
            cleared.extend(each.key for each in done)

        async def use(name: str, pause_s: float) -> None:
            for _ in range(TURNS):
                await asyncio.sleep(rng.uniform(0, pause_s))
                with suppress(MagnetarError, TimeoutError):
                    await asyncio.wait_for(owners.own(name), 30)
                if rng.random() < 0.15:
                    with suppress(MagnetarError):
                        await owners.delete(name)

        beside = [
            asyncio.create_task(forever(lambda each=each: reconcile(each), rng))  # type: ignore[misc]
            for each in reconcilers
        ]
        beside.append(asyncio.create_task(forever(lambda: finish_intents(made.ledgers), rng)))
        metadata.faults.unknown_probability = 0.03
        users = [asyncio.create_task(use(name, pause_s)) for name in NAMES for pause_s in (0.01, 0.5)]
        done, _ = await asyncio.wait(users)
        for user in done:
            user.result()
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
        metadata.faults.unknown_probability = 0.0
        await asyncio.sleep(1)
        for name in NAMES:
            lives = owners.lives[name]
            topic = await owners.open(name)
            now = topic.ledger.creation_id
            assert len(lives.keys() - {now}) <= owners.deletions[name], "nobody else deletes a topic"
            life = lives[now]
            cursor = topic.ledger.cursors.get("s")
            assert cursor is not None or not life.has_cursor
            there = dict(await topic.read_all())
            for position, data in life.confirmed.items():
                acked = position in life.acked or (cursor is not None and cursor.is_acked(*position))
                assert there.get(position, data if acked else None) == data, (position, life.acked)
            await topic.ledger.close()
        await finish_intents(made.ledgers)
        for reconciler in reconcilers:
            await reconciler.look()
            await reconcile(reconciler)
            assert reconciler.suspects == []
        assert not [key for key in sorted(made.keys()) if key.startswith(KEYS.intents_prefix)]
        assert sum(len(life.confirmed) for name in NAMES for life in owners.lives[name].values()) > 50
        assert [key for key in cleared if "/ledgers/" in key] == [], "there never was an orphan"

    in_a_broker(scenario)
