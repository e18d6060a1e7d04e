"""A metadata store under simulation: linearizable, and as unpleasant as a real one may be.

`SimMetadataServer` is the store itself: its keys survive any crash of its clients. Each simulated process
has its own `SimMetadataStore`, through which requests take a seeded time to arrive and answers to return,
outcomes get lost (the write happened or not), watches lag, fall behind or are cut, and sessions end when
their owner was not heard of for their time. A request that was on its way when its process died may still
arrive.

Needs only `call_later` of the running loop and a `random.Random`; with `magnetar.sim.loop` every run of a
seed is the same. What happens on the way and at the store happens outside every simulated process, so that it
goes on while a process stands still.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from magnetar.common.errors import MetadataError, UnknownOutcome, VersionMismatch
from magnetar.common.metadata.store import (
    ANY_VERSION,
    Check,
    Delete,
    Listing,
    Op,
    Put,
    Versioned,
    WatchEvent,
    check_ops,
)
from magnetar.common.metadata.watch_queue import WATCH_QUEUE_EVENTS_MAX, WatchQueue

T = TypeVar("T")


@dataclass(slots=True)
class MetadataFaults:
    """Faults of the store towards one process; may be changed at any time."""

    delay_max_s: float = 0.002
    """Longest delay in seconds of a request, and of a response."""

    unknown_probability: float = 0.0
    """Probability that the outcome of a write is lost; half of these writes have happened."""

    late_probability: float = 0.0
    """Probability that a write's outcome is reported as unknown before the write arrives and is applied."""

    late_max_s: float = 1.0
    """Longest time in seconds between that report and the write's arrival."""

    watch_delay_max_s: float = 0.01
    """Longest delay in seconds of a watch event; events stay in order."""

    unreachable: bool = False
    """Whether the store is unreachable: reads fail and writes have an unknown outcome (they did not happen).
    """

    silent: bool = False
    """Whether the process is suspended: its sessions are not kept alive."""


@dataclass(frozen=True, slots=True)
class _Stored:
    value: bytes
    version: int
    lease: int | None


class SimMetadataServer:
    """The durable state, shared by every simulated process; each change is atomic."""

    def __init__(self) -> None:
        self.revision = 0
        self._keys: dict[str, _Stored] = {}
        self._ordered: list[str] = []
        """The keys in order, so that a listing of a few of very many is quick."""
        self._leases = 0
        self._expiry: dict[int, Callable[[], None]] = {}
        self._listeners: list[Callable[[list[WatchEvent]], None]] = []
        self.landed_late = 0
        """Number of writes applied after their outcome was reported as unknown."""
        self.lost_races: Counter[str] = Counter()
        """Number of writes, by key, refused because the key had another version."""

    def dump(self) -> dict[str, bytes]:
        """Returns every key and its value, for checkers."""
        return {key: self._keys[key].value for key in self._ordered}

    def fork(self) -> SimMetadataServer:
        """Returns a second store with the same keys and no leases, for experiments."""
        twin = SimMetadataServer()
        twin.revision = self.revision
        twin._keys = {key: stored for key, stored in self._keys.items() if stored.lease is None}
        twin._ordered = sorted(twin._keys)
        return twin

    def restore(self, backup: SimMetadataServer) -> None:
        """Puts the keys and the revision of another store in the place of this one's; no watch is told."""
        self.revision = backup.revision
        self._keys, self._ordered = dict(backup._keys), list(backup._ordered)

    def get(self, key: str) -> Versioned | None:
        stored = self._keys.get(key)
        return None if stored is None else Versioned(key, stored.value, stored.version)

    def children(self, prefix: str) -> Listing:
        return Listing(self.revision, self.some(prefix))

    def count(self, prefix: str) -> int:
        """Returns the number of keys under a prefix."""
        return self._end(prefix) - bisect_left(self._ordered, prefix)

    def some(self, prefix: str, count: int | None = None) -> list[Versioned]:
        """Returns the first keys under a prefix, all by default."""
        first, end = bisect_left(self._ordered, prefix), self._end(prefix)
        keys = self._ordered[first : end if count is None else min(end, first + count)]
        return [Versioned(key, self._keys[key].value, self._keys[key].version) for key in keys]

    def commit(self, ops: Sequence[Op], lease: int | None = None) -> int:
        """Commits all operations or none; raises VersionMismatch, or MetadataError if the lease has ended."""
        if lease is not None and lease not in self._expiry:
            raise MetadataError("the metadata session has ended")
        for op in ops:
            stored = self._keys.get(op.key)
            actual = 0 if stored is None else stored.version
            if op.expected_version not in (ANY_VERSION, actual):
                self.lost_races[op.key] += 1
                raise VersionMismatch(op.key, op.expected_version, actual)
        if all(isinstance(op, Check) for op in ops):
            return self.revision
        self.revision += 1
        events = []
        for op in ops:
            if isinstance(op, Put):
                if op.key not in self._keys:
                    insort(self._ordered, op.key)
                self._keys[op.key] = _Stored(op.value, self.revision, lease if op.ephemeral else None)
                events.append(WatchEvent(op.key, op.value, self.revision))
            elif isinstance(op, Delete) and self._keys.pop(op.key, None) is not None:
                del self._ordered[bisect_left(self._ordered, op.key)]
                events.append(WatchEvent(op.key, None, self.revision))
        for listener in list(self._listeners):
            listener(events)
        return self.revision

    def _end(self, prefix: str) -> int:
        """Returns where the keys under a prefix end."""
        after = prefix.rstrip(chr(0x10FFFF))  # the first text after all that begin with the prefix
        if not after:
            return len(self._ordered)
        return bisect_left(self._ordered, after[:-1] + chr(ord(after[-1]) + 1))

    def grant(self, on_expired: Callable[[], None]) -> int:
        """Grants a new lease; `on_expired` is called once at its end."""
        self._leases += 1
        self._expiry[self._leases] = on_expired
        return self._leases

    def expire(self, lease: int) -> None:
        """Ends a lease and removes its keys; idempotent."""
        on_expired = self._expiry.pop(lease, None)
        if on_expired is None:
            return
        keys = sorted(key for key, stored in self._keys.items() if stored.lease == lease)
        if keys:
            self.commit([Delete(key) for key in keys])
        on_expired()

    def forget_clients(self) -> None:
        """Ends all leases without notifications: every process died together with its event loop."""
        self._listeners.clear()
        self._expiry.clear()
        keys = sorted(key for key, stored in self._keys.items() if stored.lease is not None)
        if keys:
            self.commit([Delete(key) for key in keys])

    def subscribe(self, listener: Callable[[list[WatchEvent]], None]) -> None:
        self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[list[WatchEvent]], None]) -> None:
        self._listeners.remove(listener)


class SimMetadataStore:
    """One simulated process's MetadataStore. `crash` is its sudden end, `close` its orderly one."""

    def __init__(
        self,
        server: SimMetadataServer,
        rng: random.Random,
        *,
        faults: MetadataFaults | None = None,
        watch_events_max: int = WATCH_QUEUE_EVENTS_MAX,
    ) -> None:
        self.faults = MetadataFaults() if faults is None else faults
        self._server = server
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._outside = contextvars.Context()
        self._watch_events_max = watch_events_max
        self._watches: list[WatchQueue] = []
        self._sessions: set[SimSession] = set()
        self._in_flight: deque[WatchEvent] = deque()
        self._last_event_s = 0.0
        self._lose_outcomes: deque[bool] = deque()
        self._alive = True
        server.subscribe(self._changed)

    # --- MetadataStore ---

    async def get(self, key: str) -> Versioned | None:
        return await self._call(lambda: self._server.get(key), writes=False)

    async def children(self, prefix: str) -> Listing:
        return await self._call(lambda: self._server.children(prefix), writes=False)

    async def put(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        return await self.commit([Put(key, value, expected_version)])

    async def delete(self, key: str, expected_version: int = ANY_VERSION) -> None:
        await self.commit([Delete(key, expected_version)])

    async def commit(self, ops: Sequence[Op]) -> int:
        return await self._commit(ops, None)

    def watch(self, prefix: str) -> WatchQueue:
        # Events of earlier changes may still be in flight.
        queue = WatchQueue(prefix, self._watches.remove, self._watch_events_max, after=self._server.revision)
        self._watches.append(queue)
        if not self._alive:
            queue.close()
        return queue

    async def session(self, ttl_ms: int) -> SimSession:
        session = SimSession(self, ttl_ms / 1000)
        self._sessions.add(session)
        try:
            await self._call(session.start, writes=True)
        except BaseException:
            # The session has no holder, so nothing keeps it alive.
            session.orphan()
            self._sessions.discard(session)
            raise
        return session

    async def close(self) -> None:
        if self._alive:
            for session in list(self._sessions):
                try:
                    await session.close()
                except MetadataError:
                    # Its lease ends by itself, after its time.
                    session.orphan()
            self._stop()

    # --- Faults ---

    def lose_next_outcome(self, *, applied: bool) -> None:
        """Makes the next write raise UnknownOutcome, applied or not. Calls accumulate."""
        self._lose_outcomes.append(applied)

    def lose_watches(self) -> None:
        """Ends every watch with WatchLost, as after a compaction."""
        for queue in list(self._watches):
            queue.lose("its revision was compacted")

    def crash(self) -> None:
        """Simulates the process's death: it gets no more responses, and its sessions expire."""
        for session in self._sessions:
            session.orphan()
        self._stop()

    # --- internal ---

    async def _commit(self, ops: Sequence[Op], lease: int | None) -> int:
        check_ops(ops, has_session=lease is not None)
        ops = tuple(ops)
        return await self._call(lambda: self._server.commit(ops, lease), writes=True)

    async def _call(self, operation: Callable[[], T], *, writes: bool) -> T:
        """Runs an operation at one moment, between a request delay and a response delay."""
        if not self._alive:
            raise MetadataError("the metadata store is closed")
        applied, lost = True, False
        if writes and self._lose_outcomes:
            applied, lost = self._lose_outcomes.popleft(), True
        elif writes and self._rng.random() < self.faults.unknown_probability:
            applied, lost = self._rng.random() < 0.5, True
        elif writes and self.faults.late_probability and self._rng.random() < self.faults.late_probability:
            applied, lost = False, True
            self._later(
                self._rng.uniform(self.faults.delay_max_s, self.faults.late_max_s), self._land, operation
            )
        answer: asyncio.Future[T] = self._loop.create_future()

        def arrive() -> None:
            error: Exception | None = None
            result: T | None = None
            if self.faults.unreachable:
                error = (UnknownOutcome if writes else MetadataError)("the metadata store cannot be reached")
            else:
                try:
                    result = operation() if applied else None
                except MetadataError as refusal:
                    error = refusal
                if lost:
                    error = UnknownOutcome("the answer of the metadata store was lost")
            self._later(self._delay(), finish, error, result)

        def finish(error: Exception | None, result: T | None) -> None:
            if answer.done() or not self._alive:
                return
            if error is None:
                answer.set_result(cast(T, result))
            else:
                answer.set_exception(error)

        self._later(self._delay(), arrive)
        return await answer

    def _land(self, operation: Callable[[], object]) -> None:
        """Applies a write that its caller abandoned; its outcome is not reported."""
        try:
            operation()
        except MetadataError:
            return
        self._server.landed_late += 1

    def _later(self, delay_s: float, call: Callable[..., None], *args: object) -> None:
        self._loop.call_later(delay_s, call, *args, context=self._outside)

    def _delay(self) -> float:
        return self._rng.uniform(0, self.faults.delay_max_s)

    def _changed(self, events: list[WatchEvent]) -> None:
        if not self._watches:
            return
        at = self._loop.time() + self._rng.uniform(0, self.faults.watch_delay_max_s)
        self._last_event_s = max(at, self._last_event_s)
        for event in events:
            self._in_flight.append(event)
            self._loop.call_at(self._last_event_s, self._deliver_event, context=self._outside)

    def _deliver_event(self) -> None:
        event = self._in_flight.popleft()
        for queue in list(self._watches):
            queue.push(event)

    def _stop(self) -> None:
        if self._alive:
            self._alive = False
            self._server.unsubscribe(self._changed)
            for queue in list(self._watches):
                queue.close()


class SimSession:
    """A session kept alive while its process lives and reaches the store."""

    def __init__(self, store: SimMetadataStore, ttl_s: float) -> None:
        self._store = store
        self._ttl_s = ttl_s
        self._lease = 0
        self._heard_s = 0.0
        self._orphan = False
        self._over = False
        self._told = asyncio.Event()

    def start(self) -> None:
        """Grants the lease at the store and monitors it."""
        self._lease = self._store._server.grant(self._on_expired)
        self._heard_s = self._store._loop.time()
        self._store._later(self._ttl_s / 3, self._heartbeat)

    def expire(self) -> None:
        """Injects a fault: the store ends the session now."""
        self._store._server.expire(self._lease)

    def orphan(self) -> None:
        """Stops heartbeats, because the process died or gave up."""
        self._orphan = True

    async def put_ephemeral(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        return await self.commit([Put(key, value, expected_version, ephemeral=True)])

    async def commit(self, ops: Sequence[Op]) -> int:
        return await self._store._commit(ops, self._lease)

    async def expired(self) -> None:
        await self._told.wait()

    @property
    def has_ended(self) -> bool:
        return self._told.is_set()

    @property
    def alive_until_s(self) -> float:
        return -math.inf if self._told.is_set() else self._heard_s + self._ttl_s

    async def close(self) -> None:
        if not self._over:
            await self._store._call(self.expire, writes=True)
        self._store._sessions.discard(self)
        self._told.set()

    def _heartbeat(self) -> None:
        loop, faults = self._store._loop, self._store.faults
        if self._over:
            return
        if not self._orphan and not faults.unreachable and not faults.silent:
            self._heard_s = loop.time()
        if loop.time() - self._heard_s >= self._ttl_s:
            self.expire()
        else:
            self._store._later(self._ttl_s / 3, self._heartbeat)

    def _on_expired(self) -> None:
        self._over = True
        self._store._later(self._store._delay(), self._tell)

    def _tell(self) -> None:
        """Notifies the owner once it reaches the store again."""
        if self._orphan:
            return
        if self._store.faults.unreachable:
            self._store._later(self._ttl_s / 3, self._tell)
            return
        self._store._sessions.discard(self)
        self._told.set()
