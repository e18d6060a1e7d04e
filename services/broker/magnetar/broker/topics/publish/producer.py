"""A producer: the broker's side of one client producer on a topic."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from magnetar.broker.client_endings import EndCode
from magnetar.broker.peer import Peer
from magnetar.broker.stats import ProducerStats
from magnetar.broker.versions import tell_closed
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import ProducerAccessMode


@dataclass(slots=True, eq=False)
class Answer:
    """Frames that answer a part of a run; None while they are not known."""

    frames: bytes | None = None


@dataclass(slots=True, eq=False)
class Producer:
    """A producer: its name, and its unconfirmed messages."""

    producer_id: int
    name: str
    epoch: int
    peer: Peer
    properties: dict[str, str]
    schema_version: bytes
    connected_since_ms: int
    client_version: str = ""
    stats: ProducerStats = field(default_factory=ProducerStats)
    encrypts: bool = False
    """Whether its client declares that it encrypts every message."""
    access_mode: ProducerAccessMode.ValueType = ProducerAccessMode.Shared
    topic_epoch: int = 0
    """Topic epoch of its exclusive access, at least 1; before it has access, its earlier epoch."""
    promotion: asyncio.Future[None] | None = None
    """Done when its wait for exclusive access ends, successfully or not."""
    fenced: bool = False
    """Another producer took the topic: no further message of this one may be stored."""
    pending_runs: int = 0
    """Published runs whose receipts are not sent."""
    closed: bool = False
    on_detached: Callable[[EndCode], None] | None = None
    """Called when the broker, not the client, closes the producer, so that its connection removes it."""
    answers: deque[Answer] | None = None
    """Answers to its messages, in order; only with deduplication."""
    refused_sequence_id: int | None = None
    """With deduplication: the lowest sequence id that was refused and not resent."""
    refused_through: int = -1
    """Highest sequence id that was refused since then."""
    last_words: bytes | None = None
    """Final frames after a refusal, sent after all earlier answers and before CloseProducer."""
    closed_after_s: float = 0.0
    """Seconds between the final frames and CloseProducer."""
    _idle: asyncio.Event | None = field(default=None, repr=False)

    def detach(self, code: EndCode) -> None:
        """Marks the producer as closed by the broker because of `code`; later sends to it are ignored."""
        if self.on_detached is not None:
            self.on_detached(code)

    def settled(self) -> None:
        """Records that one pending run got its receipts."""
        self.pending_runs -= 1
        if self.pending_runs == 0 and self._idle is not None:
            self._idle.set()
            if self.last_words is not None:
                self._say_last_words()

    def part(self, last_words: bytes, closed_after_s: float = 0.0) -> None:
        """Notifies the client that the producer is closed, after the answers to all pending runs."""
        self.last_words, self.closed_after_s = last_words, closed_after_s
        if self.pending_runs:
            self.idle()  # otherwise the last answer would not trigger them
        else:
            self._say_last_words()

    def _say_last_words(self) -> None:
        if not self.peer.connected:
            return
        self.peer.write(self.last_words or b"")
        if self.closed_after_s:
            asyncio.get_running_loop().call_later(self.closed_after_s, self._say_closed)
        else:
            self._say_closed()

    def _say_closed(self) -> None:
        if self.peer.connected:
            tell_closed(self.peer, commands.close_producer(self.producer_id))

    def idle(self) -> asyncio.Event:
        """Returns an event that is set once nothing is pending; call it only while a run is pending."""
        if self._idle is None or self._idle.is_set():
            self._idle = asyncio.Event()
        return self._idle

    def give_up(self) -> None:
        """Gives up on pending runs because the topic is lost; they are never confirmed."""
        self.pending_runs = 0
        if self._idle is not None:
            self._idle.set()

    async def wait_persisted(self) -> None:
        """Waits until every run published so far is confirmed (or the topic is lost)."""
        if self.pending_runs:
            idle = self.idle()
            await idle.wait()
            if self._idle is idle:
                self._idle = None
