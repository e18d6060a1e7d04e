"""The client against a broker that is made up: lookups, refusals, and what is on its way as a topic moves."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest
from magnetar.client.client import Client, ClientOptions
from magnetar.client.connection import connect
from magnetar.client.errors import ClientError, ConnectionLost, NoCredentials, Refused
from magnetar.client.messages import MessageId, Outgoing
from magnetar.client.partition_producer import ProducerOptions
from magnetar.client.producer import Producer
from magnetar.common.wire import commands
from magnetar.common.wire.command_parser import command_field
from magnetar.common.wire.frame import FrameDecoder, encode_command
from magnetar.common.wire.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthChallenge,
    CommandSendReceipt,
    MessageIdData,
    ServerError,
)

TOPIC = "persistent://public/default/t"


class Broker:
    """Answers by field of the command: bytes, or a list of which each call takes the first."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, Callable[[Any], bytes]] = {
            "connect": lambda _: commands.connected("test", 20, 5_000_000),
            "partitionMetadata": lambda command: commands.partition_metadata(command.request_id, 0),
            "producer": lambda command: commands.producer_success(command.request_id, "made-up"),
            "lookupTopic": lambda command: commands.lookup_connect(command.request_id, self.url),
            "close_producer": lambda command: commands.success(command.request_id),
            "send": receipt,
        }
        self.url = ""
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"pulsar://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        for writer in self._writers:
            writer.close()
        self._server.close()
        await self._server.wait_closed()

    def of(self, field: str) -> list[Any]:
        return [command for name, command in self.asked if name == field]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        decoder = FrameDecoder()
        while data := await reader.read(65_536):
            for frame in decoder.receive_data(data):
                field = command_field(frame.command)
                command = getattr(frame.command, field)
                self.asked.append((field, command))
                if field in self.answers:
                    writer.write(self.answers[field](command))
        writer.close()


def receipt(command: Any) -> bytes:
    at = MessageIdData(ledgerId=1, entryId=command.sequence_id)
    sent = CommandSendReceipt(producer_id=command.producer_id, sequence_id=command.sequence_id, message_id=at)
    return encode_command(BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=sent))


def with_brokers(scenario: Callable[[Broker, Broker], Awaitable[None]]) -> None:
    async def run() -> None:
        first, second = Broker(), Broker()
        await first.start()
        await second.start()
        try:
            async with asyncio.timeout(30):
                await scenario(first, second)
        finally:
            await first.stop()
            await second.stop()
            await asyncio.sleep(0)

    asyncio.run(run())


async def publish(client: Client, payloads: list[bytes]) -> list[MessageId]:
    ids: list[MessageId] = []
    producer = await Producer.open(
        client, TOPIC, ProducerOptions(batching=False), lambda tags, at: ids.append(at)
    )
    try:
        for payload in payloads:
            await producer.send(Outgoing(payload))
        await producer.flush()
    finally:
        await producer.close()
    return ids


def test_a_lookup_follows_redirects_and_says_what_the_broker_said() -> None:
    async def scenario(first: Broker, second: Broker) -> None:
        first.answers["lookupTopic"] = lambda command: commands.lookup_redirect(
            command.request_id, second.url, authoritative=True
        )
        client = Client(ClientOptions(service_url=first.url, auth_method="token", auth_data=b"secret"))
        try:
            assert len(await publish(client, [b"x"])) == 1
        finally:
            await client.close()
        assert [command.authoritative for command in second.of("lookupTopic")] == [True]
        assert [command.auth_data for command in second.of("connect")] == [b"secret"]
        assert len(second.of("send")) == 1
        assert first.of("send") == []

    with_brokers(scenario)


def test_a_supplier_gives_the_secret_for_each_connection_and_challenge() -> None:
    async def scenario(first: Broker, _: Broker) -> None:
        secrets = iter([b"first", b"second"])
        challenge = BaseCommand(
            type=BaseCommand.AUTH_CHALLENGE,
            authChallenge=CommandAuthChallenge(challenge=AuthData(auth_method_name="token")),
        )
        connected = first.answers["connect"]
        responded = asyncio.Event()

        def note_response(_: object) -> bytes:
            responded.set()
            return b""

        first.answers["authResponse"] = note_response
        first.answers["connect"] = lambda command: connected(command) + encode_command(challenge)
        client = Client(
            ClientOptions(service_url=first.url, auth_method="token", auth_data=lambda: next(secrets))
        )
        try:
            await publish(client, [b"x"])
            await responded.wait()
        finally:
            await client.close()
        assert [command.auth_data for command in first.of("connect")] == [b"first"]
        assert [command.response.auth_data for command in first.of("authResponse")] == [b"second"]

    with_brokers(scenario)


def test_a_supplier_that_waits_holds_up_nothing_else() -> None:
    async def scenario(first: Broker, _: Broker) -> None:
        asked = threading.Event()
        given = threading.Event()

        def supply() -> bytes:
            asked.set()
            assert given.wait(20)
            return b"late"

        client = Client(ClientOptions(service_url=first.url, auth_method="token", auth_data=supply))
        try:
            publishing = asyncio.ensure_future(publish(client, [b"x"]))
            assert await asyncio.to_thread(asked.wait, 20)
            assert first.of("connect") == []
            given.set()
            assert len(await publishing) == 1
        finally:
            given.set()
            await client.close()
        assert [command.auth_data for command in first.of("connect")] == [b"late"]

    with_brokers(scenario)


def test_a_supplier_that_fails_is_told_before_there_is_a_connection() -> None:
    async def scenario(first: Broker, _: Broker) -> None:
        def supply() -> bytes:
            raise FileNotFoundError(2, "No such file or directory", "/token")

        client = Client(ClientOptions(service_url=first.url, auth_method="token", auth_data=supply))
        try:
            with pytest.raises(NoCredentials, match=r"^no credentials for .*: /token: No such file"):
                await publish(client, [b"x"])
        finally:
            await client.close()
        assert first.of("connect") == []

    with_brokers(scenario)


def test_behind_a_proxy_the_broker_is_named_in_connect() -> None:
    async def scenario(first: Broker, second: Broker) -> None:
        first.answers["lookupTopic"] = lambda command: commands.lookup_connect(
            command.request_id, "pulsar://inside:6650", proxy_through_service_url=True
        )
        client = Client(ClientOptions(service_url=first.url))
        try:
            await publish(client, [b"x"])
        finally:
            await client.close()
        assert [command.proxy_to_broker_url for command in first.of("connect")] == ["", "inside:6650"]

    with_brokers(scenario)


def test_any_reachable_host_suffices_and_none_is_an_error() -> None:
    async def scenario(first: Broker, second: Broker) -> None:
        await second.stop()
        both = f"{second.url},{first.url.removeprefix('pulsar://')}"
        client = Client(ClientOptions(service_url=both))
        try:
            assert len(await publish(client, [b"x"])) == 1
        finally:
            await client.close()
        await second.start()

        alone = Client(ClientOptions(service_url="pulsar://127.0.0.1:1"))
        with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1: .*start a broker"):
            await publish(alone, [b"x"])
        await alone.close()

    with_brokers(scenario)


def test_transient_errors_are_retried_and_permanent_ones_raised() -> None:
    async def scenario(first: Broker, second: Broker) -> None:
        errors = [ServerError.ServiceNotReady, ServerError.TopicTerminatedError]
        first.answers["producer"] = lambda command: commands.error(
            command.request_id, errors[len(first.of("producer")) - 1], "no"
        )
        client = Client(ClientOptions(service_url=first.url))
        with pytest.raises(Refused, match="takes no more messages"):
            await publish(client, [b"x"])
        await client.close()
        assert len(first.of("producer")) == 2

    with_brokers(scenario)


def test_a_topic_whose_broker_has_died_is_looked_up_until_another_one_serves_it() -> None:
    async def scenario(first: Broker, second: Broker) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as gone:
            dead = f"pulsar://127.0.0.1:{gone.getsockname()[1]}"
        first.answers["lookupTopic"] = lambda command: commands.lookup_connect(
            command.request_id, dead if len(first.of("lookupTopic")) < 3 else second.url
        )
        client = Client(ClientOptions(service_url=first.url))
        try:
            assert len(await publish(client, [b"x"])) == 1
        finally:
            await client.close()
        assert len(second.of("send")) == 1

    with_brokers(scenario)


def test_a_broker_that_wants_another_token_says_so() -> None:
    async def scenario(first: Broker, second: Broker) -> None:
        first.answers["connect"] = lambda _: commands.error(0, ServerError.AuthenticationError, "who are you")
        client = Client(ClientOptions(service_url=first.url))
        with pytest.raises(Refused, match=r"who are you \(AuthenticationError\); give valid credentials"):
            await publish(client, [b"x"])
        await client.close()

    with_brokers(scenario)


def test_unacknowledged_messages_are_resent_to_the_new_owner() -> None:
    async def scenario(first: Broker, second: Broker) -> None:
        def move(command: Any) -> bytes:
            first.answers["lookupTopic"] = lambda asked: commands.lookup_connect(asked.request_id, second.url)
            return commands.close_producer(command.producer_id)

        first.answers["send"] = lambda command: receipt(command) if command.sequence_id < 2 else move(command)
        client = Client(ClientOptions(service_url=first.url))
        try:
            ids = await publish(client, [b"a", b"b", b"c"])
        finally:
            await client.close()
        assert [at.entry_id for at in ids] == [0, 1, 2]
        assert [command.sequence_id for command in second.of("send")] == [2]
        (reopened,) = second.of("producer")
        assert (reopened.producer_name, reopened.epoch) == ("made-up", 1)
        assert not reopened.user_provided_producer_name

    with_brokers(scenario)


@pytest.mark.parametrize("closed_at", [1, 2], ids=["as it opens", "as it comes back"])
def test_a_producer_that_is_closed_right_behind_the_answer_that_opened_it_comes_back(closed_at: int) -> None:
    async def scenario(first: Broker, second: Broker) -> None:
        def opened(command: Any) -> bytes:
            answer = commands.producer_success(command.request_id, "made-up")
            asked = len(first.of("producer"))
            return answer + (commands.close_producer(command.producer_id) if asked == closed_at else b"")

        def sent(command: Any) -> bytes:
            if len(first.of("producer")) < closed_at:
                return commands.close_producer(command.producer_id)
            # A producer that was closed is unknown: what it sends is dropped.
            return receipt(command) if len(first.of("producer")) > closed_at else b""

        first.answers["producer"], first.answers["send"] = opened, sent
        client = Client(ClientOptions(service_url=first.url))
        try:
            ids = await asyncio.wait_for(publish(client, [b"a"]), 10)
        finally:
            await client.close()
        assert [at.entry_id for at in ids] == [0]
        assert len(first.of("producer")) == closed_at + 1

    with_brokers(scenario)


def test_a_message_that_is_too_large_is_refused_here() -> None:
    async def scenario(first: Broker, second: Broker) -> None:
        first.answers["connect"] = lambda _: commands.connected("test", 20, 100)
        client = Client(ClientOptions(service_url=first.url))
        with pytest.raises(ClientError, match=r"101 bytes, .* at most 100"):
            await publish(client, [b"x" * 101])
        await client.close()
        assert first.of("send") == []

    with_brokers(scenario)


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_host_that_can_have_no_address_cannot_be_reached(host: str) -> None:
    with pytest.raises(ConnectionLost, match="cannot connect to"):
        asyncio.run(connect(host, 6650))
