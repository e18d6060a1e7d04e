"""Shared parts of all managed ledgers of a process, and their callbacks to the topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from magnetar.common.errors import StorageError
from magnetar.common.metadata.id_counter import IdCounter
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import Check, MetadataStore
from magnetar.common.naming.position import Position
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.cold.cold_reader import ColdStore
from magnetar.ledger.compacted.page_cache import PageCache
from magnetar.ledger.ledger_store import LedgerStore, Run
from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig
from magnetar.ledger.managed_ledger.entry_cache import EntryCache
from magnetar.ledger.managed_ledger.write_samples import WriteSamples

Guards = Callable[[], Awaitable[Sequence[Check]]]
"""Checks the conditions for creating a topic, once per attempt; raises if they do not hold."""


async def no_guards() -> Sequence[Check]:
    """Imposes no conditions on topic creation."""
    return ()


@dataclass(frozen=True, slots=True)
class Persistence:
    """Replication settings of ledgers that override the configuration."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    mark_delete_rate: float = 0.0
    """Maximum flushes per second of acknowledgements without a waiting request; 0: no limit."""


_PERSISTENCES_MAX: Final = 1_000
_FLUSH_INTERVAL_MAX_S: Final = 60.0
"""Longest interval in seconds between flushes, however low the configured rate."""


@dataclass(slots=True)
class Restored:
    """Restoration state shared by all managed ledgers of a process; owned by the broker."""

    holds: bool = False
    """Whether metadata was restored and is not yet released. It may lack a subscription, or have it recreated
    by its consumer at the topic's end, so unused ledgers are not deleted.
    """


@dataclass(slots=True)
class ManagedLedgerContext:
    """Storage, metadata, clock and memory shared by managed ledgers."""

    ledgers: LedgerStore
    metadata: MetadataStore
    keys: Keys
    clock: Clock
    config: ManagedLedgerConfig
    cache: EntryCache
    cold: ColdStore | None = None
    """Objects of offloaded ledgers; None if this process cannot read them."""
    creation_ids: IdCounter = field(init=False)
    """Gives each new topic head its creation id."""
    write_samples: WriteSamples = field(default_factory=WriteSamples)
    restored: Restored = field(default_factory=Restored)
    pages: PageCache = field(default_factory=PageCache)
    """Pages of compacted views that were read last."""
    _persisting: dict[Persistence, ManagedLedgerContext] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.creation_ids = IdCounter(self.metadata, self.keys.creation_id_counter)

    def persisting_as(self, persistence: Persistence | None) -> ManagedLedgerContext:
        """Returns this context with other replication settings; topics with equal settings share it."""
        if persistence is None:
            return self
        found = self._persisting.get(persistence)
        if found is None:
            if len(self._persisting) >= _PERSISTENCES_MAX:
                self._persisting.clear()
            found = self._persisting[persistence] = replace(self, config=self._config_for(persistence))
            found.creation_ids = self.creation_ids
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
    """Callbacks that a topic implements. Called on the event loop, never from inside a managed
    ledger's call.
    """

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        """Called when these runs are durable and readable, in order, with final ledger and entry ids.

        Each has the context given to `append`. A run that was written a second time is a copy of the
        original.
        """
        ...

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        """Called when these runs, in order, were not stored in time: they are certainly not part of the
        topic.
        """
        ...

    def on_lost(self, error: StorageError) -> None:
        """Called once when ownership or storage is permanently lost. Nothing more is confirmed.

        The outcome of unconfirmed runs is unknown, so no producer gets a SendError for them.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Result of a read, in order, with skipped entries."""

    runs: list[Run]
    next: Position
    """The first position that was not examined."""
    unreadable: list[Position]
    """Entries damaged on their only copy: skipped, counted, logged; the reader acknowledges them."""
