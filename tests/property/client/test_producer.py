"""A producer against a naive account of what it promises: each message ends once, what is confirmed is stored
where its id says, in order, and once where the broker drops duplicates.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from magnetar.client.client import Client
from magnetar.client.errors import ClientError, QueueFull
from magnetar.client.messages import MessageId
from magnetar.client.producer.options import Batching
from magnetar.common.wire.batch import batch_messages, parse_metadata, payload_of
from magnetar.common.wire.pulsar_pb2 import ServerError

from tests.examples import examples
from tests.unit.client.model_broker import Broker, BrokerSession, Cluster, Topic, frame
from tests.unit.client.scene import TOPIC
from tests.unit.client.virtual_network import Faults, VirtualNetwork, virtually

BATCHINGS = (
    None,
    Batching(),
    Batching(max_messages=3, max_delay_s=0.2),
    Batching(max_bytes=120, max_delay_s=0.2),
    Batching(by_key=True, max_messages=3, max_delay_s=0.2),
)
SEND = st.tuples(
    st.just("send"),
    st.sampled_from([5, 5, 5, 60, 2_500]),
    st.sampled_from([None, None, "a", "b"]),
)
TROUBLE = st.tuples(
    st.sampled_from(
        ["reset", "restart", "close", "lose receipts", "repeat receipts", "refuse", "cannot store", "flush"]
    ),
    st.just(0),
    st.none(),
)
WAIT = st.tuples(st.just("wait"), st.sampled_from([1, 30, 300, 4_000]), st.none())
"""Times in milliseconds."""


@dataclass
class Account:
    """The messages that were sent, and their ends."""

    payloads: list[bytes] = field(default_factory=list)
    ended: dict[int, MessageId | ClientError] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    """Numbers of messages in the order in which they were confirmed."""

    def end(self, number: int, error: ClientError | None, message_id: MessageId | None) -> None:
        assert number not in self.ended, f"message {number} ended twice"
        found = error if error is not None else message_id
        assert found is not None
        self.ended[number] = found
        if error is None:
            self.order.append(number)


class Troubled:
    """Answers of a broker that go wrong as they are told to."""

    def __init__(self, broker: Broker) -> None:
        self.left: list[str] = []
        broker.answers["send"] = self.send
        self._broker = broker

    def send(self, command: Any, session: BrokerSession) -> bytes | None:
        what = self.left.pop() if self.left else ""
        codes = {"refuse": ServerError.NotAllowedError, "cannot store": ServerError.PersistenceError}
        if what not in codes or command.producer_id not in session.producers:
            return None
        if what == "cannot store":
            # What follows it is dropped as well, until the producer is opened again.
            topic, producer = session.producers.pop(command.producer_id)
            topic.producers.remove(producer)
        return frame(
            "send_error",
            producer_id=command.producer_id,
            sequence_id=command.sequence_id,
            error=codes[what],
            message="no",
        )


def contents(topic: Topic) -> tuple[list[bytes], dict[tuple[tuple[int, int], int], bytes]]:
    """The messages in order, and by position and batch index; those of chunks where their last one is."""
    listed: list[bytes] = []
    placed: dict[tuple[tuple[int, int], int], bytes] = {}
    parts: dict[str, dict[int, bytes]] = {}
    for entry in topic.entries:
        metadata, payload = parse_metadata(entry.body), bytes(payload_of(entry.body))
        found = [(-1, payload)]
        if metadata.num_chunks_from_msg > 1:
            chunks = parts.setdefault(metadata.uuid, {})
            chunks[metadata.chunk_id] = payload
            if metadata.chunk_id < metadata.num_chunks_from_msg - 1:
                continue
            found = [(-1, b"".join(chunks[number] for number in sorted(chunks)))]
        elif entry.is_batch:
            messages = batch_messages(payload, entry.messages)
            found = [(index, bytes(data)) for index, (_, data) in enumerate(messages)]
        for index, data in found:
            listed.append(data)
            placed[entry.position, index] = data
    return listed, placed


@settings(max_examples=examples(150))
@given(
    steps=st.lists(st.one_of(SEND, SEND, SEND, WAIT, TROUBLE), max_size=40),
    batching=st.sampled_from(BATCHINGS),
    deduplication=st.booleans(),
    timeout_s=st.sampled_from([0.0, 0.0, 3.0]),
    pieces=st.sampled_from([0, 40]),
)
@example(
    steps=[("repeat receipts", 0, None), ("send", 2_500, None), ("wait", 1, None)],
    batching=None,
    deduplication=False,
    timeout_s=0.0,
    pieces=0,
)
def test_each_message_ends_once_and_what_is_confirmed_is_stored_in_order(
    steps: list[tuple[str, int, str | None]],
    batching: Batching | None,
    deduplication: bool,
    timeout_s: float,
    pieces: int,
) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        cluster = Cluster(deduplication=deduplication, message_bytes_max=2_000)
        broker = Broker(cluster, network)
        troubled = Troubled(broker)
        topic = cluster.topic(TOPIC)
        account = Account()
        client = Client(broker.url, memory_limit_bytes=20_000)
        producer = await client.create_producer(
            TOPIC,
            name="p",
            batching=batching,
            send_timeout_s=timeout_s,
            chunking=True,
            max_pending_messages=25,
        )
        for what, number, key in steps:
            if what == "send":
                index = len(account.payloads)
                payload = b"%d " % index + b"x" * number
                try:
                    producer.send_nowait(payload, partial(account.end, index), key=key)
                except QueueFull:
                    continue
                account.payloads.append(payload)
            elif what == "wait":
                await asyncio.sleep(number / 1_000)
            elif what == "reset":
                network.reset_all()
            elif what == "restart":
                broker.kill()
                network.loop.call_later(1.0, broker.start)
            elif what == "close":
                for session in broker.sessions:
                    for producer_id in list(session.producers):
                        session.close_producer(producer_id)
            elif what == "flush" and not timeout_s and ("lose receipts", 0, None) not in steps:
                async with asyncio.timeout(300):
                    await producer.flush()
                assert len(account.ended) == len(account.payloads)
            elif what in ("lose receipts", "repeat receipts"):
                for session in broker.sessions:
                    disturb(session, what)
            else:
                troubled.left.append(what)
        troubled.left.clear()
        for session in list(broker.sessions):
            session.__dict__.pop("send", None)
        await asyncio.sleep(5)
        # A last message shows lost receipts.
        await producer.send(b"last")
        async with asyncio.timeout(600):
            await producer.close()
            await client.close()

        assert sorted(account.ended) == list(range(len(account.payloads)))
        assert client.parts.memory.used_bytes == 0
        listed, placed = contents(topic)
        confirmed = [index for index, end in sorted(account.ended.items()) if isinstance(end, MessageId)]
        if batching is None or not batching.by_key:
            assert account.order == confirmed, "confirmed in another order"
            first_times = list(dict.fromkeys(listed))
            wanted = [account.payloads[index] for index in confirmed]
            assert [payload for payload in first_times if payload in wanted] == wanted
        for index in confirmed:
            at = account.ended[index]
            assert isinstance(at, MessageId)
            if at.ledger_id >= 0:
                assert placed[at.position, at.batch_index] == account.payloads[index]
            else:
                assert deduplication
                assert account.payloads[index] in listed
        if deduplication:
            assert len(set(listed)) == len(listed), "stored twice"

    virtually(scenario, faults=Faults(piece_bytes_max=pieces), time_max_s=20_000)


def disturb(session: BrokerSession, what: str) -> None:
    """From now on receipts of a connection are lost, or come twice."""
    send = type(session).send

    def disturbed(data: bytes) -> None:
        is_receipt = len(data) > 9 and data[8:10] == b"\x08\x07"
        for _ in range({"lose receipts": 0, "repeat receipts": 2}[what] if is_receipt else 1):
            send(session, data)

    session.__dict__["send"] = disturbed
