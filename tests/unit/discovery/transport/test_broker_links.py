"""Questions that are passed on to brokers."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandPartitionedTopicMetadataResponse,
    FeatureFlags,
    ServerError,
)
from magnetar.discovery.transport import broker_link, broker_links
from structlog.testing import capture_logs

from tests.unit.discovery.front import FakeBroker, Front, RawClient, until, with_front
from tests.unit.discovery.handlers.test_lookups import partitions


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has much to do connects slowly."""
    monkeypatch.setattr(broker_links, "CONNECT_TIMEOUT_S", 60.0)


Partitions = CommandPartitionedTopicMetadataResponse


def answering(*brokers: FakeBroker) -> None:
    for number, broker in enumerate(brokers):
        broker.answers[BaseCommand.PARTITIONED_METADATA] = lambda command, number=number: (  # type: ignore[misc]
            commands.partition_metadata(command.partitionMetadata.request_id, number + 1)
        )


async def asked(client: RawClient) -> Partitions:
    return (await client.ask(partitions())).partitionMetadataResponse


def test_brokers_take_turns_and_each_keeps_one_connection() -> None:
    async def body(front: Front) -> None:
        answering(front.a, front.b)
        clients = [await front.client() for _ in range(4)]
        answers = [(await asked(client)).partitions for client in clients for _ in range(5)]
        assert sorted(answers) == [1] * 10 + [2] * 10
        assert len(front.a.connections) == len(front.b.connections) == 1

    with_front(body)


def test_many_questions_at_once_get_each_its_own_answer() -> None:
    async def body(front: Front) -> None:
        def by_name(command: BaseCommand) -> bytes:
            request = command.partitionMetadata
            return commands.partition_metadata(request.request_id, int(request.topic.rpartition("-")[2]))

        for broker in (front.a, front.b):
            broker.answers[BaseCommand.PARTITIONED_METADATA] = by_name
        clients = [await front.client() for _ in range(5)]
        for client in clients:
            client.send(*(partitions(f"persistent://public/default/t-{n}", n) for n in range(1, 101)))
        for client in clients:
            answers = [(await client.next()).partitionMetadataResponse for _ in range(100)]
            assert sorted(each.request_id for each in answers) == list(range(1, 101))
            assert all(each.partitions == each.request_id for each in answers)

    with_front(body)


def test_a_broker_that_cannot_be_reached_is_left_for_another() -> None:
    async def body(front: Front) -> None:
        answering(front.a, front.b)
        registration = front.a.registration()
        registration.addresses.broker_url = "pulsar://127.0.0.1:1"
        await front.register(registration)
        client = await front.client()
        with capture_logs() as logged:
            assert [(await asked(client)).partitions for _ in range(4)] == [2] * 4
        # Clients may ask as often as they like: a broker that is down is a line now and then.
        (line,) = (each for each in logged if each["log_level"] not in ("debug", "info"))
        assert line["event"] == "request to a broker failed"
        assert "refused" in line["reason"] or "Connect call failed" in line["reason"]

    with_front(body)


def test_broker_without_a_timely_answer_is_reported_as_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_links, "CONNECT_TIMEOUT_S", 0.05)

    async def body(front: Front) -> None:
        never = asyncio.Event()

        async def open_link(*_: object) -> None:
            await never.wait()

        monkeypatch.setattr(broker_link.BrokerLink, "open", open_link)
        client = await front.client()
        answer = await asked(client)
        assert answer.error == ServerError.ServiceNotReady
        assert "cannot be reached: no answer in time" in answer.message

    with_front(body)


def test_a_broker_that_ends_while_it_is_asked_is_left_for_another() -> None:
    async def body(front: Front) -> None:
        async def hang_up(client: RawClient) -> None:
            await client.next()

        front.a.on_connected = hang_up
        answering(front.a, front.b)
        client = await front.client()
        assert [(await asked(client)).partitions for _ in range(4)] == [2] * 4

    with_front(body)


def test_no_answer_in_time_is_said_and_the_connection_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_links, "ANSWER_TIMEOUT_S", 0.2)

    async def body(front: Front) -> None:
        client = await front.client()
        answer = await asked(client)
        assert (answer.response, answer.error) == (Partitions.Failed, ServerError.ServiceNotReady)
        await until(lambda: front.a.open_connections + front.b.open_connections == 0)
        answering(front.a, front.b)
        assert (await asked(client)).response == Partitions.Success

    with_front(body)


def test_unanswered_questions_of_a_broker_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_link, "PENDING_MAX", 1)

    async def body(front: Front) -> None:
        client = await front.client()
        # One for each broker, which never answers; the third is one too many.
        client.send(*(partitions(request_id=number) for number in range(3)))
        answer = (await client.next()).partitionMetadataResponse
        assert answer.error == ServerError.TooManyRequests

    with_front(body)


def test_pings_of_the_broker_are_answered_and_a_broker_that_leaves_is_forgotten() -> None:
    async def body(front: Front) -> None:
        answering(front.a, front.b)
        client = await front.client()
        for _ in range(2):
            await asked(client)
        front.a.connections[0].writer.write(commands.PING)
        await until(lambda: front.a.received[-1].type == BaseCommand.PONG)
        await front.store.delete("/magnetar/test/v1/brokers/available/a%3A8080")
        await until(lambda: front.a.open_connections == 0)
        assert front.b.open_connections == 1

    with_front(body)


def test_a_broker_that_leaves_while_it_is_connected_to_keeps_no_connection() -> None:
    async def body(front: Front) -> None:
        answer = asyncio.Event()

        async def connected_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await answer.wait()
            writer.write(commands.connected("late", 19, 5 << 20, FeatureFlags()))
            await RawClient(reader, writer).ended()
            writer.close()
            ended.set()

        ended = asyncio.Event()
        late = await asyncio.start_server(connected_late, "127.0.0.1", 0)
        front.opened.callback(late.close)
        answering(front.b)
        registration = front.a.registration()
        registration.addresses.broker_url = f"pulsar://127.0.0.1:{late.sockets[0].getsockname()[1]}"
        await front.register(registration)
        client = await front.client()
        client.send(partitions(request_id=1), partitions(request_id=2))
        await until(lambda: "a:8080" in front.discovery._links._links)
        await front.store.delete("/magnetar/test/v1/brokers/available/a%3A8080")
        await until(lambda: front.discovery.directory.get("a:8080") is None)
        answer.set()
        for _ in range(2):
            assert (await client.next()).partitionMetadataResponse.partitions == 1
        await asyncio.wait_for(ended.wait(), 30)

    with_front(body)


def test_a_broker_whose_address_leads_back_to_discovery_is_not_asked() -> None:
    """It would ask itself, which would ask itself again."""

    async def body(front: Front) -> None:
        await front.store.delete("/magnetar/test/v1/brokers/available/b%3A8080")
        registration = front.a.registration()
        registration.addresses.broker_url = f"pulsar://127.0.0.1:{front.discovery.port}"
        await front.register(registration)
        await until(lambda: front.discovery.directory.get("b:8080") is None)
        answer = await asked(await front.client())
        assert answer.error == ServerError.ServiceNotReady
        assert "is that of a discovery" in answer.message

    with_front(body)


def test_brokers_that_cannot_be_asked_are_one_line_a_second_in_the_log() -> None:
    async def body(front: Front) -> None:
        for broker in (front.a, front.b):
            registration = broker.registration()
            registration.addresses.broker_url = "pulsar://127.0.0.1:1"
            await front.register(registration)
        client = await front.client()
        with capture_logs() as logged:
            client.send(*(partitions(request_id=number) for number in range(200)))
            for _ in range(200):
                assert (await client.next()).partitionMetadataResponse.error == ServerError.ServiceNotReady
        lines = [line for line in logged if line["event"] == "request to a broker failed"]
        assert 0 < len(lines) < 100

    with_front(body)


def test_a_client_that_leaves_does_not_end_the_question_of_another() -> None:
    async def body(front: Front) -> None:
        held = asyncio.Event()

        async def late(client: RawClient) -> None:
            for _ in range(2):
                question = (await client.next()).partitionMetadata
                await held.wait()
                client.writer.write(commands.partition_metadata(question.request_id, 9))
            await client.ended()

        front.a.on_connected = front.b.on_connected = late
        leaving, staying = await front.client(), await front.client()
        leaving.send(partitions(request_id=1))
        staying.send(partitions(request_id=2))
        await until(lambda: len(front.a.connections) == len(front.b.connections) == 1)
        leaving.writer.transport.abort()
        held.set()
        assert (await staying.next()).partitionMetadataResponse.partitions == 9

    with_front(body)
