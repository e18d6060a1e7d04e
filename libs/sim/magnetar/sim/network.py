"""A network that carries bytes between named processes, and does so badly.

Two ways to talk, as gRPC has them. A *stream* delivers in order or breaks: each side learns of it on its own,
what was under way may still arrive, and a new stream may overtake it. A *call* is a request and an answer:
either may get lost, the request may arrive twice, and calls overtake each other. A path from one name to
another can be blocked, in one direction or both: what is under way then waits like packets that are sent
again, and arrives after healing unless one side gave up before.

Every delay and accident comes from one `random.Random`. Names outlive processes: a service that restarts
listens under its old name. It may listen at another address than its name, too, where another one listened
before: streams and calls go to addresses, paths are between names.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from magnetar.sim.process import WORLD, SimProcess, WorldLoop


class NetworkDown(Exception):
    """No response: the connection was refused or lost, or timed out. The request's outcome is unknown."""


@dataclass(slots=True)
class NetworkFaults:
    """Behavior of the network; may be changed at any time. Probabilities are per message."""

    delay_min_s: float = 0.0001
    delay_max_s: float = 0.001
    slow_probability: float = 0.02
    """Probability that a message takes up to `slow_max_s` instead."""
    slow_max_s: float = 0.05
    break_probability: float = 0.0
    """Probability that a message's stream breaks."""
    loss_probability: float = 0.0
    """Probability that a call loses its request or its response."""
    duplicate_probability: float = 0.0
    """Probability that a call's request arrives twice."""
    give_up_s: float = 1.0
    """Silence in seconds after which the waiting side's stream is broken."""


class StreamEnd(Protocol):
    """A service's end of one stream."""

    def receive(self, message: bytes) -> None:
        """Receives a message. Raising NetworkDown ends the stream from this side."""
        ...

    def broken(self) -> None:
        """Called when the stream is broken: nothing more arrives in either direction."""
        ...


class Service(Protocol):
    """A listening process's interface. Runs in the process that called `SimNetwork.listen`."""

    def open_stream(self, send: Callable[[bytes], None]) -> StreamEnd: ...

    async def call(self, method: str, request: bytes) -> Sequence[bytes]:
        """Answers a call with one or more messages. An exception counts as a response without content."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Listener:
    """A service and its process."""

    process: SimProcess
    service: Service
    address: str


class SimNetwork:
    """All paths between all names."""

    def __init__(self, loop: WorldLoop, rng: random.Random, faults: NetworkFaults | None = None) -> None:
        self.loop = loop
        self.rng = rng
        self.faults = NetworkFaults() if faults is None else faults
        self.messages = 0
        self._listeners: dict[str, Listener] = {}
        self._hosts: dict[str, str] = {}
        self._streams: dict[SimStream, None] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._waiting: dict[tuple[str, str], list[Callable[[], None]]] = {}

    # --- faults ---

    def block(self, source: str, target: str) -> None:
        """Blocks the path from `source` to `target`; the opposite direction is another path."""
        self.loop.trace(f"blocked: {source} to {target}")
        self._blocked.add((source, target))

    def unblock(self, source: str, target: str) -> None:
        """Opens a path; messages waiting at it arrive."""
        self._blocked.discard((source, target))
        for arrive in self._waiting.pop((source, target), []):
            self.later(arrive)

    def partition(self, side: Sequence[str], other: Sequence[str], *, symmetric: bool = True) -> None:
        """Blocks every path from one side to the other."""
        for source in side:
            for target in other:
                self.block(source, target)
                if symmetric:
                    self.block(target, source)

    def heal(self) -> None:
        """Opens every path; waiting messages arrive."""
        self.loop.trace("healed")
        self._blocked.clear()
        waiting, self._waiting = self._waiting, {}
        for arrivals in waiting.values():
            for arrive in arrivals:
                self.later(arrive)

    # --- communication ---

    def listen(self, process: SimProcess, service: Service, address: str = "") -> None:
        """Listens under the process's name, or at another address, until it dies."""
        listener = Listener(process, service, address or process.name)
        self._listeners[listener.address] = listener
        self._hosts[listener.address] = process.name
        process.on_death(lambda: self._died(listener))

    def connect(
        self,
        process: SimProcess,
        target: str,
        receive: Callable[[bytes], None],
        broken: Callable[[], None],
    ) -> SimStream:
        """Opens a stream; a plain call from inside `process`.

        `broken` is called once, also if the address has no listener; not after `close`.
        """
        stream = SimStream(self, process, target, receive, broken)
        self._streams[stream] = None
        process.on_death(stream.client_died)
        return stream

    async def call(
        self, process: SimProcess, target: str, method: str, request: bytes, timeout_s: float
    ) -> Sequence[bytes]:
        """Calls a service, from inside `process`. Raises NetworkDown."""
        answer: asyncio.Future[Sequence[bytes]] = self.loop.create_future()
        faults, rng, host = self.faults, self.rng, self.host(target)

        def requested() -> None:
            if answer.cancelled() and rng.random() < 0.5:
                return  # withdrawn while it was on its way
            listener = self.listener(target)
            if listener is None:
                self._send(host, process.name, returned, None)
            else:
                listener.process.post(begin, listener)

        def begin(listener: Listener) -> None:
            serving.append(self.loop.create_task(serve(listener)))

        async def serve(listener: Listener) -> None:
            try:
                messages = await listener.service.call(method, request)
            except NetworkDown:
                self._send(host, process.name, returned, None)
                return
            if rng.random() >= faults.loss_probability:
                self._send(host, process.name, returned, messages)

        def returned(messages: Sequence[bytes] | None) -> None:
            process.post(finish, messages)

        def finish(messages: Sequence[bytes] | None) -> None:
            if answer.done():
                return
            if messages is None:
                answer.set_exception(NetworkDown(f"{target} did not answer {method}"))
            else:
                answer.set_result(messages)

        serving: list[asyncio.Task[None]] = []
        if rng.random() >= faults.loss_probability:
            self._send(process.name, host, requested)
        if rng.random() < faults.duplicate_probability:
            self._send(process.name, host, requested)
        deadline = self.loop.call_later(timeout_s, finish, None)
        try:
            return await answer
        finally:
            deadline.cancel()

    # --- for streams ---

    def delay(self) -> float:
        """Returns the next message's delay in seconds."""
        faults, rng = self.faults, self.rng
        most = faults.slow_max_s if rng.random() < faults.slow_probability else faults.delay_max_s
        return rng.uniform(faults.delay_min_s, most)

    def listener(self, address: str) -> Listener | None:
        """Returns the current listener at an address."""
        return self._listeners.get(address)

    def host(self, address: str) -> str:
        """Returns the name of the process that listens, or last listened, at an address."""
        return self._hosts.get(address, address)

    def later(self, call: Callable[[], None]) -> None:
        """Runs a call after a message's delay, in the world."""
        self.loop.call_later(self.delay(), call, context=WORLD)

    def arrive(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Delivers a message to its target, or after the path is opened if it is blocked."""
        if (source, target) in self._blocked:
            self._waiting.setdefault((source, target), []).append(deliver)
        else:
            deliver()

    def can_talk(self, client: str, target: str) -> bool:
        """Returns whether a ping would be answered now."""
        listener = self._listeners.get(target)
        return (
            listener is not None
            and not listener.process.paused
            and (client, listener.process.name) not in self._blocked
            and (listener.process.name, client) not in self._blocked
        )

    def forget(self, stream: SimStream) -> None:
        """Drops a stream that is over on both sides, or no longer needed."""
        self._streams.pop(stream, None)

    # --- internal ---

    def _send(self, source: str, target: str, deliver: Callable[..., None], *args: object) -> None:
        self.messages += 1
        self.later(lambda: self.arrive(source, target, lambda: deliver(*args)))

    def _died(self, listener: Listener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]
        for stream in list(self._streams):
            stream.server_died(listener)


class SimStream:
    """The client's end of a stream, connected with the server's."""

    def __init__(
        self,
        network: SimNetwork,
        process: SimProcess,
        target: str,
        receive: Callable[[bytes], None],
        broken: Callable[[], None],
    ) -> None:
        self._network = network
        self._process = process
        self._target = target
        self._receive = receive
        self._broken = broken
        self._over = False
        """Whether the stream is over for the client."""
        self._listener: Listener | None = None
        self._end: StreamEnd | None = None
        self._heard_s = network.loop.time()
        host = network.host(target)
        self._to_server = _Pipe(network, process.name, host, self._at_server)
        self._to_client = _Pipe(network, host, process.name, self._at_client)
        self._to_server.send(b"")
        self._keepalive()

    # --- the client's side ---

    def send(self, message: bytes) -> None:
        """Sends a message; a broken stream drops it."""
        assert message, "an empty message opens a stream"
        if self._over:
            return
        self._to_server.send(message)
        self._maybe_break()

    def close(self) -> None:
        """Closes the stream. Sent messages may still arrive."""
        if not self._over:
            self._over = True
            self._to_server.cut()

    def client_died(self) -> None:
        """Handles the death of the client's process: its machine reports it, or the peer never detects it."""
        self._over = True
        if self._network.rng.random() < 0.5:
            self._to_server.cut()
        self._network.forget(self)

    def _at_client(self, message: bytes | None) -> None:
        self._process.post(self._hear, message)

    def _hear(self, message: bytes | None) -> None:
        if self._over:
            return
        self._heard_s = self._network.loop.time()
        if message is None:
            self._give_up()
        else:
            self._receive(message)

    def _keepalive(self) -> None:
        if self._over:
            return
        now, give_up_s = self._network.loop.time(), self._network.faults.give_up_s
        if self._network.can_talk(self._process.name, self._target):
            self._heard_s = now
        elif now - self._heard_s >= give_up_s:
            self._give_up()
            return
        self._network.loop.call_later(give_up_s / 2, self._keepalive)

    def _give_up(self) -> None:
        self.close()
        self._broken()

    # --- the server's side ---

    def server_died(self, listener: Listener) -> None:
        """Handles the death of the serving process: its machine reports it, or the client detects it after a
        restart.
        """
        if self._listener is listener:
            self._end = None
            if self._network.rng.random() < 0.5:
                self._to_client.cut()
            self._network.forget(self)

    def _at_server(self, message: bytes | None) -> None:
        if self._listener is None:
            if message != b"":
                return  # it broke, or was refused, before it was open
            self._listener = self._network.listener(self._target)
            if self._listener is None:
                self._to_client.cut()
                return
            self._listener.process.post(self._open, self._listener)
        elif self._listener.process.alive:
            self._listener.process.post(self._hand_over, message)
        elif self._network.listener(self._target) is not None:
            self._to_client.cut()  # the new listener does not know this stream

    def _open(self, listener: Listener) -> None:
        self._end = listener.service.open_stream(self._answer)

    def _hand_over(self, message: bytes | None) -> None:
        if self._end is None:
            return
        if message is not None:
            try:
                self._end.receive(message)
            except NetworkDown:
                self._end = None
                self._to_client.cut()
                self._network.forget(self)
            return
        end, self._end = self._end, None
        self._network.forget(self)
        end.broken()

    def _answer(self, message: bytes) -> None:
        if self._end is not None:
            self._to_client.send(message)
            self._maybe_break()

    def _maybe_break(self) -> None:
        if self._network.rng.random() < self._network.faults.break_probability:
            self._network.loop.trace("a stream breaks")
            self._to_server.cut()
            self._to_client.cut()


class _Pipe:
    """One direction of a stream, in order."""

    def __init__(
        self, network: SimNetwork, source: str, target: str, deliver: Callable[[bytes | None], None]
    ) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._deliver = deliver
        self._under_way: deque[bytes | None] = deque()
        self._last_s = 0.0
        self._cut = False

    def send(self, message: bytes | None) -> None:
        if self._cut:
            return
        network = self._network
        network.messages += 1
        self._under_way.append(message)
        self._last_s = max(self._last_s, network.loop.time() + network.delay())
        network.loop.call_at(self._last_s, self._arrived, context=WORLD)

    def cut(self) -> None:
        """Ends the direction: some messages in flight still arrive, then the end; idempotent."""
        if self._cut:
            return
        for _ in range(self._network.rng.randint(0, len(self._under_way))):
            self._under_way.pop()
        self.send(None)
        self._cut = True

    def _arrived(self) -> None:
        # Arrivals have no order among themselves, so messages waiting at a blocked path keep theirs.
        self._network.arrive(self._source, self._target, self._next)

    def _next(self) -> None:
        if self._under_way:
            self._deliver(self._under_way.popleft())
