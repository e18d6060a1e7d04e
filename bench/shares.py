"""The consuming side where several consumers share a subscription, or messages differ: whole messages are
counted, by all of them together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from bench.frames import CONSUMER_ID, simple_frame
from bench.generator import QUEUE_MESSAGES, Side
from bench.messages import AckFrames, MessageSplitter, message_id_of

Taken = Callable[[list[bytes]], None]
"""Told of the messages that came, each from the beginning of its command."""

_PERMITS: Final = QUEUE_MESSAGES // 2


class TakeShare(Side):
    """Takes what one consumer gets, with the permits of a receiver queue.

    Acknowledges each message by itself unless told not to; with `whole` entries are told too. An entry of
    `batch` messages uses as many permits.
    """

    def __init__(
        self, taken: Taken, *, acknowledge: bool = True, whole: bool = False, batch: int = 1
    ) -> None:
        super().__init__()
        self.count = 0
        self._taken = taken
        self._splitter = MessageSplitter(whole=whole)
        self._ack_frames = AckFrames(cumulative=False) if acknowledge else None
        self._batch = batch
        self._granted = 0
        self._flow = simple_frame("flow", consumer_id=CONSUMER_ID, messagePermits=_PERMITS)

    def start(self) -> None:
        self._grant()

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        messages = self._splitter.feed(data)
        if messages:
            self.count += len(messages)
            if self._ack_frames is not None:
                self.transport.write(self._ack_frames.frames([message_id_of(one) for one in messages]))
            self._grant()
            self._taken(messages)

    def _grant(self) -> None:
        while self._granted - self.count * self._batch <= _PERMITS:
            self._granted += _PERMITS
            self.transport.write(self._flow)


class Shares:
    """Consumers of one subscription, which are done together when all of it has come."""

    def __init__(self, consumers: int) -> None:
        self.sides = [TakeShare(self._taken) for _ in range(consumers)]
        self._expected: int | None = None

    def start(self) -> None:
        for side in self.sides:
            side.start()

    def expect(self, messages: int) -> None:
        """Finish at `messages` of all consumers together."""
        self._expected = messages
        self._taken([])

    def _taken(self, _: list[bytes]) -> None:
        if self._expected is not None and sum(side.count for side in self.sides) >= self._expected:
            for side in self.sides:
                side.finish()
