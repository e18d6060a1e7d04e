"""Reads of ledger entries for jobs: any broker reads closed ledgers, the owner reads the open one.

Entries are read and sent in parts, the next when gRPC has accepted the previous one: a slow job holds one
part in memory. Parts are small, so that encoding one does not delay messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from typing import Final

from magnetar.broker.offload.topic_owners import TopicOwners
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.errors import (
    EntryUnreadable,
    NoSuchEntry,
    NoSuchLedger,
    NotAllowed,
    NotSupportedYet,
    ServiceNotReady,
)
from magnetar.common.metadata.values import TopicLedger
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.offload.offload_pb2 import ReadRequest
from magnetar.common.offload.offload_refusals import NoLedgerToOffload, OnlyCopy
from magnetar.ledger.bookie_protocol.record_stream import encode_records
from magnetar.ledger.ledger_store import RUN_TXN, LedgerRef, LedgerStore, Run
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers
from magnetar.ledger.managed_ledger.offload_state import has_left_bookies
from prometheus_client import Counter

PART_BYTES_MAX: Final = 256 << 10
"""Maximum entry bytes in one message of a response, unless a single entry is larger."""

READING_MAX: Final = 4
"""Maximum parts read at the same time; reads of clients wait behind no more than these."""

REST_MAX_S: Final = 0.005
"""Maximum pause in seconds after a part, as long as the part took: during it only clients are served."""

PART_ENTRIES_MAX: Final = 10_000

READ_BYTES: Final = Counter(
    "magnetar_offload_read_bytes",
    "Bytes of entries that jobs have read through this broker, including record headers.",
    registry=REGISTRY,
)


class EntryReads:
    """Implements the Read call."""

    def __init__(
        self, ledgers: OffloadLedgers, store: LedgerStore, topics: TopicRegistry, owners: TopicOwners
    ) -> None:
        self._ledgers = ledgers
        self._store = store
        self._topics = topics
        self._owners = owners
        self._reading = asyncio.Semaphore(READING_MAX)
        self._turn = asyncio.Lock()

    async def read(self, request: ReadRequest) -> AsyncGenerator[bytes, None]:
        """Yields the parts of a response. Raises TopicNotFound, NoSuchLedger, NoSuchEntry, EntryUnreadable,
        OnlyCopy, NotSupportedYet for entries in transactions if the caller does not know of them,
        StorageError, MetadataError, and ServiceNotReady when the ledger is open and another broker owns it.
        """
        topic = TopicName.parse(request.topic)
        if not topic.persistent:
            raise NotAllowed(f"topic {topic} is not persistent: it has no ledgers")
        first, last = request.first_entry_id, request.last_entry_id
        if not 0 <= first <= last:
            raise NotAllowed(f"invalid entry range {first}..{last}")
        ref = LedgerRef(request.ledger_id, request.ledger_key)
        creation_id = await self._ledgers.creation_id(topic)
        try:
            closed = await self._ledgers.find(topic, creation_id, ref.id)
        except NoLedgerToOffload:
            parts = self._read_open(topic, ref, first, last, request.transactions)
        else:
            parts = self._read_closed(topic, closed, ref, first, last, request.transactions)
        async with aclosing(parts):
            async for part in parts:
                READ_BYTES.inc(len(part))
                yield part

    async def _part(
        self, read: Awaitable[Sequence[Run]], ref: LedgerRef, last_confirmed: int, transactions: bool
    ) -> tuple[bytes, int]:
        """Reads one part; returns it and its last entry. Parts are read one by one, with a pause after each:
        however many jobs read, at least half of the event loop's time is left for messages.
        """
        time = asyncio.get_running_loop().time
        async with self._reading:
            since = time()
            runs = await read
            if not transactions and any(run.flags & RUN_TXN for run in runs):
                # Jobs of earlier releases would take aborted messages for others.
                raise NotSupportedYet(
                    f"ledger {ref.id} has messages in transactions, which this job does not know of: run a "
                    "job of this release, or read the topic with a client"
                )
            read_s = time() - since
            async with self._turn:
                since = time()
                part = encode_records(runs, ref, last_confirmed)
                await asyncio.sleep(min(read_s + time() - since, REST_MAX_S))
        return part, runs[-1].last_entry_id

    async def _read_closed(
        self, topic: TopicName, ledger: TopicLedger, ref: LedgerRef, first: int, last: int, transactions: bool
    ) -> AsyncGenerator[bytes, None]:
        if ledger.ref.key != ref.key:
            raise NoSuchLedger(f"ledger {ref.id} of {topic} has another key: it is not the requested ledger")
        if has_left_bookies(ledger):
            raise OnlyCopy(
                f"ledger {ref.id} of {topic} exists only in its objects: read {ledger.offload.path} below "
                f"{ledger.offload.location}"
            )
        if last > ledger.last_entry_id:
            raise NoSuchEntry(
                f"ledger {ref.id} of {topic} ends with entry {ledger.last_entry_id}, not {last}"
            )
        reader = await self._store.open(ref)
        while first <= last:
            reading = reader.read(first, min(last, first + PART_ENTRIES_MAX - 1), PART_BYTES_MAX)
            part, sent = await self._part(reading, ref, ledger.last_entry_id, transactions)
            yield part
            first = sent + 1

    async def _read_open(
        self, topic: TopicName, ref: LedgerRef, first: int, last: int, transactions: bool
    ) -> AsyncGenerator[bytes, None]:
        owner = await self._owners.elsewhere(topic)
        if owner:
            raise ServiceNotReady(f"ledger {ref.id} of {topic} is open: ask its owner at {owner}")
        loaded = await self._topics.get(topic, create=False, claim=True)
        assert isinstance(loaded, PersistentTopic), "persistent by its name"
        managed_ledger = loaded.ledger
        while first <= last:
            span = managed_ledger.spans.by_id.get(ref.id)
            if span is None or span.ref != ref:
                raise NoSuchLedger(f"topic {topic} has no ledger {ref.id} with that key")
            readable = min(Position(ref.id, span.entries - 1), managed_ledger.read_limit())
            if Position(ref.id, last) > readable:
                raise NoSuchEntry(
                    f"ledger {ref.id} of {topic} can be read up to {readable}, not up to {last}"
                )
            reading = self._read_managed(managed_ledger, ref, first, last)
            part, sent = await self._part(reading, ref, readable.entry_id, transactions)
            yield part
            first = sent + 1

    async def _read_managed(self, ledger: ManagedLedger, ref: LedgerRef, first: int, last: int) -> list[Run]:
        entries_max = min(last - first + 1, PART_ENTRIES_MAX)
        found = await ledger.read(Position(ref.id, first), entries_max, PART_BYTES_MAX)
        if found.unreadable:
            raise EntryUnreadable(f"entry {found.unreadable[0]} of {ledger.name} is damaged on its only copy")
        runs = [run for run in found.runs if run.ledger_id == ref.id]
        if not runs or runs[0].first_entry_id != first:
            raise NoSuchLedger(f"ledger {ref.id} of {ledger.name} was trimmed while it was read")
        return runs
