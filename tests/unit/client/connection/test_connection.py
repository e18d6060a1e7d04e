"""One connection: keep-alive, requests, credentials, and what a peer may send."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from magnetar.client.authentication.methods import Basic, Credentials, Token
from magnetar.client.connection.connection import KEEP_ALIVE_S, Connection, connect
from magnetar.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionLost,
    NoCredentials,
    OperationTimeout,
    TopicNotFound,
)
from magnetar.common.wire.commands import AUTH_REFRESH, PING
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandLookupTopic, FeatureFlags, ServerError

from tests.unit.client.model_broker import Answer, Broker, BrokerSession, Cluster, error_frame, frame
from tests.unit.client.scene import TOPIC, until
from tests.unit.client.virtual_network import VirtualNetwork, Wire, virtually


def lookup() -> BaseCommand:
    request = CommandLookupTopic(topic=TOPIC, request_id=0)
    return BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=request)


def hold(held: list[Any]) -> Answer:
    def answer(command: Any, session: BrokerSession) -> bytes:
        held.append((command, session))
        return b""

    return answer


def reset(command: Any, session: BrokerSession) -> bytes:
    session.wire.reset()
    return b""


class Raw:
    """A host that keeps what it gets and answers nothing but Connect."""

    def __init__(self, network: VirtualNetwork, connected: bytes | None = None) -> None:
        self.received = b""
        self.wires: list[Wire] = []
        self._connected = connected
        if connected is None:
            self._connected = frame("connected", server_version="raw", protocol_version=21)
        network.hosts["raw", 1] = self._accept

    def _accept(self, wire: Wire) -> Raw:
        self.wires.append(wire)
        return self

    def receive(self, data: bytes) -> None:
        if not self.received and self._connected:
            self.wires[-1].to_client(self._connected)
        self.received += data

    def closed(self) -> None:
        pass


def test_a_silent_peer_is_given_up_after_a_ping_without_answer() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        raw = Raw(network)
        connection = await connect("raw", 1)
        began = network.loop.time()
        await until(lambda: connection.lost)
        assert 2 * KEEP_ALIVE_S - 1 < network.loop.time() - began < 2 * KEEP_ALIVE_S + 2
        assert raw.received.count(PING) == 1
        assert "raw:1 is silent" in str(connection.lost)

    virtually(scenario)


def test_a_peer_that_answers_pings_is_kept_and_its_pings_are_answered() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)
        connection = await connect("broker", 6650)
        await asyncio.sleep(10 * KEEP_ALIVE_S)
        assert connection.lost is None
        assert len(broker.of("ping")) >= 9
        broker.sessions[0].send(PING)
        await asyncio.sleep(1)
        assert len(broker.of("pong")) == 1
        connection.close()

    virtually(scenario)


def test_requests_get_their_own_answers_in_any_order() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)
        held: list[Any] = []
        broker.answers["lookupTopic"] = hold(held)
        connection = await connect("broker", 6650)
        asking = [asyncio.ensure_future(connection.request(lookup(), TOPIC)) for _ in range(3)]
        await until(lambda: len(held) == 3)
        for number, (command, session) in reversed(list(enumerate(held))):
            session.on_lookupTopic(command)
            session.send(error_frame(command.request_id, ServerError.UnknownError, f"again {number}"))
        answers = await asyncio.gather(*asking)
        assert [answer.lookupTopicResponse.request_id for answer in answers] == [1, 2, 3]
        await asyncio.sleep(1)
        connection.close()

    virtually(scenario)


def test_a_request_ends_with_its_timeout_and_a_late_answer_is_ignored() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)
        held: list[Any] = []
        broker.answers["lookupTopic"] = hold(held)
        connection = await connect("broker", 6650)
        with pytest.raises(OperationTimeout, match=r"broker:6650 did not answer lookupTopic within 3 s"):
            await connection.request(lookup(), TOPIC, 3.0)
        (late, session) = held.pop()
        session.on_lookupTopic(late)
        await asyncio.sleep(1)
        broker.answers.clear()
        found = await connection.request(lookup(), TOPIC, 3.0)
        assert found.lookupTopicResponse.request_id == 2
        assert not connection._answers
        connection.close()

    virtually(scenario)


def test_requests_fail_when_the_connection_ends_and_after_it() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)
        broker.answers["lookupTopic"] = reset
        connection = await connect("broker", 6650)
        for _ in range(2):
            with pytest.raises(ConnectionLost, match="the connection to broker:6650 ended"):
                await connection.request(lookup(), TOPIC)
        connection.write(PING)  # It is ignored.
        await connection.writable()

    virtually(scenario)


def test_a_refusal_names_its_subject_and_what_to_do() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)
        broker.answers["lookupTopic"] = lambda command, _: error_frame(
            command.request_id, ServerError.TopicNotFound, "not there"
        )
        connection = await connect("broker", 6650)
        with pytest.raises(TopicNotFound, match=rf"^{TOPIC}: not there \(TopicNotFound\); create it"):
            await connection.request(lookup(), TOPIC)
        connection.close()

    virtually(scenario)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an invalid frame"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x09x", "an invalid frame"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x04\xff\xff\xff\xff", "an invalid frame"),
    ],
)
def test_bytes_that_are_no_frame_end_the_connection(data: bytes, reason: str) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        raw = Raw(network)
        connection = await connect("raw", 1)
        raw.wires[0].to_client(data)
        await asyncio.sleep(1)
        assert reason in str(connection.lost)

    virtually(scenario)


def test_frames_for_nobody_are_ignored() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        raw = Raw(network)
        connection = await connect("raw", 1)
        at = {"ledgerId": 1, "entryId": 1}
        for data in (
            frame("send_receipt", producer_id=9, sequence_id=1, message_id=at),
            frame("send_error", producer_id=9, sequence_id=1, error=0, message=""),
            frame("message", consumer_id=9, message_id=at),
            frame("close_producer", producer_id=9, request_id=0),
            frame("close_consumer", consumer_id=9, request_id=0),
            frame("active_consumer_change", consumer_id=9, is_active=True),
            frame("reachedEndOfTopic", consumer_id=9),
            frame("topicMigrated", resource_id=9, resource_type=0),
            frame("watchTopicUpdate", watcher_id=9, topics_hash=""),
            frame("success", request_id=9),
            error_frame(9, ServerError.UnknownError),
        ):
            raw.wires[0].to_client(data)
        await asyncio.sleep(1)
        assert connection.lost is None
        connection.close()

    virtually(scenario)


def test_a_host_that_does_not_answer_is_given_up_in_time() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        Raw(network, connected=b"")
        network.hanging.add(("hangs", 1))
        for host in ("raw", "hangs"):
            with pytest.raises(ConnectionLost, match=f"{host}:1 did not answer within 4 s"):
                await connect(host, 1, timeout_s=4.0)
        with pytest.raises(ConnectionLost, match="cannot connect to nowhere:1: "):
            await connect("nowhere", 1)

    virtually(scenario)


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_host_that_can_have_no_address_cannot_be_reached(host: str) -> None:
    with pytest.raises(ConnectionLost, match="cannot connect to"):
        asyncio.run(connect(host, 6650))


def test_credentials_are_shown_when_connecting_and_at_each_challenge() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)
        secrets = iter([b"first", b"second"])

        class Renewed:
            method = "token"
            blocks = False

            def secret(self) -> bytes:
                return next(secrets)

        connection = await connect("broker", 6650, authentication=Renewed())
        broker.sessions[0].send(
            frame(
                "authChallenge",
                challenge={"auth_method_name": "token", "auth_data": AUTH_REFRESH},
                protocol_version=21,
            )
        )
        await asyncio.sleep(1)
        (hello,) = broker.of("connect")
        (answer,) = broker.of("authResponse")
        assert (hello.auth_method_name, hello.auth_data) == ("token", b"first")
        assert (answer.response.auth_method_name, answer.response.auth_data) == ("token", b"second")
        assert hello.feature_flags.supports_auth_refresh
        connection.close()

    virtually(scenario)


def test_without_fresh_credentials_the_former_ones_answer_a_challenge(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)

        class Once:
            method = "token"
            blocks = False
            given = False

            def secret(self) -> bytes:
                if self.given:
                    raise OSError("the issuer is down")
                self.given = True
                return b"first"

        connection = await connect("broker", 6650, authentication=Once())
        challenge = {"auth_method_name": "token", "auth_data": AUTH_REFRESH}
        broker.sessions[0].send(frame("authChallenge", challenge=challenge, protocol_version=21))
        await asyncio.sleep(1)
        (answer,) = broker.of("authResponse")
        assert answer.response.auth_data == b"first"
        connection.close()

    virtually(scenario)
    assert "the issuer is down" in caplog.text


def test_a_supplier_that_waits_holds_up_nothing_else() -> None:
    async def scenario() -> None:
        given = threading.Event()

        def supply() -> bytes:
            assert given.wait(20)
            raise FileNotFoundError(2, "No such file or directory", "/token")

        connecting = asyncio.ensure_future(
            connect("127.0.0.1", 1, authentication=Credentials("token", supply))
        )
        await asyncio.sleep(0)
        given.set()
        with pytest.raises(NoCredentials, match=r"^no credentials for 127.0.0.1:1: /token: No such file"):
            await connecting

    asyncio.run(scenario())


def test_refused_credentials_are_told_before_anything_else() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        broker = Broker(Cluster(), network)
        broker.answers["connect"] = lambda *_: error_frame(0, ServerError.AuthenticationError, "who are you")
        with pytest.raises(AuthenticationFailed, match=r"who are you .*; give valid credentials"):
            await connect("broker", 6650, authentication=Token("t"))
        await asyncio.sleep(1)
        assert broker.sessions == []

    virtually(scenario)


@pytest.mark.parametrize(
    ("authentication", "method", "secret"),
    [(Token(" t\n"), "token", b"t"), (Token(lambda: "s"), "token", b"s"), (Basic("u", "p"), "basic", b"u:p")],
)
def test_what_methods_show(authentication: Any, method: str, secret: bytes) -> None:
    assert (authentication.method, authentication.secret()) == (method, secret)
    for shown in ("t\n", "lambda", "'p'"):
        assert shown not in repr(authentication)


def test_canceling_an_attempt_closes_what_was_opened() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        Raw(network, connected=b"")
        connecting = asyncio.ensure_future(connect("raw", 1))
        await until(lambda: network.wires)
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        await asyncio.sleep(1)
        assert network.wires == []

    virtually(scenario)


def test_writes_of_one_turn_leave_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        raw = Raw(network)
        connection: Connection = await connect("raw", 1)
        written: list[bytes] = []
        monkeypatch.setattr(raw.wires[0].transport, "write", written.append)
        for _ in range(3):
            connection.write(PING)
        assert written == []
        await asyncio.sleep(0)
        assert written == [PING * 3]
        connection.close()

    virtually(scenario)


def test_what_the_broker_can_do_is_known_from_its_answer() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        hello = frame(
            "connected",
            server_version="raw",
            protocol_version=21,
            max_message_size=77,
            feature_flags=FeatureFlags(supports_topic_watchers=True),
        )
        Raw(network, hello + encode_command(BaseCommand(type=BaseCommand.PING)))
        connection = await connect("raw", 1)
        assert connection.message_bytes_max == 77
        assert connection.feature_flags.supports_topic_watchers
        connection.end(ClientError("enough"))

    virtually(scenario)
