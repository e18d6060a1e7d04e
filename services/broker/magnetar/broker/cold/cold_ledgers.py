"""Reads offloaded ledgers for a broker: implements `ColdStore` over Parquet objects.

A few threads read objects by row groups. Row groups (as entries), footers and manifests are cached in memory
for all readers. A sequential reader has its next row group loaded ahead. The libraries are not imported
before the first offloaded ledger is read: without `magnetar-broker[cold]`, that read fails and the rest of
the broker is unaffected.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from magnetar.broker.cold.entry_group import EntryGroup
from magnetar.broker.cold.group_cache import GroupCache
from magnetar.common.errors import LedgerError
from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.cold.cold_reader import ColdLedger, ObjectsDamaged, ObjectsUnavailable, Verified
from magnetar.ledger.cold.key_rows import KeyRun
from magnetar.ledger.ledger_store import Run
from prometheus_client import Counter, Histogram

if TYPE_CHECKING:  # needs the extra
    from magnetar.broker.cold.ledger_objects import LedgerObjects
    from magnetar.ledger.cold.manifest import Manifest, Part
    from magnetar.ledger.cold.part_reader import Footer

T = TypeVar("T")

READ_BYTES: Final = Counter(
    "magnetar_cold_read_bytes", "Bytes of entries read from offloaded ledgers.", registry=REGISTRY
)
READ_ENTRIES: Final = Counter(
    "magnetar_cold_read_entries", "Entries read from offloaded ledgers.", registry=REGISTRY
)
FAILED: Final = Counter(
    "magnetar_cold_reads_failed",
    "Failed reads of offloaded ledgers. reason=unavailable: the object store did not answer or cannot be "
    "reached; damaged: objects are missing or differ from what was verified.",
    ["reason"],
    registry=REGISTRY,
)
begin_at_zero(FAILED, "damaged", "unavailable")
LOAD_SECONDS: Final = Histogram(
    "magnetar_cold_load_seconds",
    "Seconds to fetch and decode a row group of an offloaded ledger.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=REGISTRY,
)
VERIFIED_BYTES: Final = Counter(
    "magnetar_cold_verified_bytes",
    "Bytes of objects verified against their checksums before bookies deleted the ledger.",
    registry=REGISTRY,
)

HEADS_BYTES_MAX: Final = 16 << 20
"""Maximum bytes of manifests and footers in memory."""

WAIT_MAX_S: Final = 180.0
"""Timeout in seconds of one row group, footer or manifest, longer than the retries of an object store."""

VERIFIED_AT_ONCE: Final = 16 << 20
"""Bytes verified at a time, so that readers get their turn in the threads."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A manifest, and access to the other objects."""

    objects: LedgerObjects
    manifest: Manifest

    @property
    def cost(self) -> int:
        return 2_000 + 600 * len(self.manifest.parts)


@dataclass(frozen=True, slots=True)
class _Foot:
    footer: Footer

    @property
    def cost(self) -> int:
        return self.footer.byte_length


class ColdLedgers:
    """Reads the offloaded ledgers of one broker, on one event loop; `close` ends its loads.

    `pool_of` returns the threads for reads at a location; the caller owns them. A slow store keeps only its
    own threads busy.
    """

    def __init__(self, pool_of: Callable[[str], BlockingPool], clock: Clock, *, cache_bytes: int) -> None:
        self._pool_of = pool_of
        self._clock = clock
        self._opened: GroupCache[str, _Opened] = GroupCache("manifests", HEADS_BYTES_MAX, clock)
        self._feet: GroupCache[tuple[str, int], _Foot] = GroupCache("footers", HEADS_BYTES_MAX, clock)
        self._groups: GroupCache[tuple[str, int, int], EntryGroup] = GroupCache(
            "row groups", cache_bytes, clock
        )

    async def read(self, ledger: ColdLedger, first: int, last: int, max_bytes: int) -> list[Run]:
        """See `ColdStore.read`."""
        goes_on = self._groups.came_from((ledger.where, first))
        runs: list[Run] = []
        at, key = first, ("", 0, 0)
        try:
            while at <= last and (max_bytes > 0 or not runs):
                key, group = await self._group_at(ledger, at)
                found = group.take(at, last, max_bytes, at_least_one=not runs)
                if not found:
                    break
                runs += found
                max_bytes -= sum(run.byte_length for run in found)
                at = found[-1].last_entry_id + 1
        except LedgerError as error:
            self._failed(ledger, error)
            if not runs:
                raise  # otherwise the next read begins there and raises it
        if at <= ledger.last_entry_id and runs:
            self._groups.stands_at((ledger.where, at), key)
            if goes_on:
                await self._load_ahead(ledger, key)
        READ_ENTRIES.inc(sum(len(run.entries) for run in runs))
        READ_BYTES.inc(sum(run.byte_length for run in runs))
        return runs

    async def read_keys(self, ledger: ColdLedger, first: int, last: int) -> list[KeyRun]:
        """See `ColdStore.read_keys`: the rest of a row group."""
        try:
            opened = await self._open(ledger)
            number = opened.manifest.part_of(first)
            footer = await self._footer(ledger, opened, number)
            part, group = opened.manifest.parts[number], footer.row_group_of(first)
            found = await self._in_time(ledger, partial(opened.objects.keys, part, footer, group))
        except LedgerError as error:
            self._failed(ledger, error)
            raise
        runs = [cut for each in found if (cut := each.slice(first, last)) is not None]
        READ_ENTRIES.inc(sum(len(each.run.entries) for each in runs))
        READ_BYTES.inc(sum(each.run.byte_length for each in runs))
        return runs

    async def first_not_before(self, ledger: ColdLedger, publish_time_ms: int) -> int:
        """See `ColdStore.first_not_before`; footers exclude most row groups without reading them."""
        try:
            opened = await self._open(ledger)
            if opened.manifest.max_publish_time_ms < publish_time_ms:
                return ledger.last_entry_id + 1
            for number in range(len(opened.manifest.parts)):
                footer = await self._footer(ledger, opened, number)
                for group in footer.row_groups:
                    if group.last_publish_time_ms < publish_time_ms:
                        continue
                    _, entries = await self._group_at(ledger, group.first_entry_id)
                    found = entries.first_not_before(publish_time_ms)
                    if found is not None:
                        return found
        except LedgerError as error:
            self._failed(ledger, error)
            raise
        return ledger.last_entry_id + 1

    async def verify(self, ledger: ColdLedger) -> Verified:
        """See `ColdStore.verify`. Cached values are not used; verification takes at most half of the time."""
        self._forget(ledger)
        opened = await self._in_time(ledger, partial(_open_objects, ledger))
        objects, manifest = opened.objects, opened.manifest
        last: EntryGroup | None = None
        for part in manifest.parts:
            await self._in_time(ledger, partial(objects.check_size, part))
            digest = hashlib.sha256()
            for offset in range(0, part.byte_length, VERIFIED_AT_ONCE):
                length = min(VERIFIED_AT_ONCE, part.byte_length - offset)
                begun_s = self._clock.monotonic()
                await self._in_time(ledger, partial(_hash_on, digest, objects, part, offset, length))
                VERIFIED_BYTES.inc(length)
                await asyncio.sleep(self._clock.monotonic() - begun_s)
            if digest.digest() != part.sha256:
                raise ObjectsDamaged(
                    f"{part.name} of ledger {ledger.ref.id} of {ledger.topic} at {ledger.where} is damaged: "
                    f"its SHA-256 is {digest.hexdigest()}, not {part.sha256.hex()}"
                )
            # And the objects can be decoded: the last entries show where the ledger's messages end.
            footer = await self._in_time(ledger, partial(objects.footer, part))
            number = len(footer.row_groups) - 1
            last = await self._in_time(ledger, partial(objects.group, part, footer, number))
        if last is None or last.last_entry_id != ledger.last_entry_id:
            raise ObjectsDamaged(
                f"the objects of ledger {ledger.ref.id} at {ledger.where} lack its last entries"
            )
        end = last.runs[-1]
        return Verified(
            ledger,
            manifest.first_index,
            end.first_index + end.messages - manifest.first_index,
            manifest.max_publish_time_ms,
        )

    async def close(self) -> None:
        """Ends loads and clears the caches; idempotent."""
        for cache in (self._groups, self._feet, self._opened):
            await cache.close()

    # --- inside ---

    async def _open(self, ledger: ColdLedger) -> _Opened:
        found = self._opened.peek(ledger.where)
        if found is not None and found.objects.ledger == ledger:
            return found
        if found is not None:
            self._forget(ledger)
        return await _in_time(
            ledger, self._opened.get(ledger.where, lambda: self._run(ledger, lambda: _open_objects(ledger)))
        )

    async def _footer(self, ledger: ColdLedger, opened: _Opened, number: int) -> Footer:
        key = (ledger.where, number)
        found = self._feet.peek(key)
        if found is None:
            part = opened.manifest.parts[number]
            load = partial(self._run, ledger, lambda: _Foot(opened.objects.footer(part)))
            found = await _in_time(ledger, self._feet.get(key, load))
        return found.footer

    async def _group_at(self, ledger: ColdLedger, entry_id: int) -> tuple[tuple[str, int, int], EntryGroup]:
        """Returns the row group with an entry, and its key."""
        opened = await self._open(ledger)
        number = opened.manifest.part_of(entry_id)
        footer = await self._footer(ledger, opened, number)
        key = (ledger.where, number, footer.row_group_of(entry_id))
        found = self._groups.peek(key)
        if found is None:
            load = partial(self._load, opened, footer, key)
            found = await _in_time(ledger, self._groups.get(key, load))
        return key, found

    async def _load_ahead(self, ledger: ColdLedger, key: tuple[str, int, int]) -> None:
        """Starts loading the next row group; the reader does not wait for it."""
        path, number, group = key
        opened = self._opened.peek(path)
        foot = self._feet.peek((path, number))
        if opened is None or foot is None:
            return
        if group + 1 < len(foot.footer.row_groups):
            following = (path, number, group + 1)
            self._groups.ahead(following, partial(self._load, opened, foot.footer, following))
        elif number + 1 < len(opened.manifest.parts):
            self._groups.ahead((path, number + 1, 0), partial(self._load_first, ledger, opened, number + 1))

    async def _load(self, opened: _Opened, footer: Footer, key: tuple[str, int, int]) -> EntryGroup:
        part = opened.manifest.parts[key[1]]
        begun_s = self._clock.monotonic()
        group = await self._run(opened.objects.ledger, lambda: opened.objects.group(part, footer, key[2]))
        LOAD_SECONDS.observe(self._clock.monotonic() - begun_s)
        return group

    async def _load_first(self, ledger: ColdLedger, opened: _Opened, number: int) -> EntryGroup:
        footer = await self._footer(ledger, opened, number)
        return await self._load(opened, footer, (ledger.where, number, 0))

    def _forget(self, ledger: ColdLedger) -> None:
        self._opened.forget(lambda key: key == ledger.where)
        self._feet.forget(lambda key: key[0] == ledger.where)
        self._groups.forget(lambda key: key[0] == ledger.where)

    def _failed(self, ledger: ColdLedger, error: LedgerError) -> None:
        FAILED.labels("damaged" if isinstance(error, ObjectsDamaged) else "unavailable").inc()
        if isinstance(error, ObjectsDamaged):
            self._forget(ledger)  # the objects may be repaired

    async def _run(self, ledger: ColdLedger, call: Callable[[], T]) -> T:
        return await self._pool_of(ledger.location).run(call)

    async def _in_time(self, ledger: ColdLedger, call: Callable[[], T]) -> T:
        return await _in_time(ledger, self._run(ledger, call))


def _open_objects(ledger: ColdLedger) -> _Opened:
    """Opens the objects of a ledger. Blocks; imports the libraries."""
    try:
        from magnetar.broker.cold.ledger_objects import LedgerObjects
    except ImportError as error:
        raise ObjectsUnavailable(
            f"ledger {ledger.ref.id} of {ledger.topic} was offloaded to {ledger.location}, and this "
            f"broker lacks the libraries to read it ({error}): pip install fsspec pyarrow s3fs (in a "
            "clone: make setup-spark), and restart the broker"
        ) from error
    objects = LedgerObjects(ledger)
    return _Opened(objects, objects.manifest())


def _hash_on(digest: hashlib._Hash, objects: LedgerObjects, part: Part, offset: int, length: int) -> None:
    """Hashes the next bytes of an object. Blocks."""
    digest.update(objects.read(part, offset, length))


async def _in_time(ledger: ColdLedger, answer: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(WAIT_MAX_S):
            return await answer
    except TimeoutError:
        raise ObjectsUnavailable(
            f"{ledger.where} did not answer within {WAIT_MAX_S:.0f} s; the read is retried"
        ) from None
