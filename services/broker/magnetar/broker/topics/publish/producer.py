"""A producer: one client's end of a topic."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from magnetar.broker.peer import Peer
from magnetar.broker.stats import ProducerStats
from magnetar.broker.versions import tell_closed
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import ProducerAccessMode


@dataclass(slots=True, eq=False)
class Answer:
    """The frames that answer a part of a run; None while they are not known."""

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
    """Its client says that it encrypts every message."""
    access_mode: ProducerAccessMode.ValueType = ProducerAccessMode.Shared
    topic_epoch: int = 0
    """The one under which it has the topic alone, at least 1; before it does, the one it had before."""
    promotion: asyncio.Future[None] | None = None
    """Done when it need not wait for the topic any more, one way or the other."""
    fenced: bool = False
    """Another one took the topic: nothing more of it may be stored."""
    pending_runs: int = 0
    """Runs taken whose receipts have not been sent."""
    closed: bool = False
    on_detached: Callable[[], None] | None = None
    """Called when the broker, not the client, closes the producer: its connection forgets it."""
    answers: deque[Answer] | None = None
    """Answers to its messages, in order; only with deduplication."""
    refused_sequence_id: int | None = None
    """Where they are deduplicated: the lowest id that was refused and has not come again."""
    refused_through: int = -1
    """The highest id that was refused since then."""
    last_words: bytes | None = None
    """A message of it was not taken: what its client hears, once all before is answered, and then that it is
    closed."""
    closed_after_s: float = 0.0
    """Between the two."""
    _idle: asyncio.Event | None = field(default=None, repr=False)

    def detach(self) -> None:
        """The broker closed it; sends still on their way to it are ignored."""
        if self.on_detached is not None:
            self.on_detached()

    def settled(self) -> None:
        """One pending run got its receipts."""
        self.pending_runs -= 1
        if self.pending_runs == 0 and self._idle is not None:
            self._idle.set()
            if self.last_words is not None:
                self._say_last_words()

    def part(self, last_words: bytes, closed_after_s: float = 0.0) -> None:
        """Tell the client that it is closed, behind the answers to all that is pending."""
        self.last_words, self.closed_after_s = last_words, closed_after_s
        if self.pending_runs:
            self.idle()  # without it the last answer would not say them
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
        """Set once nothing is pending; to be asked for while something is."""
        if self._idle is None or self._idle.is_set():
            self._idle = asyncio.Event()
        return self._idle

    def give_up(self) -> None:
        """Its topic is lost: what is pending is never confirmed."""
        self.pending_runs = 0
        if self._idle is not None:
            self._idle.set()

    async def wait_persisted(self) -> None:
        """Return once every run taken so far has been confirmed (or its topic is lost)."""
        if self.pending_runs:
            idle = self.idle()
            await idle.wait()
            if self._idle is idle:
                self._idle = None
