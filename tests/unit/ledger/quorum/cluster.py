"""A store over bookies and metadata that do as they are told, under simulated time: for tests of writing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.ledger.quorum.quorum_store import QuorumLedgerStore
from magnetar.ledger.quorum.writer import QuorumLedgerWriter
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.unit.ledger.ledger_store_contract import Heard
from tests.unit.ledger.quorum.fake_bookies import FakeBookies


class Cluster:
    """`store` and its metadata; `bookies` by id."""

    def __init__(self, loop: SimLoop, *bookie_ids: str, **config: Any) -> None:
        self.bookies = FakeBookies(*bookie_ids)
        self.server = SimMetadataServer()
        self.metadata = SimMetadataStore(self.server, random.Random(loop.rng.random()))
        self.keys = Keys("test")
        self.store = QuorumLedgerStore(
            self.bookies,
            self.bookies,
            self.metadata,
            self.keys,
            SimClock(loop),
            random.Random(loop.rng.random()),
            QuorumConfig(**config),
        )

    async def create(
        self, heard: Heard | None = None, *, e: int = 3, qw: int = 3, qa: int = 2
    ) -> QuorumLedgerWriter:
        return await self.store.create(
            (heard or Heard()).listener(), ensemble_size=e, write_quorum=qw, ack_quorum=qa, properties={}
        )

    def ledger(self, ref: LedgerRef) -> LedgerMetadata:
        """A ledger's metadata as it is at the store now."""
        found = self.server.get(self.keys.ledger(ref.id))
        assert found is not None
        return decode(LedgerMetadata, found.value)

    def fragments(self, ref: LedgerRef) -> list[tuple[int, list[str]]]:
        return [(each.first_entry_id, list(each.bookie_ids)) for each in self.ledger(ref).fragments]

    def gaps(self, ref: LedgerRef) -> list[tuple[str, int, int]]:
        return [(g.bookie_id, g.first_entry_id, g.last_entry_id) for g in self.ledger(ref).gaps]

    def marked(self, ref: LedgerRef) -> bool:
        """Whether auto-recovery is told about the ledger."""
        return self.server.get(self.keys.under_replicated(ref.id)) is not None


def replicated(cluster: Cluster, writer: QuorumLedgerWriter, last: int) -> bool:
    """Every entry is on its whole write set by metadata, but for recorded gaps."""
    layout, gaps = writer.layout, cluster.gaps(writer.ref)
    return all(
        entry_id in cluster.bookies[bookie_id].entry_ids(writer.ref)
        or any(each == bookie_id and first <= entry_id <= end for each, first, end in gaps)
        for entry_id in range(last + 1)
        for bookie_id in layout.bookies_of(entry_id)
    )


def simulate(act: Callable[[Cluster], Coroutine[Any, Any, None]], *bookie_ids: str, **config: Any) -> None:
    """Run `act` on clusters of several seeds (which move delays and the choice of bookies)."""
    for seed in range(5):
        loop = SimLoop(seed, time_max_s=1_000)

        async def main(loop: SimLoop = loop) -> None:
            cluster = Cluster(loop, *(bookie_ids or ("b1", "b2", "b3")), **config)
            await act(cluster)
            await cluster.store.close()

        run(loop, main())


def entries(first: int, count: int = 1) -> Run:
    """A run whose entries tell their ids."""
    return Run([b"entry %d" % entry_id for entry_id in range(first, first + count)])


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never: {what}")


def others(writer: QuorumLedgerWriter, *bookie_ids: str) -> list[str]:
    """The bookies of the ensemble besides these."""
    return [each.bookie_id for each in writer.members if each.bookie_id not in bookie_ids]
