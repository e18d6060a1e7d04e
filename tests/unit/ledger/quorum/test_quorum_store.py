"""The quorum ledger store: the contract of every store, and what is its own."""

from __future__ import annotations

import asyncio
import random

import pytest
from magnetar.common.errors import LedgerFenced, NotEnoughBookies
from magnetar.common.metadata.keys import Keys
from magnetar.ledger.quorum.quorum_store import QuorumLedgerStore
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.unit.ledger.ledger_store_contract import PROMISES, Heard, Promise
from tests.unit.ledger.quorum.cluster import Cluster, entries, others, simulate, until
from tests.unit.ledger.quorum.fake_bookies import FakeBookies
from tests.unit.ledger.quorum.test_quarantine import ManualClock


class QuorumFixture:
    """A store over bookies in memory, restarted by making another one on the same metadata and bookies."""

    def __init__(self, loop: SimLoop, *bookie_ids: str) -> None:
        self._loop = loop
        self._server = SimMetadataServer()
        self.bookies = FakeBookies(*(bookie_ids or ("b1", "b2", "b3")))
        self._open()

    def _open(self) -> None:
        rng = random.Random(self._loop.rng.random())
        self.metadata = SimMetadataStore(self._server, rng)
        self.store = QuorumLedgerStore(
            self.bookies, self.bookies, self.metadata, Keys("test"), SimClock(self._loop), rng
        )

    async def kill_and_restart(self) -> None:
        self.metadata.crash()
        await self.store.close()
        self._open()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_the_contract_on_bookies_in_memory(promise: Promise) -> None:
    for seed in range(3):
        loop = SimLoop(seed, time_max_s=100)

        async def main(loop: SimLoop = loop) -> None:
            fixture = QuorumFixture(loop)
            await promise(fixture)
            await fixture.store.close()

        run(loop, main())


def test_disk_usage_is_that_of_the_emptiest_bookies_that_suffice() -> None:
    async def act(cluster: Cluster) -> None:
        for bookie_id, free in (("b1", 10), ("b2", 30), ("b3", 50)):
            cluster.bookies[bookie_id].disk = (free, 100)
        store = cluster.store
        assert [await store.disk_usage(copies) for copies in (1, 2, 3, 4)] == [
            pytest.approx(0.5),
            pytest.approx(0.7),
            pytest.approx(0.9),
            None,
        ]
        cluster.bookies.take_down("b3")
        assert await store.disk_usage(2) == pytest.approx(0.9)
        assert await store.disk_usage(3) is None
        cluster.bookies["b2"].disk = (0, 0)  # of a release that does not tell
        assert await store.disk_usage(2) is None

    simulate(act, "b1", "b2", "b3")


def test_a_ledger_without_enough_bookies_is_not_created() -> None:
    async def act(cluster: Cluster) -> None:
        cluster.bookies.take_down("b1")
        with pytest.raises(NotEnoughBookies):
            await cluster.create()
        assert cluster.server.children(cluster.keys.ledgers_prefix).items == []
        with pytest.raises(ValueError, match="do not go together"):
            await cluster.create(e=2, qw=2, qa=3)

    simulate(act)


def test_the_bookies_of_a_deleted_ledger_get_a_hint() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        cluster.bookies["b2"].up = False
        await cluster.store.delete(writer.ref)
        await asyncio.sleep(0.1)
        assert [cluster.bookies[each].hints for each in ("b1", "b2", "b3")] == [
            [writer.ref],
            [],
            [writer.ref],
        ]

    simulate(act)


def test_a_reader_beside_the_writer_follows_it_through_an_ensemble_change() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        reader = await cluster.store.open(writer.ref)
        writer.append(entries(0, 3))
        await asyncio.sleep(0.1)
        for bookie_id in others(writer)[:2]:
            cluster.bookies.take_down(bookie_id)
            writer.append(entries(writer.last_confirmed + 1))
            await until(lambda: not writer.adds, "replaced")
        assert reader.last_confirmed == 4
        found = [await reader.read(n, n, 1 << 20) for n in range(5)]
        assert [run.entries for [run] in found] == [[entry] for entry in entries(0, 5).entries]

    simulate(act, "b1", "b2", "b3", "b4", "b5")


def test_another_store_recovers_under_a_writer_that_then_confirms_nothing() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        writer.append(entries(0, 3))
        await asyncio.sleep(0.1)
        rng = random.Random(7)
        other = QuorumLedgerStore(
            cluster.bookies, cluster.bookies, cluster.metadata, cluster.keys, ManualClock(), rng
        )
        recovery = asyncio.ensure_future(other.recover(writer.ref))
        while not heard.failed:
            if not writer.adds:
                writer.append(entries(writer.last_confirmed + 1))
            await asyncio.sleep(0.0005)
        _, closed = await recovery
        assert isinstance(heard.failed[0][0], LedgerFenced)
        assert closed.last_entry_id >= heard.confirmed[-1]
        with pytest.raises(LedgerFenced):
            await writer.close()
        await other.close()

    simulate(act)
