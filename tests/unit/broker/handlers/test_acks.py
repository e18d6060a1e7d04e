"""Acknowledgements of clients that send them wrong, or while storage does not answer."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any, cast

import pytest
from magnetar.broker.handlers.acks import IGNORED_ACKS, UNREADABLE_MESSAGES, handle_ack, handle_ack_group
from magnetar.broker.handlers.client import Client, OpenConsumer, Opening
from magnetar.common.errors import DataCorruption
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.events import AckGroup
from structlog.testing import capture_logs

from tests.unit.broker.handlers.bare_services import bare_services
from tests.unit.broker.topics.fakes import FakePeer
from tests.unit.broker.topics.world import ListeningPeer


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


class Topic:
    """Cannot read entries from 100 on."""

    name = TopicName.parse("persistent://public/default/orders")

    async def messages_of(self, position: Position) -> int:
        if position.entry_id >= 100:
            raise DataCorruption(f"the entry at {position} does not match its checksum")
        return 10


class Subscription:
    name = "s"
    individual = True

    def __init__(self) -> None:
        self.acked: list[tuple[int, int]] = []
        """Entry ids and the bits that were acknowledged."""
        self.waiting: list[Any] = []

    def ack_many(self, ledger_id: int, entry_ids: list[int], consumer: object) -> None:
        self.acked += [(entry_id, -1) for entry_id in entry_ids]

    def ack_batch(self, ledger_id: int, entry_id: int, bits: int, size: int, consumer: object) -> None:
        self.acked.append((entry_id, bits))

    def when_persisted(self, done: object) -> None:
        self.waiting.append(done)


class Consumer:
    consumer_id = 1

    def noted_ack(self) -> None:
        """For statistics."""


def consumer() -> tuple[Client, Subscription, Clock]:
    """A client that has consumer 1 of the subscription."""
    clock, subscription = Clock(), Subscription()
    client = Client(bare_services(clock), FakePeer())
    client.consumers[1] = OpenConsumer(cast(Any, Topic()), cast(Any, subscription), cast(Any, Consumer()))
    return client, subscription, clock


def ack(*ids: pb.MessageIdData, **fields: Any) -> pb.CommandAck:
    kind = fields.pop("ack_type", pb.CommandAck.Individual)
    return pb.CommandAck(consumer_id=1, ack_type=kind, message_id=ids, **fields)


def whole(entry_id: int) -> pb.MessageIdData:
    return pb.MessageIdData(ledgerId=1, entryId=entry_id)


def second_half(entry_id: int) -> pb.MessageIdData:
    """Of a batch of ten, whose size the client does not say."""
    return pb.MessageIdData(ledgerId=1, entryId=entry_id, ack_set=[0b11111])


@pytest.mark.parametrize("request_id", [None, 7])
def test_an_entry_that_cannot_be_read_keeps_no_other_from_being_acknowledged(request_id: int | None) -> None:
    client, subscription, _ = consumer()
    command = ack(second_half(1), second_half(100), second_half(101), second_half(2), whole(3))
    if request_id is not None:
        command.request_id = request_id
    rest = handle_ack(client, command)
    assert rest is not None
    with pytest.raises(DataCorruption, match="1:100 "):
        asyncio.run(rest)
    assert sorted(subscription.acked) == [(1, 0b1111100000), (2, 0b1111100000), (3, -1)]
    assert not subscription.waiting, "the error is the answer"


def lines_of(command: pb.CommandAck) -> tuple[list[Any], Subscription]:
    """What 512 of the same acknowledgement in two seconds come to in the log."""
    client, subscription, clock = consumer()
    with capture_logs() as lines:
        for _ in range(512):
            handle_ack(client, command)
            clock.now += 1 / 256
    return lines, subscription


@pytest.mark.parametrize(
    ("individual", "ids", "reason"),
    [
        (True, 1, "cumulative on Shared or Key_Shared"),
        (False, 2, "cumulative with several ids"),
    ],
)
def test_acknowledgements_that_are_ignored_are_a_line_a_second_and_all_counted(
    monkeypatch: pytest.MonkeyPatch, individual: bool, ids: int, reason: str
) -> None:
    monkeypatch.setattr(Subscription, "individual", individual)
    counted = IGNORED_ACKS.labels(reason)
    before = counted._value.get()
    lines, subscription = lines_of(
        ack(*[whole(number) for number in range(ids)], ack_type=pb.CommandAck.Cumulative)
    )
    assert [line["commands"] for line in lines] == [1, 256]
    assert lines[0]["topic"] == "persistent://public/default/orders"
    assert counted._value.get() == before + 512
    assert not subscription.acked


def test_messages_that_consumers_cannot_read_are_a_line_a_second_and_all_counted() -> None:
    counted = UNREADABLE_MESSAGES.labels("ChecksumMismatch")
    before = counted._value.get()
    command = ack(*[whole(number) for number in range(100)], validation_error=pb.CommandAck.ChecksumMismatch)
    lines, subscription = lines_of(command)
    assert [line["commands"] for line in lines] == [1, 256]
    assert lines[0]["error"] == "ChecksumMismatch"
    assert lines[0]["ids"] == [f"1:{number}" for number in range(10)], "a line has an end"
    assert counted._value.get() == before + 51_200
    assert len(subscription.acked) == 51_200, "they are acknowledged all the same"


def unknown(command: pb.CommandAck) -> list[Any]:
    """The answers to an acknowledgement of a consumer that an unload closed a moment ago; it is counted."""
    client, subscription, _ = consumer()
    client.peer = peer = ListeningPeer()
    del client.consumers[1]
    counted = IGNORED_ACKS.labels("unknown consumer")
    before = counted._value.get()
    for handle in (handle_ack, handle_as_group):
        handle(client, command)
    assert counted._value.get() == before + 2
    assert not subscription.acked
    return [each.ackResponse for each in peer.commands]


def handle_as_group(client: Client, command: pb.CommandAck) -> None:
    request_id = command.request_id if command.HasField("request_id") else None
    handle_ack_group(client, AckGroup(command.consumer_id, {1: array("I", [1])}, request_id))


def test_an_acknowledgement_of_a_consumer_that_is_not_open_is_refused_for_now_if_it_expects_an_answer() -> (
    None
):
    answers = unknown(ack(whole(1), request_id=7))
    assert [(each.consumer_id, each.request_id, each.error) for each in answers] == [
        (1, 7, pb.ServiceNotReady)
    ] * 2
    # The Go client takes an answer without text for a success.
    assert all("consumer 1 is not open" in each.message for each in answers)
    assert not any(each.HasField("txnid_most_bits") for each in answers)


def test_an_acknowledgement_of_a_consumer_that_is_not_open_is_ignored_without_a_request_id() -> None:
    assert unknown(ack(whole(1))) == []


def test_an_acknowledgement_of_a_consumer_that_is_being_opened_is_refused_for_now() -> None:
    client, _, _ = consumer()
    client.peer = peer = ListeningPeer()
    client.consumers[1] = Opening()
    handle_ack(client, ack(whole(1), request_id=7))
    assert [each.ackResponse.error for each in peer.commands] == [pb.ServiceNotReady]
