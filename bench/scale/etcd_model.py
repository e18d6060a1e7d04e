"""etcd under simulation: real transactions, a queue of work, and a count of all that passes.

The keys are those of `magnetar.sim.metadata`. What a request costs is work of one queue, so that it waits
when etcd has too much to do, and fails after the time for which a real process waits. A watch may stand for
many: with `weights`, one shared mirror counts, and costs, as many watches as there are processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Final, TypeVar

from magnetar.common.errors import MetadataError, UnknownOutcome
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
from magnetar.common.metadata.watch_queue import WatchQueue
from magnetar.sim.metadata import SimMetadataServer

from bench.scale.costs import Costs
from bench.scale.queues import Queue

T = TypeVar("T")

ANSWER_S: Final = 5.0
"""Seconds for which a process waits for an answer of etcd."""

NETWORK_S: Final = 0.000_5
"""Seconds from one process to another."""


@dataclass(slots=True)
class Traffic:
    """Counts of all that passed."""

    reads: int = 0
    read_keys: int = 0
    read_bytes: int = 0
    writes: int = 0
    written_keys: int = 0
    written_bytes: int = 0
    refused: int = 0
    """Transactions of which a guard failed."""
    unanswered: int = 0
    """Requests that etcd had no time for."""
    events: int = 0
    event_bytes: int = 0

    def copy(self) -> Traffic:
        return Traffic(**{each.name: getattr(self, each.name) for each in fields(self)})

    def since(self, before: Traffic) -> Traffic:
        return Traffic(**{e.name: getattr(self, e.name) - getattr(before, e.name) for e in fields(self)})


class EtcdModel:
    """The store of all processes, and what they ask of it."""

    def __init__(self, costs: Costs, weights: Callable[[str], int] = lambda prefix: 1) -> None:
        self.server = SimMetadataServer()
        self.queue = Queue()
        self.sent_s = 0.0
        """CPU seconds of all members for sending changes."""
        self.traffic = Traffic()
        self.writes_at: dict[int, int] = {}
        """Transactions by second."""
        self.weights = weights
        self.changes_s = 0.0
        """Seconds for which all changes so far keep a process busy that mirrors them, as every one does."""
        self._costs = costs
        self._unqueued_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._watches: dict[str, list[WatchQueue]] = {}
        self._lengths: dict[int, int] = {}
        self.server.subscribe(self._changed)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all members, for requests and for changes that were sent."""
        return self.queue.busy_s - self.sent_s / self._costs.etcd_cores + self.sent_s + self._unqueued_s

    async def read(self, answer: Callable[[], T], size: Callable[[T], tuple[int, int]], weight: int) -> T:
        """Returns the answer; `size` returns how many keys and bytes of it. Raises MetadataError."""
        keys, octets = size(answer())
        self.traffic.reads += weight
        self.traffic.read_keys += keys * weight
        self.traffic.read_bytes += octets * weight
        # The shared mirrors' listings are of different times in reality: they are counted, and delay nothing.
        work_s = self._costs.etcd_read_s + keys * self._costs.etcd_key_s
        self._unqueued_s += (weight - 1) * work_s
        await self._turn(work_s, MetadataError)
        found = answer()
        await asyncio.sleep(NETWORK_S)
        return found

    async def commit(self, ops: Sequence[Op], lease: int | None) -> int:
        check_ops(ops, has_session=lease is not None)
        await self._turn(self._costs.etcd_write_s, UnknownOutcome)
        self.traffic.writes += 1
        second = int(self._loop.time())
        self.writes_at[second] = self.writes_at.get(second, 0) + 1
        self.traffic.written_keys += sum(not isinstance(op, Check) for op in ops)
        self.traffic.written_bytes += sum(
            len(op.key) + (len(op.value) if isinstance(op, Put) else 0) for op in ops
        )
        try:
            version = self.server.commit(ops, lease)
        except MetadataError:
            self.traffic.refused += 1
            raise
        finally:
            await asyncio.sleep(NETWORK_S)
        return version

    async def skim(self, prefixes: Sequence[str]) -> int:
        """Counts, and waits for, the listings of these prefixes as a process makes them; returns the keys.

        Keys and values of a prefix are alike, so the first hundred are measured.
        """
        found = 0
        for prefix in prefixes:
            keys, some = self.server.count(prefix), self.server.some(prefix, 100)
            octets = sum(map(_size, some)) * keys // max(1, len(some))
            await self.read(partial(len, some), partial(_as_counted, (keys, octets)), 1)
            found += keys
        return found

    def watch(self, prefix: str) -> WatchQueue:
        queue = WatchQueue(prefix, self._unwatch, after=self.server.revision)
        self._watches.setdefault(prefix, []).append(queue)
        self._lengths[len(prefix)] = self._lengths.get(len(prefix), 0) + 1
        return queue

    # -- inside

    async def _turn(self, work_s: float, error: type[MetadataError]) -> None:
        if self.queue.backlog_s > ANSWER_S:
            self.traffic.unanswered += 1
            await asyncio.sleep(ANSWER_S)
            raise error(f"etcd did not answer within {ANSWER_S} s")
        await asyncio.sleep(NETWORK_S + self.queue.wait_s(work_s))

    def _unwatch(self, queue: WatchQueue) -> None:
        watches = self._watches[queue.prefix]
        watches.remove(queue)
        if not watches:
            del self._watches[queue.prefix]
        length = len(queue.prefix)
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]

    def _changed(self, events: list[WatchEvent]) -> None:
        if not events:
            return
        sent = 0
        self.changes_s += self._costs.event_s + (len(events) - 1) * self._costs.joined_event_s
        for event in events:
            size = len(event.key) + (0 if event.value is None else len(event.value))
            for length in self._lengths:
                watches = self._watches.get(event.key[:length]) if length <= len(event.key) else None
                if watches is None:
                    continue
                weight = self.weights(watches[0].prefix) * len(watches)
                sent += weight
                self.traffic.event_bytes += weight * size
                for queue in watches:
                    self._loop.call_later(NETWORK_S, queue.push, event)
        self.traffic.events += sent
        receivers = sent / len(events)
        joined_s = (len(events) - 1) * self._costs.etcd_joined_event_s
        self.sent_s += (work_s := receivers * (self._costs.etcd_event_s + joined_s))
        self.queue.wait_s(work_s / self._costs.etcd_cores)


class EtcdStore:
    """The MetadataStore of one process."""

    def __init__(self, etcd: EtcdModel) -> None:
        self._etcd = etcd

    async def get(self, key: str) -> Versioned | None:
        server = self._etcd.server
        return await self._etcd.read(
            lambda: server.get(key), lambda found: (1, len(key) if found is None else _size(found)), 1
        )

    async def children(self, prefix: str) -> Listing:
        server = self._etcd.server
        return await self._etcd.read(
            lambda: server.children(prefix),
            lambda found: (len(found.items), sum(map(_size, found.items))),
            self._etcd.weights(prefix),
        )

    async def put(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        return await self.commit([Put(key, value, expected_version)])

    async def delete(self, key: str, expected_version: int = ANY_VERSION) -> None:
        await self.commit([Delete(key, expected_version)])

    async def commit(self, ops: Sequence[Op]) -> int:
        return await self._etcd.commit(ops, None)

    def watch(self, prefix: str) -> WatchQueue:
        return self._etcd.watch(prefix)

    async def session(self, ttl_ms: int) -> EtcdSession:
        return EtcdSession(self._etcd, ttl_ms / 1000)

    async def close(self) -> None:
        """Does nothing: a world ends as a whole."""


class EtcdSession:
    """A session that is kept alive until its process closes it or dies."""

    def __init__(self, etcd: EtcdModel, ttl_s: float) -> None:
        self._etcd = etcd
        self._ttl_s = ttl_s
        self._told = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._dead = False
        self._lease = etcd.server.grant(self._told.set)

    def die(self) -> None:
        """The process is gone: the session ends after its time."""
        self._dead = True
        self._loop.call_later(self._ttl_s, self._etcd.server.expire, self._lease)

    async def put_ephemeral(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        return await self.commit([Put(key, value, expected_version, ephemeral=True)])

    async def commit(self, ops: Sequence[Op]) -> int:
        if self._dead:
            raise MetadataError("the process is dead")
        return await self._etcd.commit(ops, self._lease)

    async def expired(self) -> None:
        await self._told.wait()

    @property
    def has_ended(self) -> bool:
        return self._told.is_set()

    @property
    def alive_until_s(self) -> float:
        return self._loop.time() + self._ttl_s

    async def close(self) -> None:
        if not self._dead:
            self._etcd.server.expire(self._lease)
        self._told.set()


def _size(item: Versioned) -> int:
    return len(item.key) + len(item.value)


def _as_counted(counted: tuple[int, int], _found: int) -> tuple[int, int]:
    return counted
