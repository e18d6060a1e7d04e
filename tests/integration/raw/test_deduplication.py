"""Deduplication on the wire: duplicates get the receipt -1:-1, and the topic has each message once."""

from __future__ import annotations

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import StandaloneServer
from tests.integration.raw.transcript import (
    Line,
    batch_messages,
    batch_payload,
    line,
    numbered,
    payload_frame,
    payloads,
)

DUPLICATE = (2**64 - 1, 2**64 - 1)


SERVER_SETTINGS = {
    "brokerDeduplicationEnabled": "true",
    "brokerDeduplicationEntriesInterval": "100",
    "managedLedgerMaxEntriesPerLedger": "150",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}


def open_named(c: Line, topic: str, producer_id: int = 1) -> int:
    """A producer that continues; returns its last sequence id."""
    answer = c.open_producer(topic, producer_id, producer_name="raw", user_provided_producer_name=True)
    return int(answer.command.last_sequence_id)


def everything(c: Line, topic: str, count: int) -> list[bytes]:
    c.subscribe(topic)
    c.flow(10_000)
    messages = payloads(c.expect_messages(count))
    c.expect_quiet()
    return messages


def chunk(index: int, chunks: int, sequence_id: int, payload: bytes) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="raw",
        sequence_id=sequence_id,
        publish_time=1,
        uuid=f"raw-{sequence_id}",
        num_chunks_from_msg=chunks,
        chunk_id=index,
        total_chunk_msg_size=100,
    )
    return payload_frame(1, sequence_id, payload, metadata, is_chunk=True)


def test_a_message_sent_again_is_answered_as_a_duplicate_and_stored_once(
    server: StandaloneServer, topic: str
) -> None:
    with line(server.endpoint) as c:
        assert open_named(c, topic) == -1
        first = c.publish(*numbered(5))
        assert DUPLICATE not in first
        assert c.publish(*numbered(5)) == [DUPLICATE] * 5
        again = c.publish(*numbered(5, 3), first=3)
        assert again[:2] == [DUPLICATE] * 2
        assert again[2:] == [(first[0][0], entry) for entry in (5, 6, 7)]
        assert everything(c, topic, 8) == numbered(8)


def test_one_run_of_new_old_and_repeated_messages_is_answered_in_its_order(
    server: StandaloneServer, topic: str
) -> None:
    with line(server.endpoint) as c:
        open_named(c, topic)
        c.publish(*numbered(3))
        ids = [3, 1, 4, 4, 3, 5, 2, 6, 6, 0]
        c.send_bytes(b"".join(payload_frame(1, number, b"%d" % number) for number in ids))
        receipts = [c.expect("send_receipt", sequence_id=number) for number in ids]
        new = [number for number, got in zip(ids, receipts, strict=True) if got.position != DUPLICATE]
        assert new == [3, 4, 5, 6]
        assert everything(c, topic, 7) == numbered(7)


def test_producer_names_are_judged_apart_and_learn_their_last_id(
    server: StandaloneServer, topic: str
) -> None:
    with line(server.endpoint) as c:
        open_named(c, topic)
        other = c.open_producer(topic, 2, producer_name="other")
        assert other.command.last_sequence_id == -1
        c.publish(*numbered(3))
        assert DUPLICATE not in c.publish(*numbered(3), producer_id=2)
    with line(server.endpoint) as c:
        assert open_named(c, topic) == 2


def test_a_batch_is_judged_by_its_first_id_and_recorded_by_its_last(
    server: StandaloneServer, topic: str
) -> None:
    with line(server.endpoint) as c:
        open_named(c, topic)
        c.publish_batch(numbered(10))
        assert c.publish_batch(numbered(10)) == DUPLICATE
        assert c.publish_batch(numbered(5, 9), first=9) == DUPLICATE
        assert c.publish_batch(numbered(5, 10), first=10) != DUPLICATE
        assert c.publish(b"again", first=14) == [DUPLICATE]
        c.subscribe(topic)
        c.flow(100)
        stored = [batch_messages(frame.payload) for frame in c.expect_messages(2)]
        assert stored == [numbered(10), numbered(5, 10)]
        c.expect_quiet()


def test_last_chunk_of_a_message_decides_deduplication(server: StandaloneServer, topic: str) -> None:
    with line(server.endpoint) as c:
        open_named(c, topic)
        for _ in range(2):
            # An attempt that never came to its end does not count.
            c.send_bytes(chunk(0, 3, 0, b"a") + chunk(1, 3, 0, b"b"))
            assert [c.expect("send_receipt", sequence_id=0).position != DUPLICATE for _ in range(2)] == [
                True
            ] * 2
        c.send_bytes(chunk(2, 3, 0, b"c"))
        assert c.expect("send_receipt", sequence_id=0).position != DUPLICATE
        c.send_bytes(chunk(2, 3, 0, b"c") + chunk(0, 2, 1, b"d") + chunk(1, 2, 1, b"e"))
        assert c.expect("send_receipt", sequence_id=0).position == DUPLICATE
        assert c.expect("send_receipt", sequence_id=1).position != DUPLICATE
        assert c.expect("send_receipt", sequence_id=1).position != DUPLICATE
        assert everything(c, topic, 7) == [b"a", b"b", b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.full
@pytest.mark.parametrize("crash", [False, True])
def test_stored_sequence_ids_are_known_after_a_restart(
    server: StandaloneServer, topic: str, crash: bool
) -> None:
    with line(server.endpoint) as c:
        c.subscribe(topic, "keeps everything")
        open_named(c, topic)
        for first in range(0, 430, 43):
            c.publish(*numbered(43, first), first=first)
        c.publish_batch(numbered(10, 430), first=430)
    for _ in range(2):
        if crash:
            server.kill_and_start()
        else:
            server.restart()
        with line(server.endpoint) as c:
            assert open_named(c, topic) == 439
            assert c.publish(*numbered(430)) == [DUPLICATE] * 430
            assert c.publish_batch(numbered(10, 430), first=430) == DUPLICATE
    with line(server.endpoint) as c:
        open_named(c, topic)
        c.publish(b"440", first=440)
        c.subscribe(topic, "keeps everything")
        c.flow(1_000)
        stored = c.expect_messages(432)
        assert payloads(stored[:430]) == numbered(430)
        assert batch_payload(numbered(10, 430)) == stored[430].payload
        assert stored[431].payload == b"440"
        c.expect_quiet()


@pytest.mark.full
def test_a_time_without_deduplication_forgets_what_was_known(server: StandaloneServer, topic: str) -> None:
    with line(server.endpoint) as c:
        open_named(c, topic)
        c.publish(*numbered(5))
    server.settings["brokerDeduplicationEnabled"] = "false"
    server.restart()
    with line(server.endpoint) as c:
        assert open_named(c, topic) == -1
        assert DUPLICATE not in c.publish(*numbered(5))
    server.settings["brokerDeduplicationEnabled"] = "true"
    server.restart()
    with line(server.endpoint) as c:
        assert open_named(c, topic) == -1
        assert DUPLICATE not in c.publish(*numbered(5))
        assert c.publish(*numbered(5)) == [DUPLICATE] * 5
