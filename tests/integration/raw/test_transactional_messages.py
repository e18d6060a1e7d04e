"""Messages in transactions on the wire, with what client libraries never send."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import StandaloneServer
from tests.integration.raw.transcript import (
    Line,
    batch_messages,
    batch_payload,
    line,
    payload_frame,
    payloads,
)
from tests.integration.rest import Rest

SERVER_SETTINGS = {"transactionCoordinatorEnabled": "true"}

COMMIT, ABORT = pb.COMMIT, pb.ABORT


class Transaction:
    """One transaction of a client, over its line to the coordinator."""

    def __init__(self, c: Line, ttl_ms: int = 60_000) -> None:
        self._line = c
        began = c.request("newTxn", txn_ttl_seconds=ttl_ms, tc_id=0)
        answer = c.expect("newTxnResponse", request_id=began).command
        assert not answer.HasField("error"), answer
        self.id = {"txnid_most_bits": answer.txnid_most_bits, "txnid_least_bits": answer.txnid_least_bits}

    def add(self, topic: str) -> None:
        request = self._line.request("addPartitionToTxn", partitions=[topic], **self.id)
        assert not self._line.expect("addPartitionToTxnResponse", request_id=request).command.HasField(
            "error"
        )

    def send(self, *contents: bytes, first: int = 0, producer_id: int = 1) -> None:
        """Sends without waiting for receipts."""
        self._line.send_bytes(
            b"".join(
                payload_frame(producer_id, first + n, content, self.metadata(first + n), **self.id)
                for n, content in enumerate(contents)
            )
        )

    def metadata(self, sequence_id: int, **more: object) -> pb.MessageMetadata:
        fields: dict[str, object] = {"producer_name": "raw", "publish_time": 1, **self.id, **more}
        return pb.MessageMetadata(sequence_id=sequence_id, **fields)  # type: ignore[arg-type]

    def publish(self, *contents: bytes, first: int = 0, producer_id: int = 1) -> list[tuple[int, int]]:
        self.send(*contents, first=first, producer_id=producer_id)
        return [
            self._line.expect("send_receipt", producer_id=producer_id, sequence_id=first + n).position
            for n in range(len(contents))
        ]

    def end(self, action: pb.TxnAction.ValueType) -> pb.CommandEndTxnResponse:
        request = self._line.request("endTxn", txn_action=action, **self.id)
        answer: pb.CommandEndTxnResponse = self._line.expect("endTxnResponse", request_id=request).command
        return answer


@pytest.fixture
def begin(server: StandaloneServer) -> Callable[[Line], Transaction]:
    def begun(c: Line) -> Transaction:
        asked = c.request("tcClientConnectRequest", tc_id=0)
        answer = c.expect("tcClientConnectResponse", request_id=asked).command
        assert not answer.HasField("error"), answer
        return Transaction(c)

    return begun


Begin = Callable[[Line], Transaction]


def test_messages_come_when_they_are_committed_and_never_when_they_are_aborted(
    server: StandaloneServer, topic: str, begin: Begin
) -> None:
    with line(server.endpoint) as c, line(server.endpoint) as r:
        c.open_producer(topic)
        r.subscribe(topic)
        r.flow(100)
        first, second = begin(c), begin(c)
        for each in (first, second):
            each.add(topic)
        first.publish(b"a", b"b")
        second.publish(b"c", first=2)
        c.publish(b"d", first=3)
        r.expect_quiet()
        assert not second.end(ABORT).HasField("error")
        r.expect_quiet()
        assert not first.end(COMMIT).HasField("error")
        assert payloads(r.expect_messages(3)) == [b"a", b"b", b"d"]
        r.expect_quiet()


def test_runs_of_several_transactions_in_one_chunk_of_bytes_keep_apart(
    server: StandaloneServer, topic: str, begin: Begin
) -> None:
    with line(server.endpoint) as c, line(server.endpoint) as r:
        c.open_producer(topic)
        r.subscribe(topic, subType="Key_Shared")
        r.flow(1_000)
        kept, dropped = begin(c), begin(c)
        for each in (kept, dropped):
            each.add(topic)
        frames = []
        for number in range(300):
            txn = (None, kept, dropped)[number % 3]
            metadata = pb.MessageMetadata(producer_name="raw", sequence_id=number, publish_time=1)
            ids = {} if txn is None else txn.id
            frames.append(payload_frame(1, number, b"%d" % number, metadata, **ids))
        c.send_bytes(b"".join(frames))
        for number in range(300):
            c.expect("send_receipt", sequence_id=number)
        assert payloads(r.expect_messages(1)) == [b"0"]
        kept.end(COMMIT)
        dropped.end(ABORT)
        rest = [b"%d" % number for number in range(1, 300) if number % 3 != 2]
        assert payloads(r.expect_messages(len(rest))) == rest
        r.expect_quiet()


def test_a_late_message_and_half_an_id_are_refused_and_close_the_producer(
    server: StandaloneServer, topic: str, begin: Begin
) -> None:
    with line(server.endpoint) as c:
        c.open_producer(topic)
        txn = begin(c)
        txn.add(topic)
        txn.publish(b"in time")
        txn.end(COMMIT)
        txn.send(b"late", b"later", first=1)
        for number in (1, 2):
            refused = c.expect("send_error", sequence_id=number).command
            assert refused.error == pb.NotAllowedError
            assert "has ended" in refused.message
        c.expect("close_producer", producer_id=1)
        c.open_producer(topic, 2)
        c.send_bytes(payload_frame(2, 0, b"half", txnid_most_bits=0))
        refused = c.expect("send_error", sequence_id=0).command
        assert refused.error == pb.NotAllowedError
        assert "half of a transaction id" in refused.message


def test_the_last_message_id_is_that_of_the_last_message_that_a_reader_gets(
    server: StandaloneServer, topic: str, begin: Begin
) -> None:
    with line(server.endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic, durable=False)

        def last() -> int:
            asked = c.request("getLastMessageId", consumer_id=1)
            entry: int = c.expect(
                "getLastMessageIdResponse", request_id=asked
            ).command.last_message_id.entryId
            return entry

        assert last() == 2**64 - 1
        aborted, kept = begin(c), begin(c)
        aborted.add(topic)
        kept.add(topic)
        aborted.publish(b"0")
        assert last() == 2**64 - 1
        aborted.end(ABORT)
        assert last() == 2**64 - 1
        c.publish(b"1", first=1)
        kept.publish(b"2", first=2)
        c.publish(b"3", first=3)
        assert last() == 1
        kept.end(ABORT)
        assert last() == 3


def test_batches_and_chunks_of_a_transaction_come_whole(
    server: StandaloneServer, topic: str, begin: Begin
) -> None:
    with line(server.endpoint) as c, line(server.endpoint) as r:
        c.open_producer(topic)
        r.subscribe(topic, subType="Shared")
        r.flow(100)
        txn = begin(c)
        txn.add(topic)
        batch = txn.metadata(0, highest_sequence_id=2, num_messages_in_batch=3)
        body = batch_payload([b"x", b"y", b"z"])
        sends = [payload_frame(1, 0, body, batch, num_messages=3, highest_sequence_id=2, **txn.id)]
        for index in range(3):
            more = {"uuid": "u", "chunk_id": index, "num_chunks_from_msg": 3, "total_chunk_msg_size": 3}
            chunk = txn.metadata(3, **more)
            sends.append(payload_frame(1, 3, b"%d" % index, chunk, is_chunk=True, **txn.id))
        c.send_bytes(b"".join(sends))
        for number in (0, 3, 3, 3):
            c.expect("send_receipt", sequence_id=number)
        r.expect_quiet()
        txn.end(COMMIT)
        frames = r.expect_messages(4)
        assert batch_messages(frames[0].payload) == [b"x", b"y", b"z"]
        assert payloads(frames[1:]) == [b"0", b"1", b"2"]


def test_the_admin_api_shows_messages_of_transactions_and_says_what_became_of_them(
    server: StandaloneServer, topic: str, begin: Begin, rest: Rest
) -> None:
    with line(server.endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        txn, aborted = begin(c), begin(c)
        for each in (txn, aborted):
            each.add(topic)
        ids = [*c.publish(b"plain"), *aborted.publish(b"aborted", first=1)]
        ids += [*txn.publish(b"open", first=2), *c.publish(b"behind", first=3)]
        aborted.end(ABORT)
        path = f"/{topic.replace('://', '/')}"

        def flags(where: str) -> tuple[bytes, str | None, str]:
            reply = rest.call("GET", f"{path}/{where}")
            headers = {name.lower(): value for name, value in reply.headers.items()}
            said = [headers.get(f"x-pulsar-txn-{what}") for what in ("aborted", "uncommitted")]
            return reply.body, said[0], str(said[1])

        expected = [
            (b"plain", None, "false"),
            (b"aborted", "true", "false"),
            (b"open", "false", "true"),
            (b"behind", None, "true"),
        ]
        for number, (position, found) in enumerate(zip(ids, expected, strict=True), 1):
            assert flags(f"subscription/sub/position/{number}") == found
            assert flags(f"ledger/{position[0]}/entry/{position[1]}") == found
            assert flags(f"examinemessage?initialPosition=earliest&messagePosition={number}") == found
        assert rest.call("GET", f"{path}/lastMessageId").json["entryId"] == ids[0][1]
        rest.do("POST", f"{path}/subscription/sub/skip/10")
        stats = rest.get(f"{path}/stats")["subscriptions"]["sub"]
        assert stats["msgBacklog"] == 2, "skipping stops at the open transaction"
        txn.end(COMMIT)
        c.flow(10)
        assert payloads(c.expect_messages(2)) == [b"open", b"behind"]


def test_a_topic_keeps_its_transactions_when_it_is_unloaded(
    server: StandaloneServer, topic: str, begin: Begin, rest: Rest
) -> None:
    with line(server.endpoint) as c:
        c.open_producer(topic)
        c.subscribe(topic)
        txn, aborted = begin(c), begin(c)
        for each in (txn, aborted):
            each.add(topic)
        aborted.publish(b"aborted")
        txn.publish(b"open", first=1)
        c.publish(b"behind", first=2)
        aborted.end(ABORT)
        rest.do("PUT", f"/{topic.replace('://', '/')}/unload")
    with line(server.endpoint) as c:
        c.subscribe(topic)
        c.flow(10)
        c.expect_quiet()
        asked = c.request("tcClientConnectRequest", tc_id=0)
        c.expect("tcClientConnectResponse", request_id=asked)
        c.request("endTxn", txn_action=COMMIT, **txn.id)
        seen = [c.receive() for _ in range(3)]
        assert sorted(frame.name for frame in seen) == ["endTxnResponse", "message", "message"]
        assert payloads([frame for frame in seen if frame.name == "message"]) == [b"open", b"behind"]
