"""Ids from a counter in metadata, each taken by the transaction that writes what is named by it.

Requests that arrive while a transaction is under way share the next one, so a thousand topics that are
created together need a few dozen compare-and-sets of the counter and not a thousand. Each request still
stands for itself: when the guard of one fails, the others are committed without it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from magnetar.common.errors import MetadataError, VersionMismatch
from magnetar.common.metadata.store import ABSENT, TXN_OPS_MAX, Check, MetadataStore, Op, Put
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
        """Whether it is to be committed alone, because a transaction with others failed."""


class _Transaction:
    """Requests that are committed together, and their operations."""

    __slots__ = ("_checked", "_written", "first_id", "firsts", "next_id", "ops", "requests")

    def __init__(self, first_id: int) -> None:
        self.first_id = self.next_id = first_id
        self.requests: list[_Request] = []
        self.firsts: list[int] = []
        self.ops: list[Op] = []
        self._written: set[str] = set()
        self._checked: dict[str, int] = {}

    def add(self, request: _Request) -> bool:
        """Adds a request; returns whether it fits. Raises what its `ops_for` raises."""
        if self.requests and (request.alone or self.requests[0].alone):
            return False
        ops = list(request.ops_for(self.next_id))
        checks = {op.key: op.expected_version for op in ops if isinstance(op, Check)}
        written = [op.key for op in ops if not isinstance(op, Check)]
        if self.requests:
            ops = [
                op
                for op in ops
                if not (isinstance(op, Check) and self._checked.get(op.key) == op.expected_version)
            ]
            if len(self.ops) + len(ops) >= TXN_OPS_MAX or self._clashes(checks, written):
                return False
        self.requests.append(request)
        self.firsts.append(self.next_id)
        self.next_id += request.ids
        self.ops += ops
        self._written.update(written)
        self._checked.update(checks)
        return True

    def _clashes(self, checks: dict[str, int], written: Sequence[str]) -> bool:
        """Whether a request writes what another one reads or writes, or the reverse."""
        if any(key in self._written or key in self._checked for key in written):
            return True
        return any(
            key in self._written or self._checked.get(key, version) != version
            for key, version in checks.items()
        )


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
            _fail(self._waiting, error)
            self._waiting.clear()
            return
        self._known = None
        transaction = self._taken(next_id)
        if not transaction.requests:
            return
        counter = Put(self._key, encode(Counter(next=transaction.next_id)), version)
        try:
            revision = await self._metadata.commit([counter, *transaction.ops])
        except (VersionMismatch, ValueError) as error:
            self._refused(transaction, error)
        except MetadataError as error:
            _fail(transaction.requests, error)
        except BaseException:
            for request in transaction.requests:
                request.done.cancel()
            raise
        else:
            self._known = transaction.next_id, revision
            for request, first in zip(transaction.requests, transaction.firsts, strict=True):
                if not request.done.done():
                    request.done.set_result((first, revision))

    async def _read(self) -> tuple[int, int]:
        found = await self._metadata.get(self._key)
        if found is None:
            return FIRST_ID, ABSENT
        return decode(Counter, found.value).next, found.version

    def _taken(self, next_id: int) -> _Transaction:
        """Takes as many waiting requests as fit in a transaction."""
        transaction = _Transaction(next_id)
        while self._waiting:
            request = self._waiting[0]
            if not request.done.done():  # its caller may have been cancelled
                try:
                    if not transaction.add(request):
                        break
                except Exception as error:
                    request.done.set_exception(error)
            self._waiting.popleft()
        return transaction

    def _refused(self, transaction: _Transaction, error: VersionMismatch | ValueError) -> None:
        """Repeats the requests of a transaction that the store refused, or fails the only one."""
        if not isinstance(error, VersionMismatch) or error.key != self._key:
            if len(transaction.requests) == 1:
                _fail(transaction.requests, error)
                return
            # Committing each by itself shows which of them it was.
            for request in transaction.requests:
                request.alone = True
        self._waiting.extendleft(reversed(transaction.requests))


def _fail(requests: Iterable[_Request], error: Exception) -> None:
    for request in requests:
        if not request.done.done():
            request.done.set_exception(error)
