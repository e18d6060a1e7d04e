"""Key_Shared at full speed: one producer, keys by turns, consumers on connections of their own."""

from __future__ import annotations

import time
from dataclasses import dataclass

import uvloop

from bench.connection import Connection
from bench.frames import MixedSends, SendTemplate
from bench.generator import Produce, close, until_done
from bench.loads import ENTRIES_MAX, Measured
from bench.shares import Shares
from bench.target import Target, new_topic
from bench.tls_socket import attach


@dataclass(frozen=True, slots=True)
class TailKeyShared:
    """Publish `keys` keys by turns for `seconds`, or `entries`, and consume until all has come back."""

    size: int
    keys: int
    consumers: int
    seconds: float = 0.0
    entries: int = ENTRIES_MAX
    window: int = 1_000

    def __call__(self, target: Target) -> Measured:
        topic = new_topic()
        sends = MixedSends([SendTemplate(self.size, key=f"key-{number:04}") for number in range(self.keys)])
        consumers = [Connection(target.service_url) for _ in range(self.consumers)]
        for number, consumer in enumerate(consumers, 1):
            consumer.subscribe(topic, sub_type="Key_Shared", name=f"bench-{number}")
        producer = Connection(target.service_url)
        producer.open_producer(topic)
        cpu_before = target.cpu_seconds()

        async def main() -> tuple[int, float, list[int]]:
            shares = Shares(self.consumers)
            producing = Produce(sends, self.window, self.entries, self.seconds)
            producing.on_all_sent = shares.expect
            for side, consumer in zip(shares.sides, consumers, strict=True):
                await attach(side, consumer.hand_over())
            await attach(producing, producer.hand_over())
            shares.start()
            started = time.perf_counter()
            producing.start()
            await until_done(producing, *shares.sides)
            ended = max(producing.ended, *(side.ended for side in shares.sides))
            await close(producing, *shares.sides)
            return producing.entries, ended - started, [side.count for side in shares.sides]

        messages, seconds, counts = uvloop.run(main())
        figures = {
            "entries": messages,
            "messages/s": messages / seconds,
            "largest share": max(counts) / messages,
            "server CPU per million": (target.cpu_seconds() - cpu_before) / messages * 1e6,
        }
        return Measured(figures, {})
