"""Clients that ask: handshake, keep-alive, bounds, and what is nobody's business here."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.closed_transport import ClosedTransport
from magnetar.common.security.identity import Credential, Identity
from magnetar.common.security.proxy_protocol.config import ProxyProtocolConfig
from magnetar.common.wire import commands
from magnetar.common.wire.frame import SIZES, encode_command
from magnetar.common.wire.pulsar_pb2 import (
    BaseCommand,
    CommandFlow,
    CommandNewTxn,
    CommandPing,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    ServerError,
)
from magnetar.discovery.transport import connection
from structlog.testing import capture_logs

from tests.unit.common.security.authentication.test_authenticator import Provider, made
from tests.unit.discovery.front import TOPIC, Front, RawClient, config, connect_command, until, with_front
from tests.unit.discovery.handlers.test_lookups import lookup, partitions

PING = BaseCommand(type=BaseCommand.PING, ping=CommandPing())


def protocol_errors(reason: str) -> float:
    return REGISTRY.get_sample_value("magnetar_discovery_protocol_errors_total", {"reason": reason}) or 0.0


def test_only_what_works_is_announced() -> None:
    async def body(front: Front) -> None:
        client = await front.client(connect=connect_command())
        connected = (await client.next()).connected
        assert connected.server_version.startswith("Magnetar discovery")
        assert connected.protocol_version == 19
        assert connected.max_message_size == 5 << 20
        flags = connected.feature_flags
        assert flags.supports_get_partitioned_metadata_without_auto_creation
        assert not flags.supports_topic_watchers
        assert not flags.supports_auth_refresh
        assert not flags.supports_broker_entry_metadata

    with_front(body)


def test_a_ping_is_answered() -> None:
    async def body(front: Front) -> None:
        assert (await (await front.client()).ask(PING)).type == BaseCommand.PONG

    with_front(body)


@pytest.mark.parametrize(
    "command",
    [
        BaseCommand(
            type=BaseCommand.PRODUCER, producer=CommandProducer(topic=TOPIC, producer_id=1, request_id=5)
        ),
        BaseCommand(
            type=BaseCommand.SUBSCRIBE,
            subscribe=CommandSubscribe(
                topic=TOPIC, subscription="s", subType=CommandSubscribe.Shared, consumer_id=1, request_id=5
            ),
        ),
    ],
    ids=["producer", "subscribe"],
)
def test_broker_only_commands_are_refused_and_the_connection_stays_open(
    command: BaseCommand,
) -> None:
    async def body(front: Front) -> None:
        client = await front.client()
        with capture_logs() as logged:
            error = (await client.ask(command)).error
        (line,) = (each for each in logged if each["event"] == "commands refused")
        assert line["request_id"] == f"{line['peer']}#5"
        assert (error.request_id, error.error) == (5, ServerError.NotAllowedError)
        assert "discovery" in error.message
        assert (await client.ask(PING)).type == BaseCommand.PONG

    with_front(body)


def test_each_refusal_has_the_form_that_its_request_waits_for() -> None:
    async def body(front: Front) -> None:
        client = await front.client()
        transaction = BaseCommand(type=BaseCommand.NEW_TXN, newTxn=CommandNewTxn(request_id=6))
        assert (await client.ask(transaction)).newTxnResponse.error == ServerError.NotAllowedError
        send = BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=1, sequence_id=2))
        refused = (await client.ask(send)).send_error
        assert (refused.producer_id, refused.sequence_id) == (1, 2)
        flow = BaseCommand(type=BaseCommand.FLOW, flow=CommandFlow(consumer_id=1, messagePermits=1))
        # Nobody waits for an answer to a Flow.
        assert (await client.ask(flow, PING)).type == BaseCommand.PONG

    with_front(body)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (SIZES.pack(256 * 1024, 16), "frame_too_large"),
        (SIZES.pack(8, 100), "malformed_frame"),
        (SIZES.pack(7, 3) + b"\xff\xff\xff", "malformed_frame"),
        (encode_command(connect_command()), "protocol"),
    ],
    ids=["too large", "contradicting sizes", "no command", "a second Connect"],
)
def test_bad_frames_end_their_connection_with_one_line_and_a_count(data: bytes, reason: str) -> None:
    async def body(front: Front) -> None:
        other, client = await front.client(), await front.client()
        before = protocol_errors(reason)
        with capture_logs() as logged:
            client.writer.write(data)
            assert (await client.next()).type == BaseCommand.ERROR
            await client.ended()
        assert [line["event"] for line in logged] == ["closing connection"]
        assert protocol_errors(reason) == before + 1
        assert (await other.ask(PING)).type == BaseCommand.PONG

    with_front(body)


def test_a_connection_that_does_not_begin_with_connect_is_closed() -> None:
    async def body(front: Front) -> None:
        client = await front.client(connect=PING)
        assert "not CONNECT" in (await client.next()).error.message
        await client.ended()

    with_front(body)


def test_silence_is_pinged_and_then_ended_and_a_pong_keeps_the_connection() -> None:
    async def body(front: Front) -> None:
        quiet, answering = await front.client(), await front.client()
        mute = await front.client(connect=PING)

        async def answer() -> None:
            while True:
                assert (await answering.next()).type == BaseCommand.PING
                answering.writer.write(commands.PONG)

        answers = asyncio.create_task(answer())
        await mute.ended()
        assert (await quiet.next()).type == BaseCommand.PING
        await quiet.ended()
        answers.cancel()
        await asyncio.wait([answers])
        answering.send(lookup("persistent://public/nowhere/t"))
        assert (await answering.next()).type == BaseCommand.LOOKUP_RESPONSE

    settings = config()
    with_front(body, replace(settings, listener=replace(settings.listener, keep_alive_interval_s=1)))


def test_a_process_that_stood_still_hears_its_clients_before_it_counts_their_silence() -> None:
    async def body(front: Front) -> None:
        client = await front.client()
        assert (await client.next()).type == BaseCommand.PING
        client.writer.write(commands.PONG)
        await client.writer.drain()
        (ours,) = front.discovery._listener._connections
        # What a process does that was stopped for longer than the interval: timers come before sockets.
        ours._heard = False
        ours._check_alive()
        await asyncio.sleep(0.2)
        assert (await client.ask(PING)).type == BaseCommand.PONG

    settings = config()
    with_front(body, replace(settings, listener=replace(settings.listener, keep_alive_interval_s=1)))


def test_a_connection_that_never_says_connect_is_ended() -> None:
    async def body(front: Front) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.discovery.port)
        assert b"no Connect" in await asyncio.wait_for(reader.read(), 30)
        writer.close()

    settings = config()
    with_front(body, replace(settings, listener=replace(settings.listener, keep_alive_interval_s=1)))


def test_questions_of_one_connection_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUESTS_MAX", 3)

    async def body(front: Front) -> None:
        client = await front.client()
        # The broker that is asked never answers.
        client.send(*(partitions(request_id=number) for number in range(4)))
        answer = (await client.next()).partitionMetadataResponse
        assert (answer.request_id, answer.error) == (3, ServerError.TooManyRequests)
        other = await front.client()
        assert (await other.ask(PING)).type == BaseCommand.PONG

    with_front(body)


@pytest.mark.full
def test_a_client_that_does_not_read_its_answers_is_not_read_on() -> None:
    async def body(front: Front) -> None:
        client = await front.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        pings = encode_command(PING) * 10_000
        sent, settled = 0, -1

        async def flood() -> None:
            nonlocal sent
            while True:
                client.writer.write(pings)
                await client.writer.drain()
                await asyncio.sleep(0)
                sent += len(pings)

        flooding = asyncio.create_task(flood())
        while settled != sent:
            settled = sent
            await asyncio.sleep(0.3)
        (carried,) = front.discovery._listener._connections
        assert carried._transport.get_write_buffer_size() <= connection.UNREAD_BYTES_MAX + (1 << 20)
        flooding.cancel()
        client.writer.transport.abort()

    with_front(body)


def test_frames_cut_anywhere_are_the_same_commands() -> None:
    async def body(front: Front) -> None:
        await front.own(front.a)
        client = await front.client()
        for byte in encode_command(lookup(request_id=1)) + encode_command(lookup(request_id=2)):
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        for request_id in (1, 2):
            assert (await client.next()).lookupTopicResponse.request_id == request_id

    with_front(body)


def test_a_credential_that_is_revoked_while_it_is_checked_connects_nobody() -> None:
    async def body(front: Front) -> None:
        provider = Provider("Basic", "basic")
        accept = provider.authenticate

        async def authenticate(credential: Credential, address: str) -> Identity:
            identity = await accept(credential, address)
            provider.changed = True  # the user is removed while the password is compared in a thread
            return identity

        provider.authenticate = authenticate  # type: ignore[method-assign]
        front.discovery._listener._environment.services.authenticator = made("", 0, provider)
        connect = connect_command()
        connect.connect.auth_method_name, connect.connect.auth_data = "basic", b"good"
        client = await front.client(connect=connect)
        with pytest.raises(EOFError):
            await client.next()

    with_front(body)


def test_a_command_while_credentials_are_checked_ends_the_connection() -> None:
    async def body(front: Front) -> None:
        front.discovery._listener._environment.services.authenticator = made("anyone")
        client = await front.client()
        assert (await client.ask(PING)).type == BaseCommand.PONG
        both = RawClient(*await asyncio.open_connection("127.0.0.1", front.discovery.port))
        front.opened.callback(both.writer.close)
        both.send(connect_command(), lookup())
        error = (await both.next()).error
        assert (error.error, "before Connected" in error.message) == (ServerError.NotAllowedError, True)
        await both.ended()

    with_front(body)


def test_a_proxy_header_gives_the_clients_address() -> None:
    async def body(front: Front) -> None:
        client = RawClient(*await asyncio.open_connection("127.0.0.1", front.discovery.port))
        front.opened.callback(client.writer.close)
        client.writer.write(b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 6650\r\n")
        assert (await client.ask(connect_command())).type == BaseCommand.CONNECTED
        [connection] = front.discovery._listener._connections
        assert (connection.address, connection.host) == ("192.0.2.7:51000", "192.0.2.7")
        refused = RawClient(*await asyncio.open_connection("127.0.0.1", front.discovery.port))
        front.opened.callback(refused.writer.close)
        refused.send(connect_command())
        await refused.ended()

    behind = ProxyProtocolConfig(enabled=True, networks=("127.0.0.0/8",))
    with_front(body, replace(config(), proxy_protocol=behind))


def test_a_connection_that_ended_holds_no_transport() -> None:
    async def body(front: Front) -> None:
        client = await front.client()
        [connection] = front.discovery._listener._connections
        client.writer.close()
        await until(lambda: isinstance(connection._transport, ClosedTransport))

    with_front(body)
