"""Delayed messages, due at an even rate: how late they come, by the clock that said when they are due.

They are published in random order of the times when they are due, all before the first is. Apache Pulsar may
deliver up to a tick early (isDelayedDeliveryDeliverAtTimeStrict=false, the default), so lateness may be
negative; a message that comes earlier than that fails the load, since then nothing was delayed.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Final

import uvloop

from bench.connection import Connection
from bench.figures import curve, percentile
from bench.frames import MixedSends, SendTemplate
from bench.generator import Produce, close, until_done
from bench.loads import Measured
from bench.shares import TakeShare
from bench.target import Target, new_topic
from bench.tls_socket import attach

TICK_MS: Final = 1_000.0
"""delayedDeliveryTickTimeMillis, at its default."""
EARLY_MS_MAX: Final = TICK_MS + 100.0


class TakeDelayed(TakeShare):
    """Notes for each message when it came, less when it was due."""

    def __init__(self, messages: int) -> None:
        super().__init__(self._judge, whole=True)
        self.late_ms: list[float] = []
        self._messages = messages

    def _judge(self, messages: list[bytes]) -> None:
        now = time.time() * 1000
        self.late_ms += [now - int.from_bytes(one[-8:], "big") for one in messages]
        if self.count >= self._messages:
            self.finish()


@dataclass(frozen=True, slots=True)
class Delayed:
    """Publish `entries` messages that fall due at `rate` a second, the first `lead_seconds` from now.

    Raises RuntimeError when publishing took too long for that, or a message came long before its time.
    """

    entries: int
    rate: int = 10_000
    lead_seconds: float = 10.0
    size: int = 100
    window: int = 1_000

    def __call__(self, target: Target) -> Measured:
        topic = new_topic()
        consumer, producer = Connection(target.service_url), Connection(target.service_url)
        consumer.subscribe(topic, sub_type="Shared")
        producer.open_producer(topic)
        first_ms = int((time.time() + self.lead_seconds) * 1000)
        # The same milliseconds again and again, as many messages in each as the rate wants.
        milliseconds = [first_ms + number for number in range(self.entries * 1000 // self.rate)]
        random.Random(1).shuffle(milliseconds)
        sends = MixedSends([SendTemplate(self.size, deliver_at_ms=one) for one in milliseconds])
        cpu_before = target.cpu_seconds()

        async def main() -> tuple[float, list[float]]:
            taking = TakeDelayed(self.entries)
            producing = Produce(sends, self.window, self.entries, 0.0)
            await attach(taking, consumer.hand_over())
            await attach(producing, producer.hand_over())
            taking.start()
            producing.start()
            await until_done(producing)
            spare_ms = first_ms - TICK_MS - time.time() * 1000
            await until_done(taking)
            await close(producing, taking)
            return spare_ms, taking.late_ms

        spare_ms, late_ms = uvloop.run(main())
        if spare_ms < 0:
            raise RuntimeError(f"publishing ended {-spare_ms:.0f} ms after the first message was due")
        if min(late_ms) < -EARLY_MS_MAX:
            raise RuntimeError(f"a message came {-min(late_ms):.0f} ms early: nothing is delayed")
        figures = {
            "entries": float(self.entries),
            "lateness p50": percentile(late_ms, 0.5),
            "lateness p99": percentile(late_ms, 0.99),
            "earliest": min(late_ms),
            "latest": max(late_ms),
            "server CPU per million": (target.cpu_seconds() - cpu_before) / self.entries * 1e6,
        }
        return Measured(figures, {"lateness": curve(late_ms)})
