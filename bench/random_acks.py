"""A subscription that holds many messages, acknowledged one by one in random order.

Acknowledgements are grouped by a thousand, as clients group them, and ask for receipts. The time ends when
the broker says that nothing is left unacknowledged. That of the last receipt is told too: from Magnetar it
says that the acknowledgement is durable, from Apache Pulsar that it was counted.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import uvloop
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.frame import FrameDecoder

from bench.connection import Connection, Refused
from bench.frames import CONSUMER_ID, SendTemplate, simple_frame
from bench.generator import Produce, close, until_done
from bench.loads import Measured
from bench.messages import grouped_acks, message_id_of
from bench.shares import TakeShare
from bench.target import Target, new_topic
from bench.tls_socket import attach

GROUP_MESSAGES: Final = 1_000
SAMPLE_SECONDS: Final = 0.02
SETTLE_SECONDS: Final = 2.0
_REQUEST_ID: Final = 1
_ASK_BACKLOG: Final = simple_frame("consumerStats", consumer_id=CONSUMER_ID, request_id=_REQUEST_ID)


class AckAtRandom(TakeShare):
    """Takes everything without acknowledging, then acknowledges all in an order of its own.

    Finished when the broker says that there is no backlog.
    """

    def __init__(self, messages: int) -> None:
        super().__init__(self._keep, acknowledge=False)
        self.ids: list[bytes] = []
        self.answered = 0.0
        """When the last receipt came."""
        self._messages = messages
        self._groups: list[bytes] = []
        self._receipts = 0
        self._answers: FrameDecoder | None = None

    def prepare(self, rng: random.Random) -> None:
        """The frames, encoded before the clock runs."""
        rng.shuffle(self.ids)
        firsts = range(0, len(self.ids), GROUP_MESSAGES)
        self._groups = [
            grouped_acks(self.ids[first : first + GROUP_MESSAGES], _REQUEST_ID) for first in firsts
        ]
        self._answers = FrameDecoder()
        self.done = asyncio.get_running_loop().create_future()

    def acknowledge(self) -> None:
        self.heard = time.monotonic()
        self.transport.writelines(self._groups)

    def data_received(self, data: bytes) -> None:
        if self._answers is None:
            super().data_received(data)
            return
        self.heard = time.monotonic()
        for frame in self._answers.receive_data(data):
            self._take_answer(frame.command)

    def _take_answer(self, command: pb.BaseCommand) -> None:
        if command.HasField("ackResponse"):
            if command.ackResponse.HasField("error"):
                raise Refused(command.ackResponse.message)
            self._receipts += 1
            if self._receipts == len(self._groups):
                self.answered = time.perf_counter()
                self.transport.write(_ASK_BACKLOG)
        elif command.HasField("consumerStatsResponse"):
            if command.consumerStatsResponse.msgBacklog:
                self.transport.write(_ASK_BACKLOG)
            else:
                self.finish()

    def _keep(self, commands: list[bytes]) -> None:
        self.ids += [message_id_of(one) for one in commands]
        if self.count >= self._messages:
            self.finish()


async def peak(read: Callable[[], int], until: asyncio.Event) -> int:
    """The highest of many samples."""
    highest = read()
    while not until.is_set():
        await asyncio.sleep(SAMPLE_SECONDS)
        highest = max(highest, read())
    return highest


@dataclass(frozen=True, slots=True)
class RandomAcks:
    """Publish and receive `entries` messages, then acknowledge each by itself, in random order."""

    entries: int
    size: int = 100
    window: int = 1_000

    def __call__(self, target: Target) -> Measured:
        topic = new_topic()
        consumer, producer = Connection(target.service_url), Connection(target.service_url)
        consumer.subscribe(topic)
        producer.open_producer(topic)

        async def main() -> dict[str, float]:
            taking = AckAtRandom(self.entries)
            producing = Produce(SendTemplate(self.size), self.window, self.entries, 0.0)
            await attach(taking, consumer.hand_over())
            await attach(producing, producer.hand_over())
            taking.start()
            producing.start()
            await until_done(producing, taking)
            taking.prepare(random.Random(1))
            await asyncio.sleep(SETTLE_SECONDS)
            rss_before, cpu_before = target.rss_bytes(), target.cpu_seconds()
            over = asyncio.Event()
            sampling = asyncio.create_task(peak(target.rss_bytes, over))
            started = time.perf_counter()
            taking.acknowledge()
            await until_done(taking)
            seconds, cpu = taking.ended - started, target.cpu_seconds() - cpu_before
            over.set()
            highest = await sampling
            await close(producing, taking)
            return {
                "seconds": seconds,
                "last receipt": taking.answered - started,
                "acks/s": self.entries / seconds,
                "extra MB": (highest - rss_before) / 1e6,
                "peak RSS MB": highest / 1e6,
                "server CPU per million": cpu / self.entries * 1e6,
            }

        return Measured({"entries": float(self.entries), **uvloop.run(main())}, {})
