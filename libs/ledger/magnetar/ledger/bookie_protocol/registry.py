"""The registered bookies with their modes and addresses, followed in metadata by a watch.

A registration is a hint. A missing one means that the bookie lost its session, possibly because of metadata:
its address stays known, so that its entries can still be read. While metadata is unavailable everything stays
unchanged.

An address belongs to the bookie that registered it last: it may have been reassigned from a bookie that is
gone to another one, which must not be used in its place.

A rack set by an operator in metadata overrides the bookie's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from magnetar.common.errors import DataCorruption, MetadataError, UnsupportedFormat, WatchLost
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BookieRack, BookieRegistration, decode
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.task_owner import TaskOwner

log = get_logger(__name__)

RETRY_AFTER_S: Final = 0.1
RETRY_AFTER_MAX_S: Final = 2.0
"""Waits in seconds between attempts to list again while metadata is unavailable, as (first, longest);
doubling.
"""

ADDRESSES_MAX: Final = 10_000
"""Maximum addresses remembered, of registered and former bookies."""


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """A bookie's registration, with the rack set by an operator, if any."""

    bookie_id: str
    address: str
    """host:port of its gRPC server."""
    rack: str
    read_only: bool
    """Whether it accepts no new fragments."""
    protocol_version: int
    free_bytes: int
    """Free bytes at its registration or last change of mode."""
    started_ms: int
    directory_id: bytes = b""
    """Id of its data directory; empty from a release that does not report it."""
    version: int = field(default=0, compare=False)
    """Version of the registration in metadata."""


class BookieRegistry:
    """Follows the registrations. Call `start` before any query; all calls on one loop."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._keys = keys
        self._registered: dict[str, BookieInfo] = {}
        self._racks: dict[str, str] = {}
        self._up: dict[str, BookieInfo] = {}
        # Current or last addresses of bookies, and the bookie that owns each address.
        self._places: dict[str, BookieInfo] = {}
        self._owners: dict[str, str] = {}
        self._listeners: list[Callable[[], None]] = []
        self._tasks = TaskOwner("bookie registry")
        self._registrations_listed = asyncio.Event()
        self._racks_listed = asyncio.Event()

    @property
    def bookies(self) -> Mapping[str, BookieInfo]:
        """The registered bookies by id; a live view."""
        return MappingProxyType(self._up)

    def writable(self) -> list[BookieInfo]:
        """Returns the bookies that accept new fragments, in id order."""
        owners = self._owners
        return [
            info
            for bookie_id, info in sorted(self._up.items())
            if not info.read_only and owners.get(info.address) == bookie_id
        ]

    def address(self, bookie_id: str) -> str | None:
        """Returns the current or last address of a bookie; None if it was never seen, or its address now
        belongs to another.
        """
        found = self._places.get(bookie_id)
        return None if found is None else found.address

    def directory(self, bookie_id: str) -> bytes:
        """Returns the id of the bookie's current or last data directory; b"" if unknown."""
        found = self._places.get(bookie_id)
        return b"" if found is None else found.directory_id

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` on the loop whenever `bookies` changed."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Starts following and returns once the registrations are loaded. Waits while metadata is
        unavailable.
        """
        keys = self._keys
        racks = _Followed(
            keys.bookie_racks_prefix, keys.bookie_of_rack, self._racks, _rack, self._racks_listed
        )
        registrations = _Followed(
            keys.bookies_prefix,
            keys.bookie_id_of,
            self._registered,
            _info,
            self._registrations_listed,
        )
        self._tasks.spawn(self._follow(racks), "follow racks")
        await self._racks_listed.wait()
        self._tasks.spawn(self._follow(registrations), "follow")
        await self._registrations_listed.wait()

    async def close(self) -> None:
        """Stops following; the registrations read so far stay. Idempotent."""
        await self._tasks.close()

    async def _follow(self, what: _Followed) -> None:
        wait_s = RETRY_AFTER_S
        while True:
            try:
                await self._follow_one_watch(what)
                return  # the store is closed
            except WatchLost:
                wait_s = RETRY_AFTER_S
            except MetadataError as error:
                log.warning("bookies cannot be listed", reason=str(error), retry_after_s=wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_AFTER_MAX_S)

    async def _follow_one_watch(self, what: _Followed) -> None:
        watch = self._metadata.watch(what.prefix)
        try:
            listing = await self._metadata.children(what.prefix)
            before = dict(self._up)
            what.known.clear()
            for item in listing.items:
                what.apply(what.bookie_of(item.key), item.value, item.version)
            for bookie_id in {*before, *self._registered}:
                self._combine(bookie_id)
            what.listed.set()
            if self._up != before:
                self._changed()
            async for event in watch:
                if event.version > listing.revision:
                    bookie_id = what.bookie_of(event.key)
                    before_event = self._up.get(bookie_id)
                    what.apply(bookie_id, event.value, event.version)
                    self._combine(bookie_id)
                    if self._up.get(bookie_id) != before_event:
                        self._changed()
        finally:
            await watch.aclose()

    def _combine(self, bookie_id: str) -> None:
        """Current state of one bookie: its registration, and its rack as configured elsewhere."""
        info = self._registered.get(bookie_id)
        before = self._up.pop(bookie_id, None)
        if before is not None and (info is None or info.address != before.address):
            self._claim(before.address)
        if info is None:
            return
        rack = self._racks.get(bookie_id)
        self._up[bookie_id] = info if rack is None else replace(info, rack=rack)
        self._claim(info.address)

    def _claim(self, address: str) -> None:
        """Assigns an address to the bookie that registered it last; former owners do not get it back."""
        claims = [info for info in self._registered.values() if info.address == address]
        if not claims:
            return
        newest = max(claims, key=lambda info: info.version)
        owner = self._owners.get(address)
        if owner is not None and owner != newest.bookie_id:
            log.warning(
                "another bookie has the address now", address=address, was=owner, now=newest.bookie_id
            )
            self._forget(owner, address)
        self._forget(newest.bookie_id, None)  # the newest go last
        self._places[newest.bookie_id] = newest
        self._owners[address] = newest.bookie_id
        if len(self._places) > ADDRESSES_MAX:
            self._forget(next(iter(self._places)), None)

    def _forget(self, bookie_id: str, address: str | None) -> None:
        """Removes a bookie's address, any or this one."""
        found = self._places.get(bookie_id)
        if found is not None and address in (None, found.address):
            del self._places[bookie_id]
            if self._owners.get(found.address) == bookie_id:
                del self._owners[found.address]

    def _changed(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except Exception:
                log.exception("a change of bookies could not be handled")


@dataclass(frozen=True, slots=True)
class _Followed:
    """Metadata keys that each concern one bookie, with their parsed values."""

    prefix: str
    bookie_of: Callable[[str], str]
    known: dict[str, Any]
    read: Callable[[str, bytes, int], Any]
    """Parses a bookie's value at a version; returns None if it is unreadable."""
    listed: asyncio.Event

    def apply(self, bookie_id: str, value: bytes | None, version: int) -> None:
        """Applies the change or removal of one key."""
        found = None if value is None else self.read(bookie_id, value, version)
        if found is None:
            self.known.pop(bookie_id, None)
        else:
            self.known[bookie_id] = found


def _rack(bookie_id: str, value: bytes, _version: int) -> str | None:
    try:
        return decode(BookieRack, value).rack
    except (DataCorruption, UnsupportedFormat) as error:
        log.error("the rack of a bookie cannot be read", bookie=bookie_id, reason=str(error))
        return None


def _info(bookie_id: str, value: bytes, version: int) -> BookieInfo | None:
    try:
        found = decode(BookieRegistration, value)
    except (DataCorruption, UnsupportedFormat) as error:
        log.error("a bookie's registration cannot be read", bookie=bookie_id, reason=str(error))
        return None
    return BookieInfo(
        bookie_id,
        found.address,
        found.rack,
        found.read_only,
        found.protocol_version,
        found.free_bytes,
        found.started_ms,
        found.directory_id,
        version,
    )
