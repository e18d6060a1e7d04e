"""A backlog over many topics: published by turns, one entry a topic, and drained from all of them at once."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

import uvloop

from bench.connection import Connection
from bench.frames import FIRST_SEQUENCE_ID, RECEIPT_MARK, MarkCounter, SendTemplate, simple_frame
from bench.generator import QUEUE_MESSAGES, Side, close, until_done
from bench.messages import AckFrames, MessageSplitter, consumer_id_of, message_id_of
from bench.tls_socket import attach

FIRST_ID: Final = 128
"""Producer and consumer ids from here to 16,383 take two bytes, so that all frames have one shape."""

TOPICS_MAX: Final = (1 << 14) - FIRST_ID
OPENED_AT_ONCE: Final = 250
MESSAGES_PER_ACK: Final = 100


class FillTopics(Side):
    """Sends one entry to each topic, again and again, at most `window` without receipt."""

    def __init__(self, templates: list[SendTemplate], entries_per_topic: int, window: int) -> None:
        super().__init__()
        self._templates = templates
        self._entries = len(templates) * entries_per_topic
        self._window = window
        self._sent = 0
        self._receipts = MarkCounter(RECEIPT_MARK)

    def start(self) -> None:
        self._fill()

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        self._receipts.feed(data)
        if self._receipts.count == self._entries:
            self.finish()
        else:
            self._fill()

    def _fill(self) -> None:
        allowed = min(self._entries, self._receipts.count + self._window)
        templates, topics = self._templates, len(self._templates)
        frames = []
        for entry in range(self._sent, allowed):
            turn, topic = divmod(entry, topics)
            frames.append(templates[topic].burst(FIRST_SEQUENCE_ID + turn, 1))
        if frames:
            self.transport.write(b"".join(frames))
            self._sent = allowed


class DrainTopics(Side):
    """Takes everything through a consumer on each topic; acknowledges cumulatively, topic by topic."""

    def __init__(self, topics: int, entries_per_topic: int) -> None:
        super().__init__()
        self._remaining = topics * entries_per_topic
        self._topics = topics
        self._per_topic = entries_per_topic
        self._counts = [0] * topics
        self._acks = [AckFrames(FIRST_ID + topic, cumulative=True) for topic in range(topics)]
        self._splitter = MessageSplitter()

    def start(self) -> None:
        self.transport.write(
            b"".join(
                simple_frame("flow", consumer_id=FIRST_ID + topic, messagePermits=QUEUE_MESSAGES)
                for topic in range(self._topics)
            )
        )

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        out: deque[bytes] = deque()
        counts, per_topic = self._counts, self._per_topic
        commands = self._splitter.feed(data)
        for command in commands:
            consumer_id = consumer_id_of(command)
            topic = consumer_id - FIRST_ID
            count = counts[topic] = counts[topic] + 1
            if count % MESSAGES_PER_ACK == 0 or count == per_topic:
                out.append(self._acks[topic].frame(message_id_of(command, 2)))
            if count % (QUEUE_MESSAGES // 2) == 0:
                permits = QUEUE_MESSAGES // 2
                out.append(simple_frame("flow", consumer_id=consumer_id, messagePermits=permits))
        if out:
            self.transport.write(b"".join(out))
        self._remaining -= len(commands)
        if self._remaining <= 0:
            self.finish()


def fill_interleaved(service_url: str, topics: list[str], size: int, entries_per_topic: int) -> float:
    """Make the topics with their subscriptions and publish; returns the seconds that publishing took."""
    if len(topics) > TOPICS_MAX:
        raise ValueError(f"at most {TOPICS_MAX:,} topics, not {len(topics):,}")
    keeper, producer = Connection(service_url), Connection(service_url)
    for first in range(0, len(topics), OPENED_AT_ONCE):
        keeper.subscribe_all(topics[first : first + OPENED_AT_ONCE], FIRST_ID + first)
        producer.open_producers(topics[first : first + OPENED_AT_ONCE], FIRST_ID + first)
    keeper.close()
    templates = [SendTemplate(size, producer_id=FIRST_ID + number) for number in range(len(topics))]

    async def main() -> float:
        side = FillTopics(templates, entries_per_topic, window=1_000)
        return await _seconds_of(side, producer)

    return uvloop.run(main())


def drain_interleaved(service_url: str, topics: list[str], size: int, entries_per_topic: int) -> float:
    """Subscribe to all, then grant permits to all at once; returns the seconds to the last message."""
    consumer = Connection(service_url)
    for first in range(0, len(topics), OPENED_AT_ONCE):
        consumer.subscribe_all(topics[first : first + OPENED_AT_ONCE], FIRST_ID + first)

    async def main() -> float:
        return await _seconds_of(DrainTopics(len(topics), entries_per_topic), consumer)

    return uvloop.run(main())


async def _seconds_of(side: FillTopics | DrainTopics, connection: Connection) -> float:
    await attach(side, connection.hand_over())
    started = time.perf_counter()
    side.start()
    await until_done(side)
    await close(side)
    return side.ended - started
