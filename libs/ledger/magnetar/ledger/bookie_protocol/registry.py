"""Which bookies are up, writable and where: what the registrations in metadata say, followed by a watch.

A registration is a hint. One that is gone means that its bookie lost its session, which may be metadata's
trouble: its address stays known, so that what is on it can still be read. While metadata does not answer,
everything stays as it was.

An address belongs to one bookie at a time, the one that registered it last: the address of a bookie that is
gone may be given to another one, which must not be asked in its place.

In which rack a bookie is, an operator may say in metadata, too: that comes before what the bookie says.
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
"""Between attempts to list again while metadata does not answer; the first wait, doubling up to the last."""

ADDRESSES_MAX: Final = 10_000
"""Addresses remembered, of bookies that are up and that were."""


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """A bookie as it registered itself, its rack as an operator says if one does."""

    bookie_id: str
    address: str
    """host:port of its gRPC server."""
    rack: str
    read_only: bool
    """It takes no new fragments."""
    protocol_version: int
    free_bytes: int
    """When it registered or last changed its mode."""
    started_ms: int
    directory_id: bytes = b""
    """Id of its data directory; empty from a release that does not report it."""
    version: int = field(default=0, compare=False)
    """Version of the registration in metadata."""


class BookieRegistry:
    """Follows the registrations. `start`, then ask; all calls on one loop."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._keys = keys
        self._registered: dict[str, BookieInfo] = {}
        self._racks: dict[str, str] = {}
        self._up: dict[str, BookieInfo] = {}
        # Where bookies are or were last, and which of them has an address.
        self._places: dict[str, BookieInfo] = {}
        self._owners: dict[str, str] = {}
        self._listeners: list[Callable[[], None]] = []
        self._tasks = TaskOwner("bookie registry")
        self._registrations_listed = asyncio.Event()
        self._racks_listed = asyncio.Event()

    @property
    def bookies(self) -> Mapping[str, BookieInfo]:
        """Those registered now, by id; a live view."""
        return MappingProxyType(self._up)

    def writable(self) -> list[BookieInfo]:
        """Those that take new fragments, in the order of their ids."""
        owners = self._owners
        return [
            info
            for bookie_id, info in sorted(self._up.items())
            if not info.read_only and owners.get(info.address) == bookie_id
        ]

    def address(self, bookie_id: str) -> str | None:
        """Where a bookie is or was last; None for one that was never seen, or whose address is another
        bookie's by now."""
        found = self._places.get(bookie_id)
        return None if found is None else found.address

    def directory(self, bookie_id: str) -> bytes:
        """The id of the data directory that a bookie has or had last there; b"" when it is not known."""
        found = self._places.get(bookie_id)
        return b"" if found is None else found.directory_id

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener`, a plain call on the loop, whenever `bookies` became different."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Follow from now on; returns once the registrations are known. Waits while metadata is away."""
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
        """Follow no more; what is known stays. Idempotent."""
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
        """Give an address to the bookie that registered it last; of those that are gone none gets it back."""
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
        """A bookie is not where it was (anywhere, or at this address)."""
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
    """Keys of metadata, each about one bookie, and what they say."""

    prefix: str
    bookie_of: Callable[[str], str]
    known: dict[str, Any]
    read: Callable[[str, bytes, int], Any]
    """A bookie's value, of a version, as it is kept; None when it cannot be read."""
    listed: asyncio.Event

    def apply(self, bookie_id: str, value: bytes | None, version: int) -> None:
        """Take over one key, or its end."""
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
