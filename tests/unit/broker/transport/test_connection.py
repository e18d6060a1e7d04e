"""What a connection starts for its client, and when it reads no further."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.client_endings import EndCode
from magnetar.broker.handlers.client import OpenConsumer
from magnetar.broker.subscriptions.types.subscription_type import SubType
from magnetar.broker.transport import connection
from magnetar.broker.transport.connection import REQUESTS_MAX, UNANSWERED_MAX, Connection
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import pulsar_pb2 as pb
from structlog.testing import capture_logs

from tests.unit.broker.handlers.bare_services import bare_services
from tests.unit.common.wire.frames import simple

CONNECT = simple(connect=pb.CommandConnect(client_version="test", protocol_version=19))

PARTIAL_ACK = simple(
    ack=pb.CommandAck(
        consumer_id=1,
        ack_type=pb.CommandAck.Individual,
        message_id=[pb.MessageIdData(ledgerId=1, entryId=1, ack_set=[1])],
    )
)
"""Nobody waits for it, and only storage knows how large its batch is."""


class Transport:
    """A socket without a far end."""

    reading = True
    unsent = 0
    aborted = False

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is written."""

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("client", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        """Nobody reads it."""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        """Nothing to end."""

    def abort(self) -> None:
        self.aborted = True


class Topic:
    """Reads nothing until it may."""

    def __init__(self) -> None:
        self.may_read = asyncio.Event()
        self.name = TopicName.parse("t")

    async def messages_of(self, position: Position) -> int:
        await self.may_read.wait()
        return 10

    def remove_consumer(self, subscription: object, consumer: object) -> None:
        """The connection is gone."""


class Subscription:
    type = SubType.Shared
    name = "s"
    acks = 0

    def ack_batch(self, *acked: object) -> None:
        self.acks += 1


class Served:
    """A connected client that has consumer 1."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.topic, self.subscription, self.transport = Topic(), Subscription(), Transport()
        services = bare_services(
            SimpleNamespace(monotonic=lambda: 0.0, wall_ms=lambda: 0),
            spawn=self._spawn,
            budget=SimpleNamespace(forget=lambda connection: None),
        )
        self.connection = Connection(services, cast(Any, set()))
        self.connection.connection_made(cast(Any, self.transport))
        self.connection.data_received(CONNECT)
        consumer = SimpleNamespace(consumer_id=1, name="c", noted_ack=lambda: None)
        opened = OpenConsumer(cast(Any, self.topic), cast(Any, self.subscription), cast(Any, consumer))
        self.connection._client.consumers[1] = opened

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def test_acknowledgements_that_wait_for_storage_are_bounded_and_all_count() -> None:
    async def main() -> None:
        served = Served()
        sent = 0
        while served.transport.reading and sent <= REQUESTS_MAX:
            served.connection.data_received(PARTIAL_ACK * 100)
            sent += 100
        assert not served.transport.reading, "the client has to wait"
        assert len(served.tasks) == sent == UNANSWERED_MAX < REQUESTS_MAX
        served.topic.may_read.set()
        await asyncio.gather(*served.tasks)
        assert served.transport.reading, "and goes on"
        assert served.subscription.acks == sent
        served.connection.data_received(PARTIAL_ACK)
        await asyncio.gather(*served.tasks)
        assert served.transport.reading
        assert served.subscription.acks == sent + 1
        served.connection.close("done", EndCode.BROKER_STOPPING)

    asyncio.run(main())


@pytest.mark.parametrize(("unsent", "aborted"), [(1, True), (0, False)])
def test_a_client_that_reads_nothing_does_not_keep_its_closed_connection(
    monkeypatch: pytest.MonkeyPatch, unsent: int, *, aborted: bool
) -> None:
    monkeypatch.setattr(connection, "LAST_BYTES_S", 0.0)

    async def main() -> None:
        served = Served()
        served.transport.unsent = unsent
        served.connection.close("a reason", EndCode.BROKER_STOPPING)
        assert not served.transport.aborted, "it may still take what is on its way"
        await asyncio.sleep(0.05)
        assert served.transport.aborted == aborted

    asyncio.run(main())


def test_refused_commands_of_one_kind_are_one_log_line_a_second() -> None:
    async def main() -> None:
        served = Served()
        seek = simple(seek=pb.CommandSeek(consumer_id=9, request_id=1))
        last = simple(getLastMessageId=pb.CommandGetLastMessageId(consumer_id=9, request_id=2))
        with capture_logs() as lines:
            served.connection.data_received((seek + last) * 50)
            await asyncio.gather(*served.tasks)
        told = [line for line in lines if line["event"] == "command refused"]
        assert sorted(line["command"] for line in told) == ["GET_LAST_MESSAGE_ID", "SEEK"]
        address = served.connection.address
        assert {line["request_id"] for line in told} == {f"{address}#1", f"{address}#2"}
        served.connection.close("done", EndCode.BROKER_STOPPING)

    asyncio.run(main())


def test_connections_that_are_ended_for_garbage_are_one_log_line_a_second() -> None:
    async def main() -> None:
        first = Served()
        with capture_logs() as lines:
            for _ in range(50):
                served = Served()
                served.connection._services = first.connection._services
                served.connection.data_received(b"\xff" * 64)
                assert not served.connection.connected
        told = [line for line in lines if line["event"] == "closing connection"]
        assert [line["peer"] for line in told] == [first.connection.address]
        first.connection.close("done", EndCode.BROKER_STOPPING)

    asyncio.run(main())


def test_a_lost_connection_lets_its_transport_go_at_once_and_ignores_late_writers() -> None:
    """Buffers of TLS are large, and a connection itself is freed by a collection of garbage alone."""

    async def main() -> None:
        served = Served()
        kept = served.connection
        transport = weakref.ref(served.transport)
        kept.connection_lost(None)
        del served.transport
        assert transport() is None
        kept.write(b"late")
        kept.pause_reading_for(1)
        kept.close("again", EndCode.BROKER_STOPPING)
        await asyncio.sleep(0)
        assert not kept.connected

    asyncio.run(main())
