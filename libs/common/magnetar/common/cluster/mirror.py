"""An in-memory copy of a part of metadata, slightly stale, from which lookups are answered.

A watch keeps it current. After a lost watch, and every RECONCILE_S in any case, the prefix is listed again
and compared, so a missed change does not persist. While metadata is unavailable the copy stays unchanged. A
caller that needs certainty reads metadata itself, in a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Generic, Protocol, TypeVar

from magnetar.common.errors import DataCorruption, InvalidName, UnsupportedFormat
from magnetar.common.metadata.store import MetadataStore, Watch
from magnetar.common.metadata.watch_loop import follow_for_ever
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively

log = get_logger(__name__)

RECONCILE_S: Final = 600.0
"""Interval in seconds after which the prefix is listed again even if its watch is healthy."""


class Kept(Protocol):
    """The mirrored value of a key: at least its version."""

    @property
    def version(self) -> int: ...


K = TypeVar("K")
V = TypeVar("V", bound=Kept)


class Mirror(Generic[K, V]):
    """Every key under a prefix. Call `start`, then read `items`; use it on one event loop."""

    __slots__ = (
        "_key_of",
        "_known",
        "_listeners",
        "_metadata",
        "_name",
        "_prefix",
        "_read",
        "_revision",
        "_task",
        "items",
    )

    def __init__(
        self,
        metadata: MetadataStore,
        prefix: str,
        name: str,
        key_of: Callable[[str], K],
        read: Callable[[bytes, int], V],
    ) -> None:
        """Creates a mirror. `read` parses a key's value and version.

        Keys and values that `read` or `key_of` rejects are logged and treated as absent. `name` is used in
        logs and metrics.
        """
        self._metadata = metadata
        self._prefix = prefix
        self._name = name
        self._key_of = key_of
        self._read = read
        self._known: dict[K, V] = {}
        self._listeners: list[Callable[[K, V | None], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._revision = 0
        self.items: Mapping[K, V] = MappingProxyType(self._known)
        """The current keys and values; a live view."""

    def on_change(self, listener: Callable[[K, V | None], None]) -> None:
        """Calls `listener` on the loop with each key written or removed (None)."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Starts following and returns once every key is loaded. Waits while metadata is unavailable."""
        assert self._task is None, f"{self._name} are followed already"
        listed = asyncio.Event()

        async def follow() -> None:
            while await self._follow(listed):
                pass

        self._task = asyncio.create_task(follow_for_ever(self._name, follow), name=f"follow {self._name}")
        waiting = asyncio.create_task(listed.wait())
        try:
            await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    async def close(self) -> None:
        """Stops following; the items read so far stay. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def note(self, key: K, value: V) -> None:
        """Records a value that this process wrote or read, without waiting for the watch.

        Ignored unless it is newer than the latest change from the watch.
        """
        if value.version > self._revision:
            self._set(key, value)

    def note_removed(self, key: K, version: int) -> None:
        """Records that this process found the key removed; `version` is its last known version."""
        known = self._known.get(key)
        if known is not None and known.version <= version:
            del self._known[key]
            self._tell(key, None)

    async def _follow(self, listed: asyncio.Event) -> bool:
        """Lists the prefix, then applies changes. Returns True when it must be listed again, False once the
        store is closed.
        """
        watch = self._metadata.watch(self._prefix)
        try:
            revision = await self._list()
            listed.set()
            try:
                async with asyncio.timeout(RECONCILE_S):
                    await self._take(watch, revision)
            except TimeoutError:
                return True
            return False
        finally:
            await watch.aclose()

    async def _list(self) -> int:
        listing = await self._metadata.children(self._prefix)
        if listing.revision < self._revision:
            self._forget_everything()
        gone = {key for key, value in self._known.items() if value.version <= listing.revision}
        self._revision = max(self._revision, listing.revision)
        # Other tasks run in between: a hundred thousand keys take seconds.
        async for item in iterate_cooperatively(listing.items):
            key = self._apply(item.key, item.value, item.version, listing.revision)
            if key is not None:
                gone.discard(key)
        for key in gone:
            self.note_removed(key, listing.revision)
        return listing.revision

    def _forget_everything(self) -> None:
        """Drops every known version, because metadata was restored or replaced and its revision went back."""
        self._revision = 0
        for key in list(self._known):
            del self._known[key]
            self._tell(key, None)

    async def _take(self, watch: Watch, revision: int) -> None:
        async for event in watch:
            if event.version > revision:
                self._apply(event.key, event.value, event.version)
                self._revision = event.version

    def _apply(self, text: str, data: bytes | None, version: int, listed: int = 0) -> K | None:
        """Applies one key at this version, or as listed at a revision. Returns the key if it is mirrored."""
        try:
            key = self._key_of(text)
        except (InvalidName, ValueError) as error:
            log.error("invalid metadata key ignored", key=text, error=str(error))
            return None
        if data is not None:
            try:
                self._set(key, self._read(data, version), listed)
                return key
            except (DataCorruption, UnsupportedFormat, InvalidName) as error:
                log.error("invalid metadata value ignored", key=text, error=str(error))
        self.note_removed(key, version)
        return None

    def _set(self, key: K, value: V, listed: int = 0) -> None:
        known = self._known.get(key)
        # A listing overrides every known key that is not newer than it, also after metadata was restored.
        if known is None or known.version < value.version or value.version < known.version <= listed:
            self._known[key] = value
            self._tell(key, value)

    def _tell(self, key: K, value: V | None) -> None:
        for listener in self._listeners:
            try:
                listener(key, value)
            except Exception:
                log.exception("handling a metadata change failed", of=self._name)
