"""Ledgers on real bookies, written and read from a process of the tests, and where their replicas are.

async with LedgerClient.connected(etcd.url) as client:
    writer = await client.create(listener)
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.common.runtime.clock import SystemClock
from magnetar.ledger.bookie_protocol.bookie_client import BookieUnreachable
from magnetar.ledger.bookie_protocol.grpc_client import ClientOptions
from magnetar.ledger.bookie_protocol.grpc_clients import GrpcBookieClients
from magnetar.ledger.bookie_protocol.records import decode_run
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.ledger_store import LedgerListener, LedgerRef
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.ledger.quorum.quorum_store import QuorumLedgerStore
from magnetar.ledger.quorum.writer import QuorumLedgerWriter

from tests.cluster.processes import CLUSTER_NAME

KEYS: Final = Keys(CLUSTER_NAME)
ENTRY_BYTES_MIN: Final = 100
ENTRY_BYTES_MAX: Final = 900

_NOISE: Final = random.Random(5).randbytes(2 * ENTRY_BYTES_MAX)


def entry_bytes(ref: LedgerRef, entry_id: int) -> bytes:
    """What every test writes as this entry: its own name, and bytes that differ from its neighbors'."""
    name = b"%d/%d/%d/" % (ref.id, ref.key, entry_id)
    start = entry_id * 37 % ENTRY_BYTES_MAX
    size = ENTRY_BYTES_MIN + entry_id * 101 % (ENTRY_BYTES_MAX - ENTRY_BYTES_MIN)
    body = name + _NOISE[start : start + size]
    return body + zlib.crc32(body).to_bytes(4, "big")


@dataclass(slots=True)
class LedgerClient:
    """A quorum client as a broker has it."""

    metadata: MetadataStore
    registry: BookieRegistry
    clients: GrpcBookieClients
    store: QuorumLedgerStore

    @staticmethod
    @asynccontextmanager
    async def connected(metadata_url: str, config: QuorumConfig | None = None) -> AsyncIterator[LedgerClient]:
        metadata = await open_metadata_store(metadata_url)
        registry = BookieRegistry(metadata, KEYS)
        await registry.start()
        options = ClientOptions(reopen_after_s=0.05, reopen_after_max_s=0.5)
        clients = GrpcBookieClients(registry.address, registry.directory, options=options)
        rng = random.Random(random.SystemRandom().randrange(1 << 32))
        store = QuorumLedgerStore(clients, registry, metadata, KEYS, SystemClock(), rng, config)
        try:
            yield LedgerClient(metadata, registry, clients, store)
        finally:
            await store.close()
            await clients.close()
            await registry.close()
            await metadata.close()

    async def create(self, listener: LedgerListener) -> QuorumLedgerWriter:
        """E = Qw = 3, Qa = 2."""
        return await self.store.create(listener, ensemble_size=3, write_quorum=3, ack_quorum=2, properties={})

    async def metadata_of(self, ref: LedgerRef) -> LedgerMetadata:
        found = await self.metadata.get(KEYS.ledger(ref.id))
        assert found is not None, f"ledger {ref.id} is gone"
        return decode(LedgerMetadata, found.value)

    async def read_all(self, ref: LedgerRef) -> int:
        """Read a closed ledger as anybody would, every entry compared; returns the last entry's id."""
        reader = await self.store.open(ref)
        position = 0
        while position <= reader.last_confirmed:
            for run in await reader.read(position, reader.last_confirmed, 4 << 20):
                for entry_id, entry in enumerate(run.entries, run.first_entry_id):
                    assert entry_id == position
                    assert entry == entry_bytes(ref, entry_id), (
                        f"entry {ref.id}:{entry_id} is not what it was"
                    )
                    position += 1
        return position - 1

    async def lacking(self, ref: LedgerRef) -> list[str]:
        """What metadata promises of a closed ledger's replicas and is not so: empty when it is whole."""
        value = await self.metadata_of(ref)
        if value.state != LedgerMetadata.CLOSED:
            return [f"ledger {ref.id} is not closed"]
        found = [f"{gap.bookie_id} lacks some of ledger {ref.id}" for gap in value.gaps]
        ends = [each.first_entry_id - 1 for each in value.fragments[1:]] + [value.last_entry_id]
        for fragment, end in zip(value.fragments, ends, strict=True):
            for bookie_id in fragment.bookie_ids:
                at = await self._first_lacking(bookie_id, ref, fragment.first_entry_id, end)
                if at <= end:
                    found.append(f"{bookie_id} does not have {ref.id}:{at}, within {fragment}")
        return found

    async def _first_lacking(self, bookie_id: str, ref: LedgerRef, first: int, last: int) -> int:
        while first <= last:
            try:
                answer = await self.clients.client(bookie_id).read(ref, first, last, 4 << 20)
            except BookieUnreachable:
                return first
            if not answer.records:
                return first
            for record in answer.records:
                run = decode_run(record)
                for entry_id, entry in enumerate(run.entries, run.first_entry_id):
                    assert entry == entry_bytes(ref, entry_id), f"{bookie_id} changed {ref.id}:{entry_id}"
                    if entry_id > first:
                        return first
                    if entry_id == first:
                        first += 1
        return first

    async def until_whole(self, refs: Iterable[LedgerRef], seconds_max: float) -> None:
        """Until nothing is under-replicated: no marks, no gaps, and every replica in its place."""
        missing = [f"{ref.id} was not looked at" for ref in refs]
        try:
            async with asyncio.timeout(seconds_max):
                while missing:
                    marks = (await self.metadata.children(KEYS.under_replicated_prefix)).items
                    missing = [f"marked: {each.key}" for each in marks]
                    for ref in refs:
                        if not missing:
                            missing = await self.lacking(ref)
                    if missing:
                        await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"not whole within {seconds_max:g} s: {missing[:10]}") from None
