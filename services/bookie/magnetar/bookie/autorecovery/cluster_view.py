"""The cluster as seen by a bookie's auto-recovery: kept current by watches, shared by all parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from magnetar.bookie.autorecovery.metrics import UNDER_REPLICATED
from magnetar.bookie.autorecovery.prefix_view import PrefixView
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BookieCookie, Decommission, UnderReplicated, decode
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.bookie_protocol.registry import BookieRegistry

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """A ledger's under-replication mark, as last read."""

    version: int
    missing: tuple[str, ...]
    """Lost bookies in the ledger's fragments; empty if it may only have gaps."""


class ClusterView:
    """Registered bookies, known bookies, bookies being decommissioned, and under-replicated ledgers."""

    def __init__(self, metadata: MetadataStore, keys: Keys, registry: BookieRegistry) -> None:
        self.registry = registry
        self.cookies: PrefixView[str, bool] = PrefixView(
            metadata,
            keys.cookies_prefix,
            keys.cookie_of,
            lambda data, version: bool(decode(BookieCookie, data).bookie_id),
            self._on_bookies,
        )
        self.decommissions: PrefixView[str, int] = PrefixView(
            metadata,
            keys.decommissions_prefix,
            keys.decommission_of,
            lambda data, version: decode(Decommission, data).created_ms,
            self._on_bookies,
        )
        self.marks: PrefixView[int, Mark] = PrefixView(
            metadata, keys.under_replicated_prefix, keys.under_replicated_of, self._mark, self._on_mark
        )
        self._missing: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._bookie_listeners: list[Callable[[], None]] = []
        self._mark_listeners: list[Callable[[int, Mark | None], None]] = []
        self._tasks = TaskOwner("auto-recovery's view")
        registry.on_change(self._notify_bookies)

    async def start(self) -> None:
        """Starts following and returns once everything is loaded. Waits while metadata is unavailable."""
        self._tasks.spawn(self.cookies.run(), "cookies")
        self._tasks.spawn(self.decommissions.run(), "decommissions")
        self._tasks.spawn(self.marks.run(), "marks")
        await asyncio.gather(
            self.cookies.listed.wait(), self.decommissions.listed.wait(), self.marks.listed.wait()
        )

    async def close(self) -> None:
        """Stops following; idempotent."""
        self._bookie_listeners.clear()
        self._mark_listeners.clear()
        await self._tasks.close()

    def on_bookies(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener` when a bookie registers, leaves, changes its mode or is decommissioned; returns a
        function that removes the listener.
        """
        self._bookie_listeners.append(listener)
        return lambda: _discard(self._bookie_listeners, listener)

    def on_mark(self, listener: Callable[[int, Mark | None], None]) -> Callable[[], None]:
        """Calls `listener(ledger id, mark)` when a mark is added, changed or removed; returns a function that
        removes the listener.
        """
        self._mark_listeners.append(listener)
        return lambda: _discard(self._mark_listeners, listener)

    def is_up(self, bookie_id: str) -> bool:
        return bookie_id in self.registry.bookies

    def leaves(self, bookie_id: str) -> bool:
        """Returns whether an operator is decommissioning the bookie."""
        return bookie_id in self.decommissions

    def _mark(self, data: bytes, version: int) -> Mark:
        # A lost bookie has many ledgers, which name the same few bookies.
        missing = tuple(sorted(decode(UnderReplicated, data).missing_bookie_ids))
        if len(self._missing) > 1000:
            self._missing.clear()
        return Mark(version, self._missing.setdefault(missing, missing))

    def _on_bookies(self, bookie_id: str, value: object) -> None:
        self._notify_bookies()

    def _notify_bookies(self) -> None:
        for listener in list(self._bookie_listeners):
            listener()

    def _on_mark(self, ledger_id: int, mark: Mark | None) -> None:
        UNDER_REPLICATED.set(len(self.marks))
        for listener in list(self._mark_listeners):
            listener(ledger_id, mark)


def _discard(listeners: list[Callable[..., None]], listener: Callable[..., None]) -> None:
    if listener in listeners:
        listeners.remove(listener)
