"""Part of metadata held in memory, as of a moment ago: what lookups are answered from without asking anybody.

A watch keeps it up to date. When the watch is lost, and every now and then in any case, the part is listed
anew and compared, so that nothing that was missed stays wrong. While metadata is away everything stays as it
was: who has to be certain asks metadata itself, in a transaction.
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

log = get_logger(__name__)

RECONCILE_S: Final = 600.0
"""The part is listed anew when it was not for so long, however well its watch seems to be."""


class Kept(Protocol):
    """The kept part of a key: at least its version."""

    @property
    def version(self) -> int: ...


K = TypeVar("K")
V = TypeVar("V", bound=Kept)


class Mirror(Generic[K, V]):
    """Every key under a prefix. `start`, then look at `items`; all calls on one loop."""

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
        """`read` takes a key's value and version. What it, or `key_of`, refuses to understand is logged and
        counts as not there. `name` is for logs and metrics.
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
        """The current keys; a live view."""

    def on_change(self, listener: Callable[[K, V | None], None]) -> None:
        """Call `listener`, a plain call on the loop, for each key that was written or removed (None)."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Follow from now on; returns once everything is known. Waits while metadata is away."""
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
        """Follow no more; what is known stays. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def note(self, key: K, value: V) -> None:
        """This process has just written, or read, it itself: no need to wait for the watch.

        Whatever is not newer than what the watch has told is known already, or gone since.
        """
        if value.version > self._revision:
            self._set(key, value)

    def note_removed(self, key: K, version: int) -> None:
        """This process has just seen that the key of up to `version` is gone."""
        known = self._known.get(key)
        if known is not None and known.version <= version:
            del self._known[key]
            self._tell(key, None)

    async def _follow(self, listed: asyncio.Event) -> bool:
        """List, then take changes. True when it is time to list again, False once the store is closed."""
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
        for item in listing.items:
            key = self._apply(item.key, item.value, item.version, listing.revision)
            if key is not None:
                gone.discard(key)
        for key in gone:
            self.note_removed(key, listing.revision)
        self._revision = max(self._revision, listing.revision)
        return listing.revision

    def _forget_everything(self) -> None:
        """Metadata is older than it was, restored or replaced: versions that are known say nothing now."""
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
        """Take one key over, as it is at this version, or was listed at a revision; returns it when it is
        kept.
        """
        try:
            key = self._key_of(text)
        except (InvalidName, ValueError) as error:
            log.error("a key of metadata is not understood", key=text, error=str(error))
            return None
        if data is not None:
            try:
                self._set(key, self._read(data, version), listed)
                return key
            except (DataCorruption, UnsupportedFormat, InvalidName) as error:
                log.error("a value of metadata is not understood", key=text, error=str(error))
        self.note_removed(key, version)
        return None

    def _set(self, key: K, value: V, listed: int = 0) -> None:
        known = self._known.get(key)
        # A listing has the last word on what is not newer than itself, also where metadata was set back.
        if known is None or known.version < value.version or value.version < known.version <= listed:
            self._known[key] = value
            self._tell(key, value)

    def _tell(self, key: K, value: V | None) -> None:
        for listener in self._listeners:
            try:
                listener(key, value)
            except Exception:
                log.exception("a change of metadata could not be handled", of=self._name)
