"""Carrying out what may go: recorded deletions of objects, and objects that no ledger names.

What may go is decided in `magnetar.ledger.cold.sweep`, which the command line shares. Here it is done, off
the event loop: listing and deleting block. Two who sweep at once do no harm, since what is gone may be
deleted again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from magnetar.broker.config import BrokerConfig
from magnetar.broker.offload.deletions import object_deletions, objects_deleted
from magnetar.broker.offload.locations import place_in_configuration, place_in_policy
from magnetar.broker.offload.scanning import Scan, scan
from magnetar.broker.offload.store_calls import OpenStore, Store, in_thread, until
from magnetar.common.errors import DataCorruption, MagnetarError, UnsupportedFormat
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Namespace, decode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.obs.logs import get_logger
from magnetar.common.offload.offload_pb2 import Deletion
from magnetar.ledger.cold.layout import AttemptPath, parse_attempt_path
from magnetar.ledger.cold.objects import StoredObject
from magnetar.ledger.cold.sweep import NOT_ALL_READ, AttemptObjects, Sweep, to_sweep
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers

log = get_logger(__name__)

LOCATIONS_MAX: Final = 10_000
"""Of one sweep; a cluster with more has them swept in later ones, as those before them come to an end."""

IDLE_SWEEPS: Final = 24
"""While no location is known, one sweep of so many goes through the ledgers of all topics to find one."""

_NAMED: Final = (Offload.RUNNING, Offload.COMPLETE)


@dataclass(slots=True)
class Named:
    """What metadata names at some moment."""

    attempts: set[str] = field(default_factory=set)
    """Last steps of the paths of attempts that run or are complete."""
    locations: set[str] = field(default_factory=set)
    complete: bool = True
    """Whether every topic could be read."""


@dataclass(slots=True)
class SweepReport:
    """How a sweep ended."""

    deleted: int = 0
    """Recorded deletions that were carried out."""
    deletions_left: int = 0
    swept: int = 0
    """Attempts whose objects nobody named."""
    orphans: int = 0
    """The same, that are still there: deleting them failed, or is in doubt."""
    leftovers: int = 0
    """The same, that are younger than the grace."""
    doubts: dict[str, str] = field(default_factory=dict)
    """Why nothing was swept, by location."""
    failures: int = 0
    """Locations or attempts at which something failed."""


class Sweeping:
    """The objects of one cluster."""

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        ledgers: OffloadLedgers,
        config: BrokerConfig,
        open_store: OpenStore,
        counted: Callable[[AttemptPath | None, bool], None] = lambda path, done: None,
    ) -> None:
        """`counted` hears of each attempt whose objects were deleted (True) or should have been."""
        self._metadata = metadata
        self._keys = keys
        self._ledgers = ledgers
        self._config = config
        self._open_store = open_store
        self._counted = counted
        self._known: set[str] = set()
        self._stores: dict[str, Store] = {}
        self._idle_sweeps = 0

    async def sweep(self) -> SweepReport:
        """Do all there is to do now. What fails at one location keeps none of the others: it is logged and
        counted, and tried again next time. Raises MetadataError.
        """
        report = SweepReport()
        self._stores.clear()
        self._known |= await self._configured()
        await self._carry_out(report)
        if not self._known and self._idle_sweeps % IDLE_SWEEPS:
            self._idle_sweeps += 1
            return report
        named = await self._named()
        self._known |= named.locations
        self._idle_sweeps = 0 if self._known else self._idle_sweeps + 1
        for location in sorted(self._known)[:LOCATIONS_MAX]:
            try:
                await self._sweep_location(location, named, report)
            except MagnetarError as error:
                report.failures += 1
                log.warning("objects could not be swept", location=location, error=str(error))
        return report

    async def scan(self, namespace: NamespaceName) -> Scan:
        """What lies in objects of a namespace, and what should. Raises MetadataError."""
        return await scan(namespace, self._ledgers, await self._configured(), self._open_store)

    # -- recorded deletions

    async def _carry_out(self, report: SweepReport) -> None:
        while True:
            found = await object_deletions(self._metadata, self._keys, "")
            done = 0
            for deletion in found.deletions:
                self._known.add(deletion.location)
                done += await self._delete_recorded(deletion, report)
            report.deleted += done
            if not (found.more and done):
                report.deletions_left = len(found.deletions) - done
                return

    async def _delete_recorded(self, deletion: Deletion, report: SweepReport) -> bool:
        location, path = deletion.location, deletion.path
        attempt = parse_attempt_path(path)
        try:
            if attempt is None:
                raise MagnetarError(f"{path[:200]!r} is not the path of an attempt: nothing there is deleted")
            store = self._store(location)
            listing = partial(store.list, path)
            await in_thread(lambda stop: _delete(store, (each.path for each in listing()), stop))
            await objects_deleted(self._metadata, self._keys, deletion.intent_id)
        except MagnetarError as error:
            report.failures += 1
            self._counted(attempt, False)
            log.warning("objects not deleted yet", location=location, path=path, error=str(error))
            return False
        self._counted(attempt, True)
        log.info("objects of a ledger deleted that is gone", location=location, path=path)
        return True

    # -- what nobody names

    async def _sweep_location(self, location: str, named: Named, report: SweepReport) -> None:
        store = self._store(location)
        sweep = await in_thread(lambda stop: self._decide(until(stop, store.list()), named))
        if sweep.refused is None and (sweep.doomed or sweep.unfinished):
            # Attempts that began while objects were listed have theirs among them.
            again = await self._named()
            sweep = sweep.without(again.attempts)
            if not again.complete:
                sweep = replace(sweep, refused=NOT_ALL_READ)
        report.leftovers += len(sweep.waiting)
        if sweep.refused or sweep.doubt:
            report.doubts[location] = sweep.refused or sweep.doubt or ""
            report.orphans += len(sweep.doomed)
            log.warning("objects are not swept", location=location, reason=report.doubts[location])
            return
        if sweep.unfinished:
            await in_thread(lambda stop: _delete(store, sweep.unfinished, stop))
        for attempt in sweep.doomed:
            await self._delete_orphan(store, attempt, report)

    def _decide(self, listing: Iterable[StoredObject], named: Named) -> Sweep:
        return to_sweep(
            listing,
            named.attempts,
            complete=named.complete,
            now_ms=self._ledgers.clock.wall_ms(),
            grace_ms=self._config.offload.grace_s * 1000,
        )

    async def _delete_orphan(self, store: Store, attempt: AttemptObjects, report: SweepReport) -> None:
        parsed = parse_attempt_path(attempt.path)
        try:
            await in_thread(lambda stop: _delete(store, attempt.objects, stop))
        except MagnetarError as error:
            report.orphans += 1
            report.failures += 1
            self._counted(parsed, False)
            log.warning(
                "orphaned objects not deleted", location=store.location, path=attempt.path, error=str(error)
            )
            return
        report.swept += 1
        self._counted(parsed, True)
        log.info(
            "orphaned objects deleted",
            location=store.location,
            path=attempt.path,
            objects=len(attempt.objects),
            bytes=attempt.byte_length,
        )

    # -- what metadata says

    async def _named(self) -> Named:
        named = Named()
        async for found in self._ledgers.everywhere():
            named.complete &= not found.unreadable
            for ledger in found.ledgers:
                offload = ledger.offload
                if offload.location:
                    named.locations.add(offload.location)
                if offload.state in _NAMED:
                    named.attempts.add(offload.path.rpartition("/")[2])
        return named

    async def _configured(self) -> set[str]:
        """Where ledgers may go: what failed there at once is named by none."""
        config = self._config
        places = [place_in_configuration(config.offload, config.cluster_name)]
        for item in (await self._metadata.children(self._keys.namespaces_prefix())).items:
            try:
                policy = decode(Namespace, item.value).policies.offload
            except (DataCorruption, UnsupportedFormat) as error:
                log.error("a namespace's metadata cannot be read", key=item.key, reason=str(error))
                continue
            places.append(place_in_policy(policy, config.cluster_name))
        return {place.location for place in places if place.location is not None}

    def _store(self, location: str) -> Store:
        store = self._stores.get(location)
        if store is None:
            store = self._stores[location] = self._open_store(location)
        return store


def _delete(store: Store, paths: Iterable[str], stop: threading.Event) -> None:
    for path in paths:
        if stop.is_set():
            return
        store.delete(path)
