"""What every managed ledger of a process shares, and what one tells its topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from magnetar.common.errors import StorageError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import Check, MetadataStore
from magnetar.common.naming.position import Position
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.ledger_store import LedgerStore, Run
from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig
from magnetar.ledger.managed_ledger.entry_cache import EntryCache

Guards = Callable[[], Awaitable[Sequence[Check]]]
"""What has to hold when a topic is made, read anew for each attempt; may raise to say that it does not."""


async def no_guards() -> Sequence[Check]:
    """Topics are made whatever else there is."""
    return ()


@dataclass(slots=True)
class ManagedLedgerContext:
    """The storage, metadata, time and memory that managed ledgers work with."""

    ledgers: LedgerStore
    metadata: MetadataStore
    keys: Keys
    clock: Clock
    config: ManagedLedgerConfig
    cache: EntryCache
    creating: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a topic's head is made: creation ids come from one counter."""


class ManagedLedgerListener(Protocol):
    """Implemented by the topic. Called on the event loop, never from inside a call of the managed ledger."""

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        """These runs are durable and readable now, in order; their ledger and entry ids are final.

        With each comes the context given to `append`. A run that had to be written a second time is a copy
        of the one that was given.
        """
        ...

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        """These runs, in order, waited for storage in vain: they are certainly not part of the topic."""
        ...

    def on_lost(self, error: StorageError) -> None:
        """Once: ownership is lost or storage is gone for good. Nothing more will be confirmed.

        The fate of what was not confirmed is unknown: nobody gets a SendError for it.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a read found, in order, with what it had to skip."""

    runs: list[Run]
    next: Position
    """The first position that was not examined."""
    unreadable: list[Position]
    """Entries that are damaged on the only copy: skipped, counted, logged; the reader acknowledges them."""
