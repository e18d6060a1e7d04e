"""Shared parts of all managed ledgers of a process, and their callbacks to the topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from magnetar.common.errors import StorageError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import Check, MetadataStore
from magnetar.common.naming.position import Position
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.cold.cold_reader import ColdStore
from magnetar.ledger.ledger_store import LedgerStore, Run
from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from magnetar.ledger.managed_ledger.write_samples import WriteSamples

Guards = Callable[[], Awaitable[Sequence[Check]]]
"""Conditions of creating a topic, read again for each attempt; raises when they fail."""


async def no_guards() -> Sequence[Check]:
    """Topics are made whatever else there is."""
    return ()


@dataclass(frozen=True, slots=True)
class Persistence:
    """How ledgers are made, in place of what the configuration says."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    mark_delete_rate: float = 0.0
    """How often in a second acknowledgements that nobody waits for may go to disk; 0: no limit."""


_PERSISTENCES_MAX: Final = 1_000
_FLUSH_INTERVAL_MAX_S: Final = 60.0
"""However low the rate is, what was acknowledged so long ago does not come back."""


@dataclass(slots=True)
class Restored:
    """One for all managed ledgers of a process; its owner is the broker."""

    holds: bool = False
    """Metadata was put back from a copy and is not released: it may lack a subscription, or have it anew
    from its consumer, at the end. So nothing goes because nobody needs it."""


@dataclass(slots=True)
class ManagedLedgerContext:
    """The storage, metadata, time and memory that managed ledgers work with."""

    ledgers: LedgerStore
    metadata: MetadataStore
    keys: Keys
    clock: Clock
    config: ManagedLedgerConfig
    cache: EntryCache
    cold: ColdStore | None = None
    """The objects of offloaded ledgers; None: nothing here could read them."""
    creating: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a topic's head is made: creation ids come from one counter."""
    write_samples: WriteSamples = field(default_factory=WriteSamples)
    restored: Restored = field(default_factory=Restored)
    _persisting: dict[Persistence, ManagedLedgerContext] = field(default_factory=dict)

    def persisting_as(self, persistence: Persistence | None) -> ManagedLedgerContext:
        """The same with another way to make ledgers; topics with the same one share it."""
        if persistence is None:
            return self
        found = self._persisting.get(persistence)
        if found is None:
            if len(self._persisting) >= _PERSISTENCES_MAX:
                self._persisting.clear()
            found = self._persisting[persistence] = replace(self, config=self._config_for(persistence))
        return found

    def _config_for(self, persistence: Persistence) -> ManagedLedgerConfig:
        flush_interval_s = self.config.cursor_flush_interval_s
        if persistence.mark_delete_rate > 0:
            slowest_s = min(1 / persistence.mark_delete_rate, _FLUSH_INTERVAL_MAX_S)
            flush_interval_s = max(flush_interval_s, slowest_s)
        return replace(
            self.config,
            ensemble_size=persistence.ensemble_size,
            write_quorum=persistence.write_quorum,
            ack_quorum=persistence.ack_quorum,
            cursor_flush_interval_s=flush_interval_s,
        )


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
    """Result of a read, in order, with skipped entries."""

    runs: list[Run]
    next: Position
    """The first position that was not examined."""
    unreadable: list[Position]
    """Entries that are damaged on the only copy: skipped, counted, logged; the reader acknowledges them."""
