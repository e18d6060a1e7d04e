"""A producer and a consumer of the client against model brokers, in virtual time: connections are reset at
random bytes, brokers die, and the topic moves.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from magnetar.client.client import Client
from magnetar.client.consumer.consumer import Consumer
from magnetar.client.consumer.options import SubscriptionType
from magnetar.client.consumer.redelivery import RedeliveryDelay
from magnetar.client.errors import ClientError
from magnetar.client.messages import MessageId
from magnetar.client.producer.options import Batching
from magnetar.common.wire.batch import batch_messages, parse_metadata, payload_of

from tests.unit.client.model_broker import Broker, Cluster, Entry
from tests.unit.client.virtual_network import Faults, VirtualNetwork, virtually

TOPIC = "persistent://public/default/t"
MESSAGES = 80
TYPES: tuple[SubscriptionType, ...] = ("exclusive", "failover", "shared")


def stored(entries: list[Entry]) -> list[bytes]:
    """The payloads of a topic, in order: each chunked message where its last chunk is."""
    found: list[bytes] = []
    parts: dict[str, list[bytes]] = {}
    for entry in entries:
        metadata, payload = parse_metadata(entry.body), bytes(payload_of(entry.body))
        if metadata.num_chunks_from_msg > 1:
            chunks = parts.setdefault(metadata.uuid, [])
            chunks.append(payload)
            if metadata.chunk_id == metadata.num_chunks_from_msg - 1:
                found.append(b"".join(chunks))
        elif entry.is_batch:
            found += [bytes(each) for _, each in batch_messages(payload, entry.messages)]
        else:
            found.append(payload)
    return found


async def trouble(network: VirtualNetwork, cluster: Cluster, rng: random.Random) -> None:
    """Kills brokers, moves the topic, and resets connections, until it is canceled."""
    names = list(cluster.brokers)
    while True:
        await asyncio.sleep(rng.uniform(0.05, 2.0))
        broker = cluster.brokers[cluster.owners[TOPIC]]
        other = rng.choice([name for name in names if name != broker.name])
        what = rng.choice(["reset", "kill", "move", "move and tell"])
        if what == "reset":
            network.reset_all()
        elif what == "kill":
            broker.kill()
            cluster.owners[TOPIC] = other
            network.loop.call_later(rng.uniform(0.1, 3.0), broker.start)
        else:
            cluster.owners[TOPIC] = other
            url = cluster.brokers[other].url if what == "move and tell" else None
            for session in list(broker.sessions):
                for producer_id in list(session.producers):
                    session.close_producer(producer_id, url)
                for consumer_id in list(session.consumers):
                    session.close_consumer(consumer_id, url)


async def publish(client: Client, rng: random.Random, confirmed: dict[int, MessageId]) -> None:
    batching = rng.choice(
        [None, Batching(), Batching(max_messages=5, max_delay_s=0.05), Batching(by_key=True, max_messages=7)]
    )
    producer = await client.create_producer(
        TOPIC, name="p", send_timeout_s=0, batching=batching, chunking=True, max_pending_messages=30
    )
    sending: list[asyncio.Task[None]] = []

    async def send(number: int) -> None:
        size = 2_500 if rng.random() < 0.1 else rng.randrange(200)
        payload = b"%d " % number + b"x" * size
        confirmed[number] = await producer.send(payload, key=rng.choice(["a", "b", None]))

    for number in range(MESSAGES):
        sending.append(asyncio.ensure_future(send(number)))
        if rng.random() < 0.3:
            await asyncio.sleep(rng.uniform(0, 0.3))
    await asyncio.gather(*sending)
    await producer.close()


async def consume(consumer: Consumer[bytes], rng: random.Random, received: list[int]) -> None:
    async for message in consumer:
        number = int(message.data.split()[0])
        received.append(number)
        if rng.random() < 0.05:
            consumer.negative_acknowledge(message)
        elif rng.random() < 0.1:
            try:
                await consumer.acknowledge([message])
            except ClientError:
                pass  # It comes again.
        else:
            consumer.acknowledge_nowait(message)


def whole_run(seed: int) -> Callable[[VirtualNetwork], Awaitable[None]]:
    async def scenario(network: VirtualNetwork) -> None:
        rng = random.Random(seed)
        cluster = Cluster(deduplication=True, message_bytes_max=2_000)
        brokers = [Broker(cluster, network, name) for name in ("one", "two")]
        cluster.owners[TOPIC] = "one"
        kind = rng.choice(TYPES)
        confirmed: dict[int, MessageId] = {}
        received: list[int] = []
        client = Client("pulsar://one:6650,two:6650", waits_for_service=True)
        consumer = await client.subscribe(
            TOPIC,
            "s",
            type=kind,
            queue_size=rng.choice([0, 1, 10, 1_000]),
            ack_group_s=rng.choice([0.0, 0.1]),
            batch_index_ack=rng.random() < 0.5,
            negative_ack_delay=RedeliveryDelay(0.5, 0.5),
            initial_position="earliest",
        )
        network.faults.reset_probability = rng.choice([0.0, 0.02])
        network.faults.piece_bytes_max = rng.choice([0, 50])
        consuming = asyncio.ensure_future(consume(consumer, rng, received))
        troubling = asyncio.ensure_future(trouble(network, cluster, rng))
        await publish(client, rng, confirmed)
        troubling.cancel()
        network.faults.reset_probability = 0.0
        for broker in brokers:
            broker.start()
        topic = cluster.topics[TOPIC]
        subscription = topic.subscriptions["s"]
        until = network.loop.time() + 600
        while left := subscription.unacked():
            assert network.loop.time() < until, f"never acknowledged: {left}, by {subscription.consumers}"
            await asyncio.sleep(1)
        await client.close()
        await asyncio.gather(consuming, troubling, return_exceptions=True)

        assert sorted(confirmed) == list(range(MESSAGES))
        numbers = [int(payload.split()[0]) for payload in stored(topic.entries)]
        assert sorted(numbers) == list(range(MESSAGES)), "each message is stored, and once"
        assert set(received) == set(range(MESSAGES))

    return scenario


@pytest.mark.seeds(6, full=30, nightly=300)
def test_every_message_is_stored_once_and_acknowledged_whatever_happens(seed: int) -> None:
    virtually(whole_run(seed), seed, Faults(), time_max_s=20_000)
