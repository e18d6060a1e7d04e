"""Reads an offloaded ledger from its objects through the interface of an ordinary ledger reader.

Storage and caching of objects are behind `ColdStore`: brokers have one over Parquet files
(`magnetar.broker.cold`), simulations one in memory. Nothing here needs pyarrow.

An entry unreadable in objects is never skipped: without the bookies' copy it is the only one, and an
unavailable object store, or a removed file, can come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from magnetar.common.errors import EntryUnknown, EntryUnreadable, NoSuchEntry
from magnetar.ledger.cold.key_rows import KeyRun
from magnetar.ledger.ledger_store import LedgerRef, Run

_COPIES: Final = 2
"""Reported number of copies: object stores keep several, and any number above one means that a read may be
retried.
"""


class ObjectsUnavailable(EntryUnknown):
    """The objects of an offloaded ledger cannot be read now; they are not known to be lost."""

    retriable = True


class ObjectsDamaged(EntryUnreadable):
    """Objects of an offloaded ledger are missing, or differ from the verified ones."""


@dataclass(frozen=True, slots=True)
class ColdLedger:
    """A closed ledger of a topic, with the location of its verified objects."""

    topic: str
    """Full name."""
    creation_id: int
    ref: LedgerRef
    last_entry_id: int
    location: str
    """URI above the objects."""
    path: str
    """Path of this attempt's directory below the location."""
    attempt: bytes
    manifest_sha256: bytes

    @property
    def where(self) -> str:
        """Returns the directory of its objects, for messages."""
        return f"{self.location}/{self.path}"


@dataclass(frozen=True, slots=True)
class Verified:
    """Facts about a ledger from its objects, after every byte matched its checksum."""

    ledger: ColdLedger
    first_index: int
    """Topic-wide index of its first message."""
    messages: int
    max_publish_time_ms: int


class ColdStore(Protocol):
    """Reads objects of offloaded ledgers. Safe to use from many tasks at once."""

    async def read(self, ledger: ColdLedger, first: int, last: int, max_bytes: int) -> list[Run]:
        """Reads entries as `LedgerReader.read`; the range must be within the ledger.

        Raises ObjectsUnavailable; ObjectsDamaged if the objects differ from the verified ones.
        """
        ...

    async def read_keys(self, ledger: ColdLedger, first: int, last: int) -> list[KeyRun]:
        """Reads entries from `first`, at most to `last`, as many as are cheap to read at once, without the
        messages' bodies where their metadata suffices; past the caches. Raises as `read`.
        """
        ...

    async def first_not_before(self, ledger: ColdLedger, publish_time_ms: int) -> int:
        """Returns the first entry whose broker publish time (ms) is at or after this; the one after the last
        if there is none. Raises as `read`.
        """
        ...

    async def verify(self, ledger: ColdLedger) -> Verified:
        """Reads every object of a ledger and compares it with its checksum and the ledger's data.

        Raises as `read`.
        """
        ...


class ColdLedgerReader:
    """Implements `ledger_store.LedgerReader` for a ledger read from its objects."""

    __slots__ = ("_store", "ledger")

    def __init__(self, store: ColdStore, ledger: ColdLedger) -> None:
        self._store = store
        self.ledger = ledger

    @property
    def ref(self) -> LedgerRef:
        return self.ledger.ref

    @property
    def last_confirmed(self) -> int:
        return self.ledger.last_entry_id

    @property
    def copies(self) -> int:
        """More than one, so that unreadable entries are retried and never skipped."""
        return _COPIES

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        """See `LedgerReader.read`. Raises ObjectsUnavailable, ObjectsDamaged, NoSuchEntry."""
        last = self._last(first, last)
        runs = await self._store.read(self.ledger, first, last, max_bytes)
        self._check(runs, first, last)
        return runs

    async def read_keys(self, first: int, last: int) -> list[KeyRun]:
        """See `ColdStore.read_keys`. Raises ObjectsUnavailable, ObjectsDamaged, NoSuchEntry."""
        last = self._last(first, last)
        found = await self._store.read_keys(self.ledger, first, last)
        self._check([each.run for each in found], first, last)
        return found

    async def first_not_before(self, publish_time_ms: int) -> int:
        """See `ColdStore.first_not_before`."""
        return await self._store.first_not_before(self.ledger, publish_time_ms)

    def _last(self, first: int, last: int) -> int:
        """Returns the last readable entry of a range. Raises NoSuchEntry."""
        end = self.ledger.last_entry_id
        if not 0 <= first <= end or last < first:
            raise NoSuchEntry(
                f"ledger {self.ref.id} has no entries {first} to {last}, it was offloaded up to {end}"
            )
        return min(last, end)

    def _check(self, runs: list[Run], first: int, last: int) -> None:
        """Check the answer for gaps: a reader continues after the last entry and would skip them."""
        expected = first
        for run in runs:
            if run.ledger_id != self.ref.id or run.first_entry_id != expected or not run.entries:
                raise ObjectsDamaged(
                    f"{self.ledger.where} has no entry {self.ref.id}:{expected} where it should be, but "
                    f"{run.ledger_id}:{run.first_entry_id}"
                )
            expected = run.last_entry_id + 1
        if expected == first or expected > last + 1:
            raise ObjectsDamaged(
                f"{self.ledger.where} gave {first} to {expected - 1} of ledger {self.ref.id}, not entries "
                f"from {first} to {last}"
            )
