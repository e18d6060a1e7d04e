"""Connections without sockets, and the commands that a client sends over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from hypothesis import strategies as st
from magnetar.broker.client_endings import EndCode
from magnetar.broker.handlers.credentials import check_credentials, close_if_revoked
from magnetar.broker.transport.connection import Connection
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.command_stream import CommandStream

from tests.property.security.guarded_services import Guard, guarded_services
from tests.property.security.rights import SUBSCRIPTION, TOKENS, Lists, Sent, certificate_of
from tests.unit.common.wire.frames import send, simple

NO_REQUEST: Final = 2**64 - 1

NAMESPACES: Final = ("m/n", "a/n", "other/n")


class Pipe(asyncio.Transport):
    """One end of a connection; `deliver` takes what is written to it."""

    def __init__(self, deliver: Callable[[bytes], None], certificate: bytes | None = None) -> None:
        super().__init__()
        self._deliver = deliver
        self._certificate = certificate
        self._closed = False
        self.protocol: Any = None
        self.on_closed: Callable[[], None] = lambda: None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return ("10.0.0.1", 5000)
        return self if name == "ssl_object" and self._certificate is not None else default

    def getpeercert(self, *, binary_form: bool) -> bytes | None:
        """Stand for the connection's TLS, too."""
        return self._certificate

    def write(self, data: Any) -> None:
        if not self._closed:
            self._deliver(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.on_closed()

    abort = close

    def is_closing(self) -> bool:
        return self._closed

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_reading(self) -> bool:
        return True


class Answers:
    """The commands that a client has received."""

    def __init__(self) -> None:
        self._stream = CommandStream(1 << 20)
        self.received: list[pb.BaseCommand] = []

    def add(self, data: bytes) -> None:
        self._stream.receive_data(data)
        while (command := self._stream.next_command()) is not None:
            self.received.append(command)

    @property
    def types(self) -> list[str]:
        return [pb.BaseCommand.Type.Name(each.type) for each in self.received]

    @property
    def last_error(self) -> str:
        """The code of the last Error that answers no request; empty without one."""
        errors = [each.error for each in self.received if each.type == pb.BaseCommand.ERROR]
        found = [each for each in errors if each.request_id == NO_REQUEST]
        return pb.ServerError.Name(found[-1].error) if found else ""


class Tasks:
    """The tasks of one connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return task

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Let all tasks end, with what they write."""
        while self.running:
            await asyncio.wait(self.running)
        await self.turns(6)
        if self.running:
            await self.settle()


class BrokerEnd:
    """A connection of the broker with the services behind it."""

    def __init__(
        self,
        tasks: Tasks,
        lists: Lists,
        deliver: Callable[[bytes], None],
        *,
        certificate: str | None,
        anonymous: bool,
        original_auth_data: bool = False,
    ) -> None:
        """Call it in the event loop. `certificate`: the role of the peer's certificate."""
        self.guard = Guard()
        services = guarded_services(
            self.guard, lists, tasks.spawn, anonymous=anonymous, original_auth_data=original_auth_data
        )
        connections: Any = _Connections()
        self.connection = Connection(services, connections)
        self.pipe = Pipe(deliver, None if certificate is None else certificate_of(certificate))
        self.connection.connection_made(self.pipe)

    @property
    def is_connected(self) -> bool:
        """Whether Connected was sent, and the connection is open."""
        return self.connection.connected and self.connection.client.connected

    def look(self) -> None:
        """The check of credentials that comes with the keep-alive look."""
        if self.connection.connected:
            check_credentials(self.connection.client)

    def lists_changed(self) -> None:
        """The check that follows a change of revocation lists."""
        if self.connection.connected:
            close_if_revoked(self.connection.client)

    def close(self) -> None:
        self.connection.close("the test is over", EndCode.BROKER_STOPPING)


class _Connections:
    """Accepts every connection."""

    def add(self, connection: object) -> None: ...

    discard = admit = add


def connect_frame(sent: Sent, to: str | None = None) -> bytes:
    """Encode a Connect."""
    return simple(connect=connect_command(sent, to))


def connect_command(sent: Sent, to: str | None = None) -> pb.CommandConnect:
    fields: dict[str, Any] = {
        "auth_method_name": sent.method,
        "auth_data": sent.data,
        "original_principal": sent.original,
        "original_auth_method": sent.original_method,
        "original_auth_data": sent.original_data,
        "proxy_version": sent.proxy_version,
        "proxy_to_broker_url": to,
    }
    return pb.CommandConnect(
        client_version="c",
        protocol_version=20,
        feature_flags=pb.FeatureFlags(supports_auth_refresh=True),
        **cast(Any, {name: value for name, value in fields.items() if value is not None}),
    )


def answer_frame(token: bytes, method: str = "token") -> bytes:
    """Encode an AuthResponse."""
    response = pb.AuthData(auth_method_name=method, auth_data=token)
    return simple(authResponse=pb.CommandAuthResponse(response=response))


_TOKENS: Final = st.sampled_from([*TOKENS, b"forged", b""])

CONNECTS: Final = st.builds(
    Sent,
    method=st.sampled_from(["token", "token", "token", "tls", "tls", "none", "sasl", "Token", None]),
    data=_TOKENS,
    original=st.sampled_from([None, None, "", " ", "consumer", "producer", "admin", "root", "proxy"]),
    original_method=st.sampled_from([None, "token", "tls", "none"]),
    original_data=_TOKENS.map(bytes.decode),
    proxy_version=st.sampled_from([None, None, "1"]),
)

CREDENTIALS: Final = st.one_of(
    st.sampled_from([Sent("tls"), Sent("tls", original="root", original_method="tls")]),
    st.builds(Sent, method=st.just("token"), data=_TOKENS),
    st.builds(
        Sent,
        method=st.just("token"),
        data=st.just(b"proxy"),
        original=st.sampled_from(["consumer", "stranger"]),
        original_method=st.just("token"),
        original_data=st.sampled_from(["consumer", "stranger"]),
    ),
)
"""Connects that are often accepted."""

ANSWERS: Final = st.builds(answer_frame, _TOKENS, st.sampled_from(["token", "token", "tls", "none"]))


def topic_commands(namespace: str, subscription: str) -> dict[str, bytes]:
    """Return frames of every command by which a client may reach topics, by their names."""
    topic = f"persistent://{namespace}/t"
    return {
        "LOOKUP": simple(lookupTopic=pb.CommandLookupTopic(topic=topic, request_id=1)),
        "PARTITIONED_METADATA": simple(
            partitionMetadata=pb.CommandPartitionedTopicMetadata(topic=topic, request_id=2)
        ),
        "GET_TOPICS_OF_NAMESPACE": simple(
            getTopicsOfNamespace=pb.CommandGetTopicsOfNamespace(
                namespace=namespace, request_id=3, mode=pb.CommandGetTopicsOfNamespace.ALL
            )
        ),
        "WATCH_TOPIC_LIST": simple(
            watchTopicList=pb.CommandWatchTopicList(
                request_id=4, watcher_id=1, namespace=namespace, topics_pattern=f"persistent://{namespace}/.*"
            )
        ),
        "GET_SCHEMA": simple(getSchema=pb.CommandGetSchema(topic=topic, request_id=5)),
        "GET_OR_CREATE_SCHEMA": simple(
            getOrCreateSchema=pb.CommandGetOrCreateSchema(
                topic=topic, request_id=6, schema=pb.Schema(name="s", schema_data=b"", type=pb.Schema.String)
            )
        ),
        "PRODUCER": simple(producer=pb.CommandProducer(topic=topic, producer_id=1, request_id=7)),
        "PRODUCER with a subscription": simple(
            producer=pb.CommandProducer(
                topic=topic, producer_id=2, request_id=8, initial_subscription_name=subscription
            )
        ),
        "SEND": send(1, 1),
        "SUBSCRIBE": simple(
            subscribe=pb.CommandSubscribe(
                topic=topic,
                subscription=subscription,
                subType=pb.CommandSubscribe.Shared,
                consumer_id=1,
                request_id=9,
            )
        ),
        "FLOW": simple(flow=pb.CommandFlow(consumer_id=1, messagePermits=1)),
        "ACK": simple(
            ack=pb.CommandAck(
                consumer_id=1,
                ack_type=pb.CommandAck.Individual,
                message_id=[pb.MessageIdData(ledgerId=1, entryId=1)],
            )
        ),
        "SEEK": simple(
            seek=pb.CommandSeek(
                consumer_id=1, request_id=10, message_id=pb.MessageIdData(ledgerId=1, entryId=1)
            )
        ),
        "GET_LAST_MESSAGE_ID": simple(
            getLastMessageId=pb.CommandGetLastMessageId(consumer_id=1, request_id=11)
        ),
        "CONSUMER_STATS": simple(consumerStats=pb.CommandConsumerStats(consumer_id=1, request_id=12)),
        "REDELIVER_UNACKNOWLEDGED_MESSAGES": simple(
            redeliverUnacknowledgedMessages=pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
        ),
        "UNSUBSCRIBE": simple(unsubscribe=pb.CommandUnsubscribe(consumer_id=1, request_id=13)),
        "CLOSE_CONSUMER": simple(close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=14)),
        "CLOSE_PRODUCER": simple(close_producer=pb.CommandCloseProducer(producer_id=1, request_id=15)),
        "WATCH_TOPIC_LIST_CLOSE": simple(
            watchTopicListClose=pb.CommandWatchTopicListClose(request_id=16, watcher_id=1)
        ),
        "ACK in a transaction": simple(
            ack=pb.CommandAck(
                consumer_id=1,
                ack_type=pb.CommandAck.Individual,
                message_id=[pb.MessageIdData(ledgerId=1, entryId=1)],
                txnid_most_bits=0,
                txnid_least_bits=0,
            )
        ),
        "TC_CLIENT_CONNECT_REQUEST": simple(
            tcClientConnectRequest=pb.CommandTcClientConnectRequest(request_id=19, tc_id=0)
        ),
        "NEW_TXN": simple(newTxn=pb.CommandNewTxn(request_id=17)),
        "ADD_PARTITION_TO_TXN": simple(
            addPartitionToTxn=pb.CommandAddPartitionToTxn(request_id=20, partitions=[topic])
        ),
        "ADD_SUBSCRIPTION_TO_TXN": simple(
            addSubscriptionToTxn=pb.CommandAddSubscriptionToTxn(
                request_id=21, subscription=[pb.Subscription(topic=topic, subscription=subscription)]
            )
        ),
        "END_TXN": simple(endTxn=pb.CommandEndTxn(request_id=22, txn_action=pb.COMMIT)),
        "END_TXN_ON_PARTITION": simple(
            endTxnOnPartition=pb.CommandEndTxnOnPartition(request_id=18, topic=topic, txn_action=pb.COMMIT)
        ),
        "END_TXN_ON_SUBSCRIPTION": simple(
            endTxnOnSubscription=pb.CommandEndTxnOnSubscription(
                request_id=23,
                subscription=pb.Subscription(topic=topic, subscription=subscription),
                txn_action=pb.COMMIT,
            )
        ),
        "PING": simple(ping=pb.CommandPing()),
    }


COMMAND_FRAMES: Final = [
    frame
    for namespace in NAMESPACES
    for subscription in ("s", SUBSCRIPTION)
    for frame in topic_commands(namespace, subscription).values()
]

_OF_TOPICS: Final = [
    frame for name, frame in topic_commands("m/n", SUBSCRIPTION).items() if name not in ("SEND", "PING")
]

COMMANDS: Final = st.one_of(
    st.lists(st.sampled_from(COMMAND_FRAMES), min_size=1, max_size=4),
    st.lists(st.sampled_from(_OF_TOPICS), min_size=1, max_size=6),
).map(b"".join)
"""Bytes of a few commands, which arrive at once."""

NO_CONNECT: Final = st.one_of(COMMANDS, ANSWERS, st.binary(min_size=1, max_size=40))
"""A wrong beginning of a connection."""

JUNK: Final = st.one_of(ANSWERS, CONNECTS.map(connect_frame), st.binary(min_size=1, max_size=40))
"""Commands of the handshake, and bytes that are no command, for the time after a beginning."""
