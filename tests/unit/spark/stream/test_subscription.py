"""The subscription of a stream: it is held without messages, and acknowledged behind the checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from magnetar.client.errors import ConsumerBusy
from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import CommandAck, CommandSubscribe, ServerError
from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.message_ids import MessageAt
from magnetar.spark.source.reading_plan import TopicLedgers
from magnetar.spark.source_options import parse_options
from magnetar.spark.stream import subscription
from magnetar.spark.stream.offsets import TopicOffset
from magnetar.spark.stream.subscription import Acknowledger

from tests.unit.spark.made_up_broker import MadeUpBroker, in_turn, refused

TOPIC = "persistent://public/default/t-partition-1"
SERVICE = ServiceAddress("127.0.0.1:1")
DESCRIBED = TopicLedgers(
    topic=TOPIC,
    partition=1,
    creation_id=1,
    service=SERVICE,
    owner=SERVICE,
    ledgers=(Ledger(ledger_id=3, last_entry_id=90, entries=91),),
)

Steps = Callable[[MadeUpBroker, Acknowledger], Awaitable[None]]


def stored(command: Any) -> bytes:
    return commands.ack_response(command.consumer_id, command.request_id)


def run(monkeypatch: pytest.MonkeyPatch, steps: Steps) -> MadeUpBroker:
    """Runs steps with an acknowledger of a broker; returns the broker."""
    monkeypatch.setattr(subscription, "first_needed_before", lambda topic, at: at)  # No chunks reach back.

    async def main() -> MadeUpBroker:
        async with asyncio.timeout(30), MadeUpBroker() as broker:
            broker.answers["ack"] = stored
            options = parse_options({"topic": TOPIC, "service.url": broker.url, "subscription": "s"})
            acknowledger = Acknowledger(options)
            try:
                await asyncio.to_thread(acknowledger.subscribe, [TOPIC])
                await steps(broker, acknowledger)
            finally:
                await asyncio.to_thread(acknowledger.close)
            return broker

    return asyncio.run(main())


async def acknowledge(acknowledger: Acknowledger, entry_id: int) -> None:
    """Acknowledges everything before an entry."""
    offsets = {TOPIC: TopicOffset(1, MessageAt(3, entry_id), entry_id)}
    await asyncio.to_thread(acknowledger.acknowledge, offsets, {TOPIC: DESCRIBED})


def acknowledged(broker: MadeUpBroker) -> list[tuple[int, int]]:
    found = broker.of("ack")
    assert all(command.ack_type == CommandAck.Cumulative for command in found)
    return [(each.ledgerId, each.entryId) for command in found for each in command.message_id]


def test_a_subscription_is_durable_from_the_beginning_and_asks_for_no_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(broker: MadeUpBroker, acknowledger: Acknowledger) -> None:
        await acknowledge(acknowledger, 5)
        await acknowledge(acknowledger, 5)
        await acknowledge(acknowledger, 8)

    broker = run(monkeypatch, steps)
    (command,) = broker.of("subscribe")
    assert (command.topic, command.subscription, command.consumer_name) == (TOPIC, "s", "magnetar-spark")
    assert command.durable
    assert command.subType == CommandSubscribe.Exclusive
    assert command.initialPosition == CommandSubscribe.Earliest
    assert acknowledged(broker) == [(3, 4), (3, 7)]
    assert not broker.of("flow")
    assert len(broker.of("close_consumer")) == 1


def test_an_acknowledgement_that_failed_is_given_again_with_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(broker: MadeUpBroker, acknowledger: Acknowledger) -> None:
        broker.answers["ack"] = in_turn(
            lambda command: commands.ack_response(
                command.consumer_id, command.request_id, ServerError.PersistenceError, "no"
            ),
            stored,
        )
        await acknowledge(acknowledger, 5)
        await acknowledge(acknowledger, 5)

    assert acknowledged(run(monkeypatch, steps)) == [(3, 4), (3, 4)]


def test_a_subscription_that_was_lost_for_good_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(broker: MadeUpBroker, acknowledger: Acknowledger) -> None:
        subscribes = broker.answers["subscribe"]
        broker.answers["subscribe"] = refused(ServerError.TopicNotFound, "gone")
        broker.cut()
        await broker.until("subscribe", 2)
        broker.answers["subscribe"] = subscribes
        await acknowledge(acknowledger, 5)
        await acknowledge(acknowledger, 5)

    broker = run(monkeypatch, steps)
    assert acknowledged(broker) == [(3, 4)]
    assert len(broker.of("subscribe")) == 3


def test_a_subscription_that_another_query_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(broker: MadeUpBroker, acknowledger: Acknowledger) -> None:
        broker.answers["subscribe"] = refused(ServerError.ConsumerBusy, "held")
        with pytest.raises(ConsumerBusy):
            await asyncio.to_thread(acknowledger.subscribe, ["persistent://public/default/u-partition-0"])

    run(monkeypatch, steps)
