"""Offload operations of a managed ledger: refreshes their state, and releases offloaded ledgers from bookies.

A base of `ManagedLedger`, which provides the maintenance task and the rest.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Container

from magnetar.common.errors import LedgerClosed, MetadataError, OwnershipLost, StorageError
from magnetar.ledger.cold.cold_reader import ColdLedger, Verified
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger import bookie_release, offload_progress
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans
from magnetar.ledger.managed_ledger.offload_progress import NO_OFFLOAD, OffloadRules
from magnetar.ledger.managed_ledger.span_reads import SpanReads
from magnetar.ledger.managed_ledger.topic_head import TopicHeadKey

Leaving = tuple[LedgerSpan, Verified, "asyncio.Future[bool]"]


class TopicOffload:
    """Offload operations of one topic. `offload` holds the topic's offload policies; may be set at
    any time.
    """

    __slots__ = ("_closing", "_ctx", "_head", "_leaving", "_lost", "_spans", "creation_id", "name", "offload")

    _spans: LedgerSpans

    def __init__(self, ctx: ManagedLedgerContext, name: str, creation_id: int, head: TopicHeadKey) -> None:
        self._ctx = ctx
        self.name = name
        self.creation_id = creation_id
        self._head = head
        self._closing = False
        self._lost: StorageError | None = None
        self.offload: OffloadRules = NO_OFFLOAD
        self._leaving: list[Leaving] | None = None

    @property
    def created_ms(self) -> int:
        """When the topic was created, in ms since 1970 UTC."""
        return self._head.decode().created_ms

    @property
    def has_closed_ledgers(self) -> bool:
        """Whether the topic has closed ledgers, which could be offloaded."""
        spans = self._spans.spans
        return bool(spans) and spans[0].closed

    async def refresh_offload(self) -> None:
        """Refreshes the offload state of closed ledgers. Raises MetadataError, StorageError."""
        if self.has_closed_ledgers and self._lost is None:
            await offload_progress.refresh_all(self._ctx, self.creation_id, self._spans)

    def due_to_leave(self, skip: Container[LedgerRef] = ()) -> ColdLedger | None:
        """Returns the oldest ledger not in `skip` that must leave bookies once its objects are verified; see
        `leave_bookies`.
        """
        if self._lost is not None or self._closing:
            return None
        span = bookie_release.due(self._spans.spans, self.offload, self._ctx.clock.wall_ms(), skip)
        return None if span is None else offload_progress.cold_ledger(span, self.name, self.creation_id)

    async def leave_bookies(self, verified: Verified) -> bool:
        """Releases a ledger from bookies, leaving only its verified objects. Durable on return.

        Returns False if its objects have been replaced, or it is gone. Raises MetadataError or StorageError
        if the outcome is unknown; a retry is safe.
        """
        self._check_serving()
        span = self._spans.by_id.get(verified.ledger.ref.id)
        if span is None:
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._leaving = [*(self._leaving or ()), (span, verified, done)]
        self._kick()
        return await done

    async def _leave(self) -> None:
        """Releases ledgers one at a time; failures are reported to the waiting caller and not retried
        here.
        """
        assert self._leaving, "the step is due"
        span, verified, done = self._leaving.pop(0)
        self._leaving = self._leaving or None
        try:
            left = await bookie_release.leave(self._ctx, self._head, self.creation_id, span, verified)
        except (MetadataError, StorageError) as error:
            _fail(done, error)
            if isinstance(error, OwnershipLost):
                raise
        except BaseException:
            # Cancelled because the topic closes; the waiting caller must not be cancelled with it.
            _fail(done, LedgerClosed(f"{self.name} closed before it was known to have left"))
            raise
        else:
            if not done.done():
                done.set_result(left)

    def _fail_leaving(self, error: StorageError) -> None:
        """Ends all waits for a ledger to leave without a result."""
        waiting, self._leaving = self._leaving or (), None
        for _, _, done in waiting:
            _fail(done, error)

    def _reads(self) -> SpanReads:
        return SpanReads(self._ctx, self.name, self.creation_id, self.offload.objects_first)

    @abstractmethod
    def _check_serving(self) -> None:
        """Raises an error unless the topic is served."""

    @abstractmethod
    def _kick(self) -> None:
        """Wakes maintenance after a change."""


def _fail(done: asyncio.Future[bool], error: MetadataError | StorageError) -> None:
    if not done.done():
        done.set_exception(error)
