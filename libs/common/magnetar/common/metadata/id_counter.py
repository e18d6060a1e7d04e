"""Ids from a counter in metadata, each taken by the transaction that writes what is named by it.

Requests that arrive while a transaction is under way share the next one, so a thousand topics that are
created together need a few dozen compare-and-sets of the counter and not a thousand. Each request still
stands for itself: when the guard of one fails, the others are committed without it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.common.errors import MetadataError, VersionMismatch
from magnetar.common.metadata.joint_transaction import JointTransaction, fail, take
from magnetar.common.metadata.store import ABSENT, TXN_OPS_MAX, MetadataStore, Op, Put
from magnetar.common.metadata.values import Counter, decode, encode

OpsFor = Callable[[int], Sequence[Op]]
"""Returns the operations of a request for its first id; called again with another id when a commit failed."""

FIRST_ID: Final = 1
"""The first id of an instance; 0 means 'none' in some metadata values."""


class _Request:
    __slots__ = ("alone", "done", "ids", "ops_for")

    def __init__(self, ops_for: OpsFor, ids: int) -> None:
        self.ops_for = ops_for
        self.ids = ids
        self.done: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self.alone = False


class IdCounter:
    """Gives out ids of one counter, in ascending order; create it on its event loop."""

    __slots__ = ("_key", "_known", "_metadata", "_round", "_waiting")

    def __init__(self, metadata: MetadataStore, key: str) -> None:
        self._metadata = metadata
        self._key = key
        self._known: tuple[int, int] | None = None
        """The next id and the counter's version after this process's last commit; a hint."""
        self._waiting: deque[_Request] = deque()
        self._round: asyncio.Task[None] | None = None

    async def commit(self, ops_for: OpsFor, ids: int = 1) -> tuple[int, int]:
        """Commits the operations for the next `ids` ids in one transaction that also takes the ids; returns
        the first id and the revision. Ids are above all that were given out before.

        Raises VersionMismatch, with nothing written, for a guard of its own; UnknownOutcome for the last id
        that `ops_for` was called with; another MetadataError when nothing was written. A caller that is
        cancelled leaves the outcome unknown.
        """
        request = _Request(ops_for, ids)
        self._waiting.append(request)
        if self._round is None:
            self._round = asyncio.get_running_loop().create_task(
                self._commit_all(), name=f"ids of {self._key}"
            )
        return await request.done

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                await self._commit_some()
        finally:
            self._round = None
            for request in self._waiting:  # only if this task was cancelled
                request.done.cancel()
            self._waiting.clear()

    async def _commit_some(self) -> None:
        try:
            next_id, version = self._known or await self._read()
        except MetadataError as error:
            fail(self._waiting, error)
            self._waiting.clear()
            return
        self._known = None
        requests, ops = self._taken(next_id)
        if not requests:
            return
        after = next_id + sum(request.ids for request in requests)
        try:
            revision = await self._metadata.commit(
                [Put(self._key, encode(Counter(next=after)), version), *ops]
            )
        except (VersionMismatch, ValueError) as error:
            self._refused(requests, error)
        except MetadataError as error:
            fail(requests, error)
        except BaseException:
            for request in requests:
                request.done.cancel()
            raise
        else:
            self._known = after, revision
            for request in requests:
                if not request.done.done():
                    request.done.set_result((next_id, revision))
                next_id += request.ids

    async def _read(self) -> tuple[int, int]:
        found = await self._metadata.get(self._key)
        if found is None:
            return FIRST_ID, ABSENT
        return decode(Counter, found.value).next, found.version

    def _taken(self, next_id: int) -> tuple[list[_Request], list[Op]]:
        """Takes as many waiting requests as fit in a transaction with the counter."""
        transaction = JointTransaction(TXN_OPS_MAX - 1)

        def add(request: _Request) -> bool:
            nonlocal next_id
            fits = transaction.add(request.ops_for(next_id))
            next_id += request.ids if fits else 0
            return fits

        return take(self._waiting, add), transaction.ops

    def _refused(self, requests: list[_Request], error: VersionMismatch | ValueError) -> None:
        """Repeats the requests of a transaction that the store refused, or fails the only one."""
        if not isinstance(error, VersionMismatch) or error.key != self._key:
            if len(requests) == 1:
                fail(requests, error)
                return
            # Committing each by itself shows which of them it was.
            for request in requests:
                request.alone = True
        self._waiting.extendleft(reversed(requests))
