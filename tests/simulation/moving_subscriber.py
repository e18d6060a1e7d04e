"""A subscriber that follows its topic from broker to broker, and notes what is delivered to it again."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.broker.subscriptions.consumers.consumer import Consumer
from magnetar.common.errors import MagnetarError
from magnetar.common.wire import pulsar_pb2 as pb

from tests.simulation.moving_world import POLL_S, TOPIC, MovingBroker, MovingWorld
from tests.unit.broker.topics.world import ListeningPeer, subscribed

PERMITS: Final = 20
HELD_PROBABILITY: Final = 0.1
"""Of a message to be kept unacknowledged for a while."""


@dataclass(eq=False)
class ReadingPeer(ListeningPeer):
    """Writes down the payloads of messages as well, in the order of arrival."""

    delivered: list[tuple[int, int, int]] = field(default_factory=list)
    """Number, ledger and entry."""

    def write(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            payload = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
            command = pb.BaseCommand.FromString(data[at + 8 : payload])
            if command.type == pb.BaseCommand.MESSAGE:
                where = command.message.message_id
                self.delivered.append((int(data[payload:end]), where.ledgerId, where.entryId))
            else:
                self.commands.append(command)
            at = end


@dataclass(eq=False)
class MovingSubscriber:
    """Acknowledges with receipts; a message whose receipt has come may not come again."""

    world: MovingWorld
    got: Counter[int] = field(default_factory=Counter)
    """How often each number was delivered."""
    acked: set[int] = field(default_factory=set)
    """Acknowledged to a broker that served the topic then."""
    receipts: set[int] = field(default_factory=set)
    """Of those, the ones of which it said that it is durable."""
    came_back: set[int] = field(default_factory=set)
    """Delivered again after the acknowledgement."""
    broke_a_promise: set[int] = field(default_factory=set)
    """Delivered again after the receipt."""
    followed: int = 0
    pause_s: float = POLL_S
    _next: MovingBroker | None = None

    async def run(self, over: asyncio.Event) -> None:
        while not over.is_set():
            broker, self._next = self._next or await self._look_up(), None
            if broker is not None and not broker.dead:
                await self._consume(broker, over)
            await asyncio.sleep(self.pause_s)

    async def _look_up(self) -> MovingBroker | None:
        asked = self.world.rng.choice(self.world.living())
        try:
            return self.world.brokers[(await asked.cluster.ownership.where(TOPIC)).broker_url]
        except MagnetarError:
            return None

    async def _consume(self, broker: MovingBroker, over: asyncio.Event) -> None:
        peer = ReadingPeer(listener="")
        broker.peers.append(peer)
        try:
            topic = await broker.registry.get(TOPIC, create=True)
            subscription, consumer = await subscribed(topic, peer)
        except MagnetarError:
            return
        detached = asyncio.Event()
        consumer.on_detached = lambda code: detached.set()
        subscription.add_permits(consumer, PERMITS)
        held: list[tuple[int, int, int]] = []
        seen = 0
        while peer.connected and not over.is_set():
            for message in peer.delivered[seen:]:
                seen += 1
                self._note(message[0])
                held.append(message)
            if not detached.is_set():
                held = self._ack(subscription, consumer, held)
            for command in peer.commands:
                if command.type == pb.BaseCommand.CLOSE_CONSUMER:
                    url = command.close_consumer.assignedBrokerServiceUrl
                    if url:
                        self.followed += 1
                        self._next = self.world.brokers[url]
                    return
            await asyncio.sleep(self.pause_s)
        if peer.connected and not detached.is_set():
            topic.remove_consumer(subscription, consumer)

    def _note(self, number: int) -> None:
        self.got[number] += 1
        if number in self.receipts:
            self.broke_a_promise.add(number)
        elif number in self.acked:
            self.came_back.add(number)

    def _ack(
        self, subscription: Any, consumer: Consumer, held: list[tuple[int, int, int]]
    ) -> list[tuple[int, int, int]]:
        kept = [each for each in held if self.world.rng.random() < HELD_PROBABILITY]
        for message in held:
            if message in kept:
                continue
            number, ledger_id, entry_id = message
            subscription.ack(ledger_id, entry_id, consumer)
            self.acked.add(number)
            subscription.when_persisted(lambda error, number=number: self._receipt(number, error))
            subscription.add_permits(consumer, 1)
        return kept

    def _receipt(self, number: int, error: MagnetarError | None) -> None:
        if error is None:
            self.receipts.add(number)
