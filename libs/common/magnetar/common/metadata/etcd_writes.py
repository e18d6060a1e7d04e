"""Transactions that wait for others and share one request to etcd.

A request costs a process and etcd more than what it writes: a broker that takes over a thousand topics
writes a thousand keys. The first transactions are sent at once. While as many are under way as
`UNDER_WAY_MAX`, later ones wait, and the next request has all of them that do not touch each other's keys.
Each still stands for itself: when a guard of one fails, the others are committed without it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from magnetar.common.errors import MetadataError, VersionMismatch
from magnetar.common.metadata.etcd_connection import EtcdRefusal
from magnetar.common.metadata.joint_transaction import JointTransaction, fail, take
from magnetar.common.metadata.store import Op, Put

UNDER_WAY_MAX: Final = 4
"""Requests at a time."""

BYTES_MAX: Final = 256 << 10
"""Bytes of values from which on no more transactions join a request."""

Commit = Callable[[Sequence[Op]], Awaitable[int]]
"""Sends one transaction; see MetadataStore.commit."""


class _Request:
    __slots__ = ("alone", "byte_length", "done", "ops")

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = ops
        self.byte_length = sum(len(op.value) for op in ops if isinstance(op, Put))
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.alone = False


class EtcdWrites:
    """Commits transactions by `commit`; used on one event loop."""

    __slots__ = ("_commit", "_tasks", "_under_way", "_waiting")

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._under_way = 0
        self._waiting: deque[_Request] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def commit(self, ops: Sequence[Op]) -> int:
        """Commits all of `ops` or none; returns the revision. Raises as MetadataStore.commit."""
        if self._under_way < UNDER_WAY_MAX:
            self._under_way += 1
            try:
                return await self._commit(ops)
            finally:
                self._ended()
        request = _Request(ops)
        self._waiting.append(request)
        return await request.done

    def _ended(self) -> None:
        self._under_way -= 1
        if self._waiting and self._under_way < UNDER_WAY_MAX:
            self._under_way += 1
            task = asyncio.get_running_loop().create_task(self._commit_some(), name="commit to etcd")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _commit_some(self) -> None:
        transaction = JointTransaction()
        byte_length = 0

        def add(request: _Request) -> bool:
            nonlocal byte_length
            fits = byte_length < BYTES_MAX and transaction.add(request.ops)
            byte_length += request.byte_length if fits else 0
            return fits

        requests = take(self._waiting, add)
        try:
            if requests:
                revision = await self._commit(transaction.ops)
                for request in requests:
                    if not request.done.done():
                        request.done.set_result(revision)
        except (VersionMismatch, EtcdRefusal, ValueError) as error:
            self._refused(requests, error)
        except MetadataError as error:
            fail(requests, error)
        except BaseException:
            for request in requests:
                request.done.cancel()
            raise
        finally:
            self._ended()

    def _refused(self, requests: list[_Request], error: VersionMismatch | EtcdRefusal | ValueError) -> None:
        """Fails the request that etcd refused; of several, those whose guard it was, or each by itself."""
        if len(requests) == 1:
            fail(requests, error)
            return
        for request in requests:
            request.alone = not isinstance(error, VersionMismatch) or any(
                op.key == error.key for op in request.ops
            )
        self._waiting.extendleft(reversed(requests))
