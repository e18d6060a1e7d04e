"""The quorum ledger store: the contract of every store, and what is its own."""

from __future__ import annotations

import random

import pytest
from magnetar.common.metadata.keys import Keys
from magnetar.ledger.quorum.quorum_store import QuorumLedgerStore
from magnetar.sim.loop import SimClock, SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

from tests.unit.ledger.ledger_store_contract import PROMISES, Promise
from tests.unit.ledger.quorum.fake_bookies import FakeBookies


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
