"""Which bookies are up, writable and where: what the registrations in metadata say, followed by a watch.

A registration is a hint. One that is gone means that its bookie lost its session, which may be metadata's
trouble: its address stays known, so that what is on it can still be read. While metadata does not answer,
everything stays as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from magnetar.common.errors import DataCorruption, MetadataError, UnsupportedFormat, WatchLost
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BookieRegistration, decode
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
    """A bookie as it registered itself."""

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


class BookieRegistry:
    """Follows the registrations. `start`, then ask; all calls on one loop."""

    def __init__(self, metadata: MetadataStore, keys: Keys) -> None:
        self._metadata = metadata
        self._keys = keys
        self._up: dict[str, BookieInfo] = {}
        self._addresses: dict[str, str] = {}
        self._listeners: list[Callable[[], None]] = []
        self._tasks = TaskOwner("bookie registry")
        self._listed = asyncio.Event()

    @property
    def bookies(self) -> Mapping[str, BookieInfo]:
        """Those registered now, by id; a live view."""
        return MappingProxyType(self._up)

    def writable(self) -> list[BookieInfo]:
        """Those that take new fragments, in the order of their ids."""
        return [info for _, info in sorted(self._up.items()) if not info.read_only]

    def address(self, bookie_id: str) -> str | None:
        """Where a bookie is or was last; None for one that nobody saw."""
        return self._addresses.get(bookie_id)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener`, a plain call on the loop, whenever `bookies` became different."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Follow from now on; returns once the registrations are known. Waits while metadata is away."""
        self._tasks.spawn(self._follow(), "follow")
        await self._listed.wait()

    async def close(self) -> None:
        """Follow no more; what is known stays. Idempotent."""
        await self._tasks.close()

    async def _follow(self) -> None:
        wait_s = RETRY_AFTER_S
        while True:
            try:
                await self._follow_one_watch()
                return  # the store is closed
            except WatchLost:
                wait_s = RETRY_AFTER_S
            except MetadataError as error:
                log.warning("bookies cannot be listed", reason=str(error), retry_after_s=wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_AFTER_MAX_S)

    async def _follow_one_watch(self) -> None:
        prefix = self._keys.bookies_prefix
        watch = self._metadata.watch(prefix)
        try:
            listing = await self._metadata.children(prefix)
            before = dict(self._up)
            self._up.clear()
            for item in listing.items:
                self._apply(item.key, item.value)
            self._listed.set()
            if self._up != before:
                self._changed()
            async for event in watch:
                if event.version > listing.revision:
                    before_event = self._up.get(self._keys.bookie_id_of(event.key))
                    if self._apply(event.key, event.value) != before_event:
                        self._changed()
        finally:
            await watch.aclose()

    def _apply(self, key: str, value: bytes | None) -> BookieInfo | None:
        """Take over one registration, or its end; returns what is known of that bookie now."""
        bookie_id = self._keys.bookie_id_of(key)
        info = None if value is None else _info(bookie_id, value)
        if info is None:
            self._up.pop(bookie_id, None)
            return None
        self._up[bookie_id] = info
        self._addresses.pop(bookie_id, None)  # the newest go last
        self._addresses[bookie_id] = info.address
        if len(self._addresses) > ADDRESSES_MAX:
            del self._addresses[next(iter(self._addresses))]
        return info

    def _changed(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except Exception:
                log.exception("a change of bookies could not be handled")


def _info(bookie_id: str, value: bytes) -> BookieInfo | None:
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
    )
