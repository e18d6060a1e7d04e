"""Reads of single keys, of which those that wait for others share one request to etcd.

A call costs more than the read: a process that loads hundreds of topics at once reads thousands of keys. The
first reads are sent at once. While as many are under way as `UNDER_WAY_MAX`, later ones wait, and the next
request has all of them. It is sent after they were asked for, so each sees every earlier write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from etcd3aio import _protobuf as etcd
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.etcd_connection import EtcdRefusal
from magnetar.common.metadata.store import TXN_OPS_MAX, Versioned

UNDER_WAY_MAX: Final = 4
"""Requests at a time; more only cost more."""

Call = Callable[[str, Any], Awaitable[Any]]
"""Sends a read: its description and its request, a RangeRequest or a TxnRequest."""

_Waiting = dict[str, list[asyncio.Future[Versioned | None]]]


class EtcdReads:
    """Reads single keys by `call`; used on one event loop."""

    __slots__ = ("_call", "_tasks", "_under_way", "_waiting")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._under_way = 0
        self._waiting: _Waiting = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def get(self, key: str) -> Versioned | None:
        """Returns the key as it is now; None if it does not exist. Raises MetadataError."""
        if self._under_way < UNDER_WAY_MAX:
            self._under_way += 1
            try:
                return await self._one(key)
            finally:
                self._ended()
        future: asyncio.Future[Versioned | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(future)
        return await future

    def _ended(self) -> None:
        self._under_way -= 1
        if not self._waiting:
            return
        self._under_way += 1
        some: _Waiting = {}
        while self._waiting and len(some) < TXN_OPS_MAX:
            key = next(iter(self._waiting))
            some[key] = self._waiting.pop(key)
        task = asyncio.get_running_loop().create_task(self._together(some), name=f"read {len(some)} keys")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, key: str) -> Versioned | None:
        answer = await self._call(f"read {key!r}", etcd.RangeRequest(key=key.encode()))
        return _only(answer)

    async def _together(self, some: _Waiting) -> None:
        try:
            if len(some) == 1:
                await self._apart(some)
                return
            request = etcd.TxnRequest(
                success=[etcd.RequestOp(request_range=etcd.RangeRequest(key=key.encode())) for key in some]
            )
            try:
                answer = await self._call(f"read {len(some)} keys from {next(iter(some))!r}", request)
            except EtcdRefusal:
                # One of them may be too much for an answer with the others, or not be allowed.
                await self._apart(some)
                return
            for futures, response in zip(some.values(), answer.responses, strict=True):
                _tell(futures, _only(response.response_range))
        except MetadataError as error:
            for futures in some.values():
                _fail(futures, error)
        finally:
            for futures in some.values():  # only if this task was cancelled
                for future in futures:
                    future.cancel()
            self._ended()

    async def _apart(self, some: _Waiting) -> None:
        for key, futures in some.items():
            try:
                _tell(futures, await self._one(key))
            except MetadataError as error:
                _fail(futures, error)


def versioned(pair: Any) -> Versioned:
    """Converts a key as etcd answers it."""
    return Versioned(pair.key.decode(), pair.value, pair.mod_revision)


def _only(answer: Any) -> Versioned | None:
    return versioned(answer.kvs[0]) if answer.kvs else None


def _tell(futures: Iterable[asyncio.Future[Versioned | None]], found: Versioned | None) -> None:
    for future in futures:
        if not future.done():
            future.set_result(found)


def _fail(futures: Iterable[asyncio.Future[Versioned | None]], error: MetadataError) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
