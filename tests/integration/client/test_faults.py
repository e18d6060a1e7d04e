"""The asyncio client and a standalone that is killed, reset, slow or stopped: nothing confirmed is lost, and
nothing is stored twice where duplicates are dropped.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator

import pytest
from magnetar.client import Batching, Client, MessageId
from magnetar.client.errors import SendTimeout

from tests.integration.client.tcp_proxy import TcpProxy
from tests.integration.harness import StandaloneServer, temporary_directory

pytestmark = pytest.mark.full

BROKER, PROXY = "127.0.0.1", "127.0.0.2"
MESSAGES = 3_000


@pytest.fixture(scope="module")
def _server() -> Iterator[StandaloneServer]:
    """A standalone that drops duplicates, with a second address of its port for the proxy."""
    directory = temporary_directory()
    server = StandaloneServer(directory, {"brokerDeduplicationEnabled": "true"})
    port = server.endpoint.port
    server.settings["advertisedListeners"] = (
        f"direct:pulsar://{BROKER}:{port},proxied:pulsar://{PROXY}:{port}"
    )
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def running(_server: StandaloneServer) -> StandaloneServer:
    if not _server.running:
        _server.start()
    return _server


def proxy(server: StandaloneServer, seed: int) -> TcpProxy:
    return TcpProxy(PROXY, BROKER, server.endpoint.port, random.Random(seed))


def through(proxy: TcpProxy) -> Client:
    return Client(f"pulsar://{proxy.address}:{proxy.port}", listener_name="proxied", waits_for_service=True)


async def stored(server: StandaloneServer, topic: str) -> list[int]:
    """The numbers of the messages of a topic, in order."""
    async with Client(server.endpoint.service_url, listener_name="direct") as client:
        reader = await client.create_reader(topic, MessageId.EARLIEST)
        found = []
        while await reader.has_message_available():
            found.append(int((await reader.read()).data))
        return found


async def publish(
    client: Client, topic: str, batching: Batching | None, on_confirmed: Callable[[int], None]
) -> None:
    """Sends all messages, and tells the numbers of those that are confirmed."""
    await (await client.subscribe(topic, "keeps all", initial_position="earliest")).close()
    async with await client.create_producer(
        topic, name="p", batching=batching, send_timeout_s=0, max_pending_messages=200
    ) as producer:

        async def send(number: int) -> None:
            await producer.send(b"%d" % number)
            on_confirmed(number)

        sending: set[asyncio.Task[None]] = set()
        for number in range(MESSAGES):
            sending.add(asyncio.ensure_future(send(number)))
            if len(sending) >= 100:
                _, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*sending)


async def consume(client: Client, topic: str, received: list[int]) -> None:
    """Receives and acknowledges until every message was here."""
    async with await client.subscribe(topic, "s", initial_position="earliest", type="shared") as consumer:
        missing = set(range(MESSAGES))
        while missing:
            message = await consumer.receive(60)
            received.append(int(message.data))
            missing.discard(int(message.data))
            consumer.acknowledge_nowait(message)


@pytest.mark.parametrize("batching", [Batching(), None], ids=["batched", "single"])
def test_a_broker_killed_in_the_middle_loses_nothing_confirmed(
    running: StandaloneServer, topic: str, batching: Batching | None
) -> None:
    async def scenario() -> None:
        confirmed: list[int] = []
        received: list[int] = []
        at_kills: list[int] = []

        def confirm(number: int) -> None:
            confirmed.append(number)
            if len(confirmed) in (MESSAGES // 5, MESSAGES * 3 // 5):
                running.kill()
                at_kills.append(len(confirmed))
                running.launch()

        async with Client(running.endpoint.service_url, waits_for_service=True) as client:
            async with asyncio.timeout(200):
                await asyncio.gather(
                    publish(client, topic, batching, confirm), consume(client, topic, received)
                )
        running.wait_until_healthy()
        assert len(at_kills) == 2
        assert sorted(confirmed) == list(range(MESSAGES))
        assert await stored(running, topic) == list(range(MESSAGES))
        assert set(received) == set(range(MESSAGES))

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(2))
def test_connections_reset_at_random_bytes_lose_nothing(
    running: StandaloneServer, topic: str, seed: int
) -> None:
    async def scenario() -> None:
        confirmed: list[int] = []
        received: list[int] = []
        async with proxy(running, seed).running() as faulty, through(faulty) as client:
            faulty.reset_bytes_max = 30_000
            async with asyncio.timeout(200):
                await asyncio.gather(
                    publish(client, topic, Batching(max_messages=20), confirmed.append),
                    consume(client, topic, received),
                )
            faulty.reset_bytes_max = 0
            assert faulty.resets > 3
        assert await stored(running, topic) == list(range(MESSAGES))
        assert set(received) == set(range(MESSAGES))

    asyncio.run(scenario())


def test_a_slow_path_slows_and_breaks_nothing(running: StandaloneServer, topic: str) -> None:
    async def scenario() -> None:
        confirmed: list[int] = []
        received: list[int] = []
        async with proxy(running, 0).running() as faulty, through(faulty) as client:
            faulty.piece_bytes, faulty.pause_s = 997, 0.002
            async with asyncio.timeout(200):
                await asyncio.gather(
                    publish(client, topic, Batching(), confirmed.append), consume(client, topic, received)
                )
            assert client.parts.memory.used_bytes == 0
        assert await stored(running, topic) == list(range(MESSAGES))
        assert sorted(received) == list(range(MESSAGES))

    asyncio.run(scenario())


def test_a_broker_that_stands_still_times_messages_out_and_goes_on(
    running: StandaloneServer, topic: str
) -> None:
    async def scenario() -> None:
        async with Client(running.endpoint.service_url) as client:
            producer = await client.create_producer(topic, name="p", send_timeout_s=1, batching=None)
            await producer.send(b"0")
            running.pause()
            try:
                with pytest.raises(SendTimeout, match="may be stored or not"):
                    await producer.send(b"1")
            finally:
                running.resume()
            # The same message again, under its number: it is stored once.
            await producer.send(b"1", sequence_id=1)
            await producer.send(b"2", sequence_id=2)
            assert producer.last_sequence_id == 2
        assert await stored(running, topic) == [0, 1, 2]

    asyncio.run(scenario())
