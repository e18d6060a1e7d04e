"""TLS handshakes of a process: which connection may begin one, and when.

A handshake costs the event loop about a millisecond, so a hundred at once would stop messages. Connections
come in three steps, each with a bound: *silent* ones have sent nothing yet, *queued* ones have sent their
first bytes, and only those *in process* cost CPU. A silent or slow peer therefore never holds up another one:
it has no slot, or has it for a moment. Addresses take turns.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.security.tls import handshake_results as results
from magnetar.common.security.tls.peer_certificate import peer_certificate
from magnetar.common.security.tls.revoked_certificates import CertifiedConnections
from magnetar.common.security.tls.seen_addresses import SeenAddresses

_log = get_logger(__name__)

SILENT_MAX: Final = 1_000
"""Connections in the process that have sent nothing; one more takes the place of the oldest."""

SILENT_PER_ADDRESS_MAX: Final = 64
"""The same for one address."""

QUEUED_MAX: Final = 1_000
"""Connections that wait for their handshake; from here on nothing more is accepted."""

QUEUED_PER_ADDRESS_MAX: Final = 256
"""The same for one address; more are closed."""

UNFINISHED_PER_ADDRESS_MAX: Final = 64
"""Handshakes of one address that have begun and are not complete."""

SLOT_S: Final = 0.1
"""After this time a handshake waits for its client and leaves its slot to another one."""

_HANDSHAKE_RECORD: Final = 0x16


@dataclass(eq=False, slots=True)
class Arrival:
    """An accepted connection whose handshake is not complete. `context` and `factory` make its
    TLS context and its protocol.
    """

    sock: socket.socket
    peer: str
    """host:port of the client."""
    address: str
    context: Callable[[], ssl.SSLContext]
    factory: Callable[[], asyncio.BaseProtocol]
    deadline: float = 0.0
    timer: asyncio.TimerHandle | None = None


class Handshakes:
    """Begins and counts handshakes. One for all TLS ports of a process, on one event loop."""

    def __init__(self, *, at_once_max: int, per_s: int, timeout_s: float) -> None:
        """`at_once_max` handshakes are in process at a time, half of them of one address; `per_s` begin a
        second; each has to be complete `timeout_s` after the connection was accepted.
        """
        self._at_once_max = at_once_max
        self._share_max = max(1, at_once_max // 2)
        self._per_s = per_s
        self._timeout_s = timeout_s
        self._silent: dict[Arrival, None] = {}
        self._silent_of: dict[str, dict[Arrival, None]] = {}
        self._queue: OrderedDict[str, deque[Arrival]] = OrderedDict()
        self._queued = 0
        self._slots: set[Arrival] = set()
        self._in_process: Counter[str] = Counter()
        self._unfinished: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._tokens = float(at_once_max)
        self._tokens_at = float("-inf")
        self._next_turn: asyncio.TimerHandle | None = None
        self._resume: list[Callable[[], None]] = []
        self._plaintext = SeenAddresses()
        self._failures = LogLimit()
        self._closed = False
        self.certified: CertifiedConnections | None = None
        """Gets connections of clients that showed a certificate; None without revocation lists."""
        self.on_failed: Callable[[str, str, str], None] | None = None
        """Called with the client's host:port, the result and the reason of each handshake that failed."""

    @property
    def waiting(self) -> int:
        """Connections whose handshake has not begun."""
        return len(self._silent) + self._queued

    @property
    def full(self) -> bool:
        """Whether nothing more should be accepted now; `when_free` tells when it should."""
        return self._queued >= QUEUED_MAX

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call `callback` once connections can be accepted again."""
        self._resume.append(callback)

    def admit(self, arrival: Arrival) -> None:
        """Take over a non-blocking socket that was just accepted, and close it if there is no handshake."""
        loop = asyncio.get_running_loop()
        if self._closed:
            arrival.sock.close()
            return
        arrival.deadline = loop.time() + self._timeout_s
        first = _peek(arrival.sock)
        if first is not None:
            self._spoken(arrival, first)
            return
        mine = self._silent_of.setdefault(arrival.address, {})
        if len(mine) >= SILENT_PER_ADDRESS_MAX:
            self._make_room(next(iter(mine)))
        elif len(self._silent) >= SILENT_MAX:
            self._make_room(next(iter(self._silent)))
        self._silent[arrival] = None
        self._silent_of.setdefault(arrival.address, {})[arrival] = None
        arrival.timer = loop.call_at(arrival.deadline, self._heard_nothing, arrival)
        loop.add_reader(arrival.sock, self._readable, arrival)

    async def close(self) -> None:
        """End all handshakes and close their connections; idempotent."""
        self._closed = True
        if self._next_turn is not None:
            self._next_turn.cancel()
        for arrival in list(self._silent):
            self._forget_silent(arrival)
            arrival.sock.close()
        for arrivals in self._queue.values():
            for arrival in arrivals:
                arrival.sock.close()
        self._queue.clear()
        self._queued = 0
        self._resume.clear()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- silent connections

    def _readable(self, arrival: Arrival) -> None:
        if arrival not in self._silent:
            return
        first = _peek(arrival.sock)
        if first is not None:
            self._forget_silent(arrival)
            self._spoken(arrival, first)

    def _spoken(self, arrival: Arrival, first: bytes) -> None:
        """A connection has sent its first bytes; none when it ended."""
        if not first:
            self._refuse(arrival, results.CLOSED, "the client closed the connection")
        elif first[0] != _HANDSHAKE_RECORD:
            self._refuse_plaintext(arrival, first)
        else:
            self._enqueue(arrival)

    def _make_room(self, oldest: Arrival) -> None:
        first = _peek(oldest.sock)
        self._forget_silent(oldest)
        if first is None:
            self._refuse(oldest, results.CROWDED, "too many connections are silent")
        else:
            self._spoken(oldest, first)

    def _heard_nothing(self, arrival: Arrival) -> None:
        if arrival in self._silent:
            self._forget_silent(arrival)
            self._refuse(arrival, results.TIMEOUT, "the client sent nothing in time")

    def _forget_silent(self, arrival: Arrival) -> None:
        del self._silent[arrival]
        mine = self._silent_of[arrival.address]
        del mine[arrival]
        if not mine:
            del self._silent_of[arrival.address]
        if arrival.timer is not None:
            arrival.timer.cancel()
            arrival.timer = None
        asyncio.get_running_loop().remove_reader(arrival.sock)

    # -- queued connections

    def _enqueue(self, arrival: Arrival) -> None:
        mine = self._queue.setdefault(arrival.address, deque())
        if len(mine) >= QUEUED_PER_ADDRESS_MAX:
            self._refuse(arrival, results.CROWDED, "too many connections of this address wait")
            return
        mine.append(arrival)
        self._queued += 1
        self._begin_some()

    def _begin_some(self) -> None:
        """Begin handshakes while there are slots, in turns of the addresses."""
        loop = asyncio.get_running_loop()
        while self._queued and len(self._slots) < self._at_once_max:
            address = next(filter(self._has_share, self._queue), None)
            if address is None:
                return
            now = loop.time()
            if not self._take_token(now):
                if self._next_turn is None:
                    self._next_turn = loop.call_at(now + 1 / self._per_s, self._turn)
                return
            arrival = self._queue[address].popleft()
            self._queued -= 1
            self._queue.move_to_end(address)
            if not self._queue[address]:
                del self._queue[address]
            if now >= arrival.deadline:
                self._refuse(arrival, results.TIMEOUT, "no turn came in time")
            else:
                self._begin(arrival)
            self._tell_free()

    def _turn(self) -> None:
        self._next_turn = None
        self._begin_some()

    def _has_share(self, address: str) -> bool:
        return (
            self._in_process[address] < self._share_max
            and self._unfinished[address] < UNFINISHED_PER_ADDRESS_MAX
        )

    def _take_token(self, now: float) -> bool:
        if self._tokens_at == float("-inf"):
            self._tokens_at = now
        self._tokens = min(float(self._at_once_max), self._tokens + (now - self._tokens_at) * self._per_s)
        self._tokens_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _tell_free(self) -> None:
        if self._resume and self._queued <= QUEUED_MAX // 2:
            callbacks, self._resume = self._resume, []
            for callback in callbacks:
                callback()

    # -- handshakes in process

    def _begin(self, arrival: Arrival) -> None:
        loop = asyncio.get_running_loop()
        self._slots.add(arrival)
        self._in_process[arrival.address] += 1
        self._unfinished[arrival.address] += 1
        slot = loop.call_later(SLOT_S, self._leave_slot, arrival)
        task = loop.create_task(self._handshake(arrival), name="tls handshake")
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            _decrease(self._unfinished, arrival.address)
            slot.cancel()
            self._leave_slot(arrival)

        task.add_done_callback(done)

    def _leave_slot(self, arrival: Arrival) -> None:
        if arrival in self._slots:
            self._slots.discard(arrival)
            _decrease(self._in_process, arrival.address)
        self._begin_some()

    async def _handshake(self, arrival: Arrival) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = max(arrival.deadline - loop.time(), 0.001)
        try:
            transport, _ = await loop.connect_accepted_socket(
                arrival.factory, arrival.sock, ssl=arrival.context(), ssl_handshake_timeout=timeout_s
            )
        except asyncio.CancelledError:
            arrival.sock.close()
            raise
        except Exception as error:
            self._refuse(arrival, *results.outcome_of(error))
        else:
            results.HANDSHAKES.labels(results.OK).inc()
            if self.certified is not None and (certificate := peer_certificate(transport)) is not None:
                self.certified.add(arrival.sock, certificate)

    # -- connections that are refused

    def _refuse(self, arrival: Arrival, result: str, reason: str) -> None:
        arrival.sock.close()
        results.HANDSHAKES.labels(result).inc()
        if self.on_failed is not None:
            self.on_failed(arrival.peer, result, reason)
        count = self._failures.note(asyncio.get_running_loop().time())
        if count:
            _log.info(
                "TLS handshake failed", peer=arrival.peer, result=result, reason=reason, handshakes=count
            )

    def _refuse_plaintext(self, arrival: Arrival, first: bytes) -> None:
        arrival.sock.close()
        results.HANDSHAKES.labels(results.PLAINTEXT).inc()
        hint = "use the plain port, or pulsar+ssl://"
        if first.isascii() and first[:3].isalpha():
            hint = "this looks like HTTP; use https://"
        if self.on_failed is not None:
            self.on_failed(arrival.peer, results.PLAINTEXT, f"plain text on a TLS port: {hint}")
        if self._plaintext.add(arrival.address):
            _log.warning("plain text on a TLS port", peer=arrival.peer, first_bytes=first.hex(), hint=hint)


def _peek(sock: socket.socket) -> bytes | None:
    """The first bytes that wait in a socket, which stay there; b"" when it ended, None when it is silent."""
    try:
        return sock.recv(4, socket.MSG_PEEK)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


def _decrease(counts: Counter[str], address: str) -> None:
    counts[address] -= 1
    if counts[address] <= 0:
        del counts[address]
