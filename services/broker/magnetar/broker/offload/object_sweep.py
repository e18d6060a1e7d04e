"""Executes deletions: recorded deletions of objects, and unreferenced objects.

`magnetar.ledger.cold.sweep`, which the command line shares, decides what may be deleted. This module deletes
it outside the event loop, because listing and deleting block. Concurrent sweeps do no harm: deletions are
idempotent.

A sweep costs one pass over the ledgers of all topics, one over the objects of each location, and a second one
over the ledgers when objects have to be deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from magnetar.broker.offload.known_locations import KnownLocations
from magnetar.broker.offload.object_deletions import Counted, carry_out, delete_directories
from magnetar.broker.offload.object_scan import Scan, scan
from magnetar.broker.offload.store_calls import OpenStore, Store, in_thread, until
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.common.errors import MagnetarError
from magnetar.common.metadata.instance import read_instance_id
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.cold.layout import parse_attempt_path
from magnetar.ledger.cold.marker import LocationNotOurs, check
from magnetar.ledger.cold.objects import StoredObject
from magnetar.ledger.cold.sweep import NOT_ALL_READ, Sweep, to_sweep
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers
from magnetar.ledger.managed_ledger.offload_state import names_objects

log = get_logger(__name__)

IDLE_SWEEPS: Final = 24
"""Without a known location, only one of this many sweeps reads the ledgers of all topics to find one."""

REST: Final = 3.0
"""Seconds of rest after each second of reading topics: a sweep is not urgent."""


@dataclass(slots=True)
class Named:
    """Attempts and locations that metadata references at one moment."""

    attempts: set[str] = field(default_factory=set)
    """Last path components of attempts that run or are complete."""
    locations: set[str] = field(default_factory=set)
    complete: bool = True
    """Whether every topic was readable, and metadata was not just restored from a copy."""


@dataclass(slots=True)
class SweepReport:
    """Result of a sweep."""

    deleted: int = 0
    """Recorded deletions that were executed."""
    deletions_left: int = 0
    swept: int = 0
    """Attempts whose unreferenced objects were deleted."""
    orphans: int = 0
    """Attempts with unreferenced objects that remain: deleting them failed or was refused."""
    leftovers: int = 0
    """Attempts with unreferenced objects that are younger than the grace period."""
    doubts: dict[str, str] = field(default_factory=dict)
    """The reason why nothing was swept, by location."""
    failures: int = 0
    """Locations or attempts at which something failed."""


class ObjectSweep:
    """The objects of one cluster."""

    def __init__(
        self,
        metadata: MetadataStore,
        keys: Keys,
        ledgers: OffloadLedgers,
        config: OffloadConfig,
        cluster: str,
        open_store: OpenStore,
        counted: Counted = lambda path, done: None,
    ) -> None:
        """`counted` is called with each attempt whose objects were deleted (True) or could not be."""
        self._metadata = metadata
        self._keys = keys
        self._ledgers = ledgers
        self._config = config
        self._open_store = open_store
        self._counted = counted
        self._places = KnownLocations(metadata, keys, config, cluster, ledgers.clock)
        self._stores: dict[str, Store] = {}
        self._idle_sweeps = 0

    async def sweep(self) -> SweepReport:
        """Executes one sweep. A failure at one location does not affect the others: it is logged, counted and
        retried by the next sweep. Raises MetadataError.
        """
        report = SweepReport()
        self._stores.clear()
        known = await self._places.known()
        carried_out, places = await carry_out(self._metadata, self._keys, self._store, self._counted)
        report.deleted, report.deletions_left = carried_out.done, carried_out.left
        report.failures += carried_out.failures
        known |= places
        if not known and self._idle_sweeps % IDLE_SWEEPS:
            self._idle_sweeps += 1
            return report
        named = await self._named()
        known |= named.locations
        self._idle_sweeps = 0 if known else self._idle_sweeps + 1
        found = await self._look(self._places.in_turn(known), named, report)
        found = await self._look_again(found)
        for location, sweep in found.items():
            await self._finish(location, sweep, report)
        # Locations with remaining objects too: a later sweep must find them without any reference.
        full = {location for location, sweep in found.items() if not sweep.empty}
        await self._places.remember(named.locations | full)
        await self._forget(found.keys() - full - named.locations - places)
        return report

    async def scan(self, namespace: NamespaceName) -> Scan:
        """Compares the objects of a namespace with what its ledgers name. Raises MetadataError."""
        return await scan(namespace, self._ledgers, await self._places.known(), self._open_store)

    # -- inside

    async def _look(self, locations: Collection[str], named: Named, report: SweepReport) -> dict[str, Sweep]:
        """Lists each location and decides what may be deleted; locations that do not answer are left out."""
        found = {}
        for location in locations:
            try:
                store = self._store(location)
                found[location] = await in_thread(
                    lambda stop, store=store: self._decide(until(stop, store.list()), named)  # type: ignore[misc]
                )
            except MagnetarError as error:
                report.failures += 1
                log.warning("cannot list objects", location=location, error=str(error))
        return found

    def _decide(self, listing: Iterable[StoredObject], named: Named) -> Sweep:
        return to_sweep(
            listing,
            named.attempts,
            complete=named.complete,
            now_ms=self._ledgers.clock.wall_ms(),
            grace_ms=self._config.grace_s * 1000,
        )

    async def _look_again(self, found: dict[str, Sweep]) -> dict[str, Sweep]:
        """Reads the references again: attempts that began while objects were listed may have created some of
        them.
        """
        doomed = {each.name for sweep in found.values() for each in sweep.doomed}
        if not doomed:
            return found
        again = await self._named(doomed)
        return {
            location: sweep.without(again.attempts)
            if again.complete
            else replace(sweep.without(again.attempts), refused=NOT_ALL_READ)
            for location, sweep in found.items()
        }

    async def _finish(self, location: str, sweep: Sweep, report: SweepReport) -> None:
        report.leftovers += len(sweep.waiting)
        try:
            why_not = sweep.refused or sweep.doubt
            if not why_not and (sweep.doomed or sweep.unfinished):
                why_not = await self._why_not_ours(location)
            if why_not:
                report.doubts[location] = why_not
                report.orphans += len(sweep.doomed)
                log.warning("sweep of a location refused", location=location, reason=why_not)
                return
            store = self._store(location)
            if sweep.unfinished:
                await in_thread(partial(delete_directories, store, [lambda: sweep.unfinished]))
            if sweep.doomed:
                await self._delete_orphans(store, sweep, report)
        except MagnetarError as error:
            report.failures += 1
            report.orphans += len(sweep.doomed)
            log.warning("cannot sweep objects", location=location, error=str(error))

    async def _forget(self, empty: Iterable[str]) -> None:
        """Deletes the records of locations without objects, unless the marker is missing, too: a directory
        may be unmounted now.
        """
        for location in sorted(self._places.remembered.intersection(empty)):
            try:
                if await self._why_not_ours(location) is None:
                    await self._places.forget(location)
            except MagnetarError as error:
                log.warning("cannot forget an empty location", location=location, error=str(error))

    async def _why_not_ours(self, location: str) -> str | None:
        instance_id = await read_instance_id(self._metadata, self._keys)
        store = self._store(location)
        try:
            await in_thread(lambda stop: check(store, instance_id))
        except LocationNotOurs as error:
            return str(error)
        return None

    async def _delete_orphans(self, store: Store, sweep: Sweep, report: SweepReport) -> None:
        objects = [lambda each=each: each.objects for each in sweep.doomed]
        deleted = await in_thread(partial(delete_directories, store, objects))
        for number in deleted.done:
            attempt = sweep.doomed[number]
            self._counted(parse_attempt_path(attempt.path), True)
            log.debug("orphaned objects deleted", location=store.location, path=attempt.path)
        for number in deleted.failed:
            self._counted(parse_attempt_path(sweep.doomed[number].path), False)
        left = len(sweep.doomed) - len(deleted.done)
        report.swept += len(deleted.done)
        report.orphans += left
        report.failures += len(deleted.failed)
        if deleted.error:
            log.warning(
                "cannot delete orphaned objects", location=store.location, attempts=left, error=deleted.error
            )
        if deleted.done:
            some = [sweep.doomed[number] for number in deleted.done]
            log.info(
                "orphaned objects deleted",
                location=store.location,
                attempts=len(some),
                objects=sum(len(each.objects) for each in some),
                bytes=sum(each.byte_length for each in some),
                first=some[0].path,
            )

    async def _named(self, among: Collection[str] | None = None) -> Named:
        """Reads the attempts and locations that ledgers name now; `among` restricts the attempts."""
        named = Named(complete=await self._ledgers.knows_all())
        async for found in self._ledgers.everywhere(rest=REST):
            named.complete &= not found.unreadable
            for ledger in found.ledgers:
                offload = ledger.offload
                if offload.location:
                    named.locations.add(offload.location)
                if names_objects(ledger):
                    name = offload.path.rpartition("/")[2]
                    if among is None or name in among:
                        named.attempts.add(name)
        return named

    def _store(self, location: str) -> Store:
        store = self._stores.get(location)
        if store is None:
            store = self._stores[location] = self._open_store(location)
        return store
