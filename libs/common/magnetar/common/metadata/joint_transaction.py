"""Operations of several callers that are committed in one transaction, each as if it were by itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from magnetar.common.metadata.store import TXN_OPS_MAX, Check, Op


class JointTransaction:
    """Collects operations of callers that do not touch each other's keys.

    A guard sees the state before the transaction, so what one caller writes no other one may read or write.
    Guards that several callers share are kept once.
    """

    __slots__ = ("_checked", "_room", "_written", "ops")

    def __init__(self, ops_max: int = TXN_OPS_MAX) -> None:
        self.ops: list[Op] = []
        self._room = ops_max
        self._written: set[str] = set()
        self._checked: dict[str, int] = {}

    def add(self, ops: Sequence[Op]) -> bool:
        """Adds a caller's operations; returns False, with nothing added, if they do not fit.

        The first caller's always do: whether a transaction of them is possible is for the store to say.
        """
        checks = {op.key: op.expected_version for op in ops if isinstance(op, Check)}
        written = [op.key for op in ops if not isinstance(op, Check)]
        if self.ops:
            ops = [op for op in ops if not isinstance(op, Check) or op.key not in self._checked]
            if len(self.ops) + len(ops) > self._room or self._clashes(checks, written):
                return False
        self.ops += ops
        self._written.update(written)
        self._checked.update(checks)
        return True

    def _clashes(self, checks: dict[str, int], written: Sequence[str]) -> bool:
        if any(key in self._written or key in self._checked for key in written):
            return True
        return any(
            key in self._written or self._checked.get(key, version) != version
            for key, version in checks.items()
        )


class JointRequest(Protocol):
    """A caller's request, which waits for a transaction that takes it."""

    alone: bool
    """Whether it is to be committed alone, because a transaction with others was refused."""
    done: asyncio.Future[Any]
    """Completed with the caller's result."""


RequestT = TypeVar("RequestT", bound=JointRequest)


def take(waiting: deque[RequestT], add: Callable[[RequestT], bool]) -> list[RequestT]:
    """Takes waiting requests, in order, until `add` returns that one does not fit.

    Requests of cancelled callers are dropped. What `add` raises is the request's own failure.
    """
    taken: list[RequestT] = []
    while waiting:
        request = waiting[0]
        if not request.done.done():
            if taken and (request.alone or taken[0].alone):
                break
            try:
                if not add(request):
                    break
            except Exception as error:
                request.done.set_exception(error)
            else:
                taken.append(request)
        waiting.popleft()
    return taken


def fail(requests: Iterable[JointRequest], error: Exception) -> None:
    """Tells the callers that still wait that their requests failed."""
    for request in requests:
        if not request.done.done():
            request.done.set_exception(error)
