"""Reads of single keys and of short listings, of which those that wait share one request to etcd.

A request costs a process and etcd more than what it reads: a broker that loads a thousand topics reads
thousands of keys. The first reads are sent at once. While as many are under way as `UNDER_WAY_MAX`, later
ones wait, and the next request has all of them. It is sent after they were asked for, so each sees every
earlier write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from etcd3aio import _protobuf as etcd
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.etcd_connection import EtcdRefusal
from magnetar.common.metadata.etcd_watch import prefix_range
from magnetar.common.metadata.store import TXN_OPS_MAX, Listing, Versioned

UNDER_WAY_MAX: Final = 4
"""Requests at a time."""

LISTED_MAX: Final = 50
"""Maximum keys of a listing that is read with others."""

Call = Callable[[str, Any], Awaitable[Any]]
"""Sends a read: its description and its request, a RangeRequest or a TxnRequest."""


@dataclass(frozen=True, slots=True)
class _Range:
    """A key, or all keys with a prefix."""

    key: str
    is_prefix: bool

    def request(self) -> Any:
        if not self.is_prefix:
            return etcd.RangeRequest(key=self.key.encode())
        first, end = prefix_range(self.key)
        return etcd.RangeRequest(key=first, range_end=end, limit=LISTED_MAX)


@dataclass(frozen=True, slots=True)
class _Found:
    """etcd's answer to a range, and the revision at which it was read."""

    answer: Any
    revision: int


_Waiting = dict[_Range, list[asyncio.Future[_Found]]]


class EtcdReads:
    """Reads by `call`; used on one event loop."""

    __slots__ = ("_call", "_tasks", "_under_way", "_waiting")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._under_way = 0
        self._waiting: _Waiting = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def get(self, key: str) -> Versioned | None:
        """Returns the key as it is now; None if it does not exist. Raises MetadataError."""
        pairs = (await self._read(_Range(key, is_prefix=False))).answer.kvs
        return versioned(pairs[0]) if pairs else None

    async def children(self, prefix: str) -> Listing | None:
        """Returns all keys with a prefix at one revision; None if they are more than LISTED_MAX.

        Raises MetadataError.
        """
        found = await self._read(_Range(prefix, is_prefix=True))
        if found.answer.more:
            return None
        return Listing(found.revision, [versioned(pair) for pair in found.answer.kvs])

    async def _read(self, wanted: _Range) -> _Found:
        if self._under_way < UNDER_WAY_MAX:
            self._under_way += 1
            try:
                return await self._one(wanted)
            finally:
                self._ended()
        future: asyncio.Future[_Found] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(wanted, []).append(future)
        return await future

    def _ended(self) -> None:
        self._under_way -= 1
        if not self._waiting or self._under_way >= UNDER_WAY_MAX:
            return
        self._under_way += 1
        some: _Waiting = {}
        while self._waiting and len(some) < TXN_OPS_MAX:
            wanted = next(iter(self._waiting))
            some[wanted] = self._waiting.pop(wanted)
        task = asyncio.get_running_loop().create_task(self._together(some), name=f"read {len(some)} ranges")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, wanted: _Range) -> _Found:
        answer = await self._call(f"read {wanted.key!r}", wanted.request())
        return _Found(answer, answer.header.revision)

    async def _together(self, some: _Waiting) -> None:
        try:
            if len(some) == 1:
                await self._apart(some)
                return
            request = etcd.TxnRequest(success=[etcd.RequestOp(request_range=each.request()) for each in some])
            try:
                answer = await self._call(f"read {len(some)} ranges from {next(iter(some)).key!r}", request)
            except EtcdRefusal:
                # One of them may be too much for an answer with the others, or not be allowed.
                await self._apart(some)
                return
            for futures, response in zip(some.values(), answer.responses, strict=True):
                _tell(futures, _Found(response.response_range, answer.header.revision))
        except MetadataError as error:
            for futures in some.values():
                _fail(futures, error)
        finally:
            for futures in some.values():  # only if this task was cancelled
                for future in futures:
                    future.cancel()
            self._ended()

    async def _apart(self, some: _Waiting) -> None:
        for wanted, futures in some.items():
            try:
                _tell(futures, await self._one(wanted))
            except MetadataError as error:
                _fail(futures, error)


def versioned(pair: Any) -> Versioned:
    """Converts a key as etcd answers it."""
    return Versioned(pair.key.decode(), pair.value, pair.mod_revision)


def _tell(futures: Iterable[asyncio.Future[_Found]], found: _Found) -> None:
    for future in futures:
        if not future.done():
            future.set_result(found)


def _fail(futures: Iterable[asyncio.Future[_Found]], error: MetadataError) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
