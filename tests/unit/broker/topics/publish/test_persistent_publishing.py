"""Deduplication that is switched by policy while a topic is served, over simulated storage."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.publish.access_modes import EXCLUSIVE_WITH_FENCING
from magnetar.broker.topics.publish.producer import Producer
from magnetar.common.errors import LogFailed, OwnershipLost, ProducerFenced
from magnetar.common.metadata.values import Policies, TopicPolicies, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.varint import encode_varint
from magnetar.ledger.managed_ledger.appender import Appender

from tests.simulation.power_loss import KEYS
from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, producer_of, sends
from tests.unit.ledger.managed_ledger.harness import until

NAME = TopicName.parse("orders")


async def load(made: Topics) -> PersistentTopic:
    return cast(PersistentTopic, await made.load("orders"))


async def unload(made: Topics, topic: PersistentTopic) -> None:
    await topic.close()
    made.registry._forget(topic)


async def say(made: Topics, topic: PersistentTopic, policies: Policies) -> None:
    """The topic's own policies are these, and it knows them."""
    before = topic.policies
    await made.process.metadata.put(KEYS.topic_policies(NAME), encode(TopicPolicies(policies=policies)))
    made.registry.policies_changed(None, NAME)
    await until(lambda: topic.policies is not before)


def answers(peer: ListeningPeer) -> list[str]:
    """What its messages were answered, in the order of the wire."""
    duplicate = 2**64 - 1
    result = []
    for command in peer.commands:
        if command.type == pb.BaseCommand.SEND_RECEIPT:
            again = command.send_receipt.message_id.entryId == duplicate
            result.append(f"{command.send_receipt.sequence_id}{' again' if again else ''}")
        elif command.type == pb.BaseCommand.SEND_ERROR:
            result.append(f"{command.send_error.sequence_id} refused")
    return result


def publish(topic: PersistentTopic, producer: Producer, *ids: int) -> None:
    for number in ids:
        topic.publishing.publish(producer, sends(b"%d" % number, first=number))


async def answered(peer: ListeningPeer, *expected: str) -> None:
    await until(lambda: len(answers(peer)) >= len(expected))
    assert answers(peer) == [*expected]
    peer.commands.clear()


def deduplicating(on: bool) -> Policies:
    return Policies(deduplication=on)


def test_a_policy_switches_deduplication_on_and_off() -> None:
    async def scenario(made: Topics) -> None:
        topic, peer = await load(made), ListeningPeer()
        producer = await producer_of(topic, peer)
        publish(topic, producer, 0, 0)
        await answered(peer, "0", "0")
        await say(made, topic, deduplicating(True))
        publish(topic, producer, 0, 1, 1, 0)
        await answered(peer, "0", "1", "1 again", "0 again")
        await say(made, topic, deduplicating(False))
        publish(topic, producer, 1, 0)
        await answered(peer, "1", "0")
        await say(made, topic, deduplicating(True))
        publish(topic, producer, 1, 1)
        await answered(peer, "1", "1 again")
        assert topic.storage_entries == 7

    in_a_broker(scenario)


def test_what_is_on_its_way_at_a_switch_is_answered_in_order_and_counts_as_it_was_taken() -> None:
    async def scenario(made: Topics) -> None:
        topic, peer = await load(made), ListeningPeer()
        producer = await producer_of(topic, peer)
        on, off = replace(topic.policies, deduplication=True), topic.policies
        publish(topic, producer, 0, 1)
        topic.apply_policies(on)
        publish(topic, producer, 2, 2, 3)
        topic.apply_policies(off)
        publish(topic, producer, 3, 4)
        topic.apply_policies(on)
        publish(topic, producer, 4, 4, 5)
        await answered(peer, "0", "1", "2", "2 again", "3", "3", "4", "4", "4 again", "5")
        assert topic.publishing.last_sequence_id("p") == 5
        assert producer.pending_runs == 0

    in_a_broker(scenario)


def test_what_is_known_survives_when_the_policy_does() -> None:
    async def scenario(made: Topics) -> None:
        topic, peer = await load(made), ListeningPeer()
        producer = await producer_of(topic, peer)
        publish(topic, producer, *range(10))
        await say(made, topic, deduplicating(True))
        publish(topic, producer, 10, 11)
        await until(lambda: len(answers(peer)) == 12)
        await unload(made, topic)

        topic, peer = await load(made), ListeningPeer()
        assert topic.publishing.last_sequence_id("p") == 11
        producer = await producer_of(topic, peer)
        publish(topic, producer, 11, 12)
        await answered(peer, "11 again", "12")
        await say(made, topic, deduplicating(False))
        await unload(made, topic)

        topic = await load(made)
        assert topic.publishing.last_sequence_id("p") == -1
        assert topic.ledger.deduplication.loaded is None
        await unload(made, topic)

        await made.process.metadata.put(
            KEYS.topic_policies(NAME), encode(TopicPolicies(policies=deduplicating(True)))
        )
        topic, peer = await load(made), ListeningPeer()
        producer = await producer_of(topic, peer)
        publish(topic, producer, 3, 3)
        await answered(peer, "3", "3 again")

    in_a_broker(scenario)


def test_what_was_taken_before_the_switch_is_not_replayed_as_known() -> None:
    """A name that begins anew while deduplication is switched on must not meet its former ids later."""

    async def scenario(made: Topics) -> None:
        topic, peer = await load(made), ListeningPeer()
        producer = await producer_of(topic, peer)
        publish(topic, producer, 100)
        await say(made, topic, deduplicating(True))
        publish(topic, producer, 0, 1)
        await until(lambda: len(answers(peer)) == 3)
        await asyncio.sleep(10)
        await unload(made, topic)
        topic, peer = await load(made), ListeningPeer()
        assert topic.publishing.last_sequence_id("p") == 1

    in_a_broker(scenario)


def test_a_switched_on_topic_takes_its_own_snapshot_interval() -> None:
    async def scenario(made: Topics) -> None:
        topic, peer = await load(made), ListeningPeer()
        producer = await producer_of(topic, peer)
        await say(made, topic, Policies(deduplication=True, deduplication_snapshot_s=7))
        await asyncio.sleep(1)
        publish(topic, producer, 0)
        await answered(peer, "0")
        record = topic.ledger._cursor_ledger.deduplication
        assert record is not None
        before = record.durable_mark
        await asyncio.sleep(6)
        assert record.durable_mark == before
        await asyncio.sleep(3)
        assert record.durable_mark == topic.ledger.last_confirmed > before

    in_a_broker(scenario)


def test_what_is_refused_after_a_switch_is_answered_as_it_was_taken() -> None:
    async def scenario(made: Topics) -> None:
        topic, peer = await load(made), ListeningPeer()
        producer = await producer_of(topic, peer)
        publish(topic, producer, 0)
        topic.apply_policies(replace(topic.policies, deduplication=True))
        publish(topic, producer, 1)
        waiting = topic.ledger._appender._queue
        assert waiting is not None, "the ledger is still being made"
        topic.ledger._appender.block(LogFailed("no"))
        topic.ledger._appender._give_back()
        assert answers(peer) == ["0 refused", "1 refused"]
        peer.commands.clear()
        assert producer.pending_runs == 0
        publish(topic, producer, 0)
        await until(lambda: bool(answers(peer)))

    in_a_broker(scenario)


def test_who_is_fenced_while_its_last_id_is_being_found_out_never_publishes() -> None:
    async def scenario(made: Topics) -> None:
        topic = await load(made)
        topic.apply_policies(replace(topic.policies, deduplication=True))
        former = await producer_of(topic, ListeningPeer())
        publish(topic, former, 0)
        topic.producers.remove(former)
        again = asyncio.create_task(producer_of(topic, ListeningPeer()))
        await asyncio.sleep(0)
        assert [*topic.producers] == ["p"]
        leader = Producer(2, "leader", 0, ListeningPeer(), {}, b"", 0, access_mode=EXCLUSIVE_WITH_FENCING)
        await topic.add_producer(leader)
        with pytest.raises(ProducerFenced):
            await again
        assert [*topic.producers] == ["leader"]

    in_a_broker(scenario)


def test_batches_and_chunks_are_judged_after_a_switch_as_well() -> None:
    async def scenario(made: Topics) -> None:
        topic, peer = await load(made), ListeningPeer()
        producer = await producer_of(topic, peer)
        await say(made, topic, deduplicating(True))
        batch = sends(b"batch", first=0)
        batch.highest_varints, batch.message_counts = [encode_varint(9)], [10]
        topic.publishing.publish(producer, batch)
        await until(lambda: len(answers(peer)) == 1)
        topic.publishing.publish(producer, batch)
        publish(topic, producer, 9, 10)
        await answered(peer, "0", "0 again", "9 again", "10")

    in_a_broker(scenario)


class CountingPeer(ListeningPeer):
    """Is charged with what is on its way."""

    pending_bytes = 0

    def publish_pending(self, byte_count: int) -> None:
        self.pending_bytes += byte_count


@pytest.mark.parametrize("deduplication", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("lost", [False, True])
def test_what_is_never_confirmed_is_charged_to_nobody(
    monkeypatch: pytest.MonkeyPatch, deduplication: bool, left: bool, lost: bool
) -> None:
    async def scenario(made: Topics) -> None:
        topic, peer = await load(made), CountingPeer()
        await say(made, topic, deduplicating(deduplication))
        producer = await producer_of(topic, peer)
        publish(topic, producer, 0, 1, 1)  # the last one is held where messages are deduplicated
        assert peer.pending_bytes > 0
        if left:
            topic.producers.remove(producer)
        closing = asyncio.create_task(producer.wait_persisted())
        if lost:
            topic.abandon(OwnershipLost("another owner has it"))
        else:
            monkeypatch.setattr(Appender, "_ledger_confirmed", lambda *args: None)
            await made.registry.unload(NAME)
        await asyncio.wait_for(closing, 20)
        assert peer.pending_bytes == 0
        assert not answers(peer)
        monkeypatch.undo()

    in_a_broker(scenario)
