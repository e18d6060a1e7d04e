"""Auto-recovery under everything at once: bookies that die, come back, lose a disk, are cut off, shall leave,
metadata that is away or loses outcomes. After it has healed every ledger is whole, on bookies that exist.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.sim.disk import SimDisk
from magnetar.sim.loop import SimLoop, run

from tests.simulation.power_loss import KEYS
from tests.unit.bookie.autorecovery.cluster import QUICK, Cluster, Node

BOOKIES = 6
LEDGERS = 12
STEPS = 40

CONFIG = replace(QUICK, lost_bookie_recovery_delay_s=5, audit_interval_s=120)


class Chaos:
    """One run. At most one disk is lost: Qa - 1."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster(loop)
        self.wiped = False
        self.open_ends: dict[int, int] = {}
        """Of ledgers that nobody closed: nothing was ever wrong with some of them."""
        self.next_bookie = BOOKIES + 1

    async def ledgers(self) -> None:
        """Closed ones, and open ones whose writer is gone; with fragments and gaps."""
        rng = self.rng
        for ledger_id in range(1, LEDGERS + 1):
            names = [f"b{number}" for number in range(1, BOOKIES + 1)]
            size = rng.choice([3, 3, 4])
            fragments, first = [], 0
            for _ in range(rng.randint(1, 3)):
                fragments.append((first, rng.sample(names, size)))
                first += rng.randint(1, 20)
            entries = first + rng.randint(0, 10)
            is_open = rng.random() < 0.3
            gaps = []
            if rng.random() < 0.3:
                at = rng.randrange(fragments[-1][0] + 1)
                holder = [names for start, names in fragments if start <= at][-1]
                # One bookie of the ledger lacks a few entries; the others have them.
                end = min([start - 1 for start, _ in fragments if start > at] + [entries - 1, at + 5])
                if at <= end:
                    gaps.append((rng.choice(holder), at, end))
            if is_open:
                self.open_ends[ledger_id] = entries - 1
            state = LedgerMetadata.OPEN if is_open else LedgerMetadata.CLOSED
            await self.cluster.ledger(ledger_id, fragments, entries, state=state, gaps=gaps, run_length=1)

    async def step(self) -> None:
        cluster, rng = self.cluster, self.rng
        await asyncio.sleep(rng.expovariate(0.4))
        for node in cluster.nodes.values():
            if node.metadata is not None:
                faults = node.metadata.faults
                faults.unreachable = rng.random() < 0.05
                faults.unknown_probability = rng.choice([0.0, 0.0, 0.2])
                if rng.random() < 0.05:
                    node.metadata.lose_watches()
            node.unreachable = rng.random() < 0.05
        down = [node for node in cluster.nodes.values() if node.core is None] + cluster.killed
        up = [node for node in cluster.nodes.values() if node.core is not None]
        roll = rng.random()
        if roll < 0.25 and len(down) < 2:
            cluster.kill(rng.choice(up).bookie_id)
        elif roll < 0.55 and down:
            node = rng.choice(down)
            if not self.wiped and rng.random() < 0.3:
                self.wiped = True
                node.disk = SimDisk()
            await self.start(node)
        elif roll < 0.65:
            await cluster.decommission(rng.choice(up).bookie_id)
        elif roll < 0.75:
            for item in (await cluster.metadata.children(KEYS.decommissions_prefix)).items:
                await cluster.metadata.delete(item.key)
        elif roll < 0.80 and self.next_bookie < BOOKIES + 3:
            await cluster.add(f"b{self.next_bookie}", config=CONFIG)
            self.next_bookie += 1

    async def start(self, node: Node) -> None:
        if await self.cluster.metadata.get(KEYS.cookie(node.bookie_id)) is None:
            node.disk = SimDisk()  # it was decommissioned: what it has is nobody's
        if node in self.cluster.killed:
            await self.cluster.revive(node)
        else:
            await node.start()

    async def heal(self) -> None:
        """Everybody who exists comes back, and nobody shall leave any more."""
        cluster = self.cluster
        for node in [*cluster.killed, *cluster.nodes.values()]:
            if node.core is None:
                await self.start(node)
            assert node.metadata is not None
            node.metadata.faults.unreachable = False
            node.metadata.faults.unknown_probability = 0.0
            node.unreachable = False
        for item in (await cluster.metadata.children(KEYS.decommissions_prefix)).items:
            await cluster.metadata.delete(item.key)

    async def until_whole(self) -> None:
        """Everything is replicated again, without anybody's help."""
        deadline = asyncio.get_running_loop().time() + 3_000
        while True:
            try:
                assert self.cluster.marks() == {}
                await self.cluster.fully_replicated(*range(1, LEDGERS + 1), open_ends=self.open_ends)
                for bookie in self.cluster.nodes:
                    page = await self.cluster.client(bookie).list_ledgers(only_limbo=True)
                    assert not page.ledgers, f"{bookie} is in doubt"
                break
            except AssertionError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(20)


@pytest.mark.full
@pytest.mark.seeds(1, full=5, nightly=24)
def test_after_healing_everything_is_whole_again(seed: int) -> None:
    loop = SimLoop(seed, time_max_s=1_000_000)

    async def main() -> None:
        chaos = Chaos(loop, seed)
        for number in range(1, BOOKIES + 1):
            await chaos.cluster.add(f"b{number}", config=CONFIG)
        await chaos.ledgers()
        for _ in range(STEPS):
            await chaos.step()
        await chaos.heal()
        await chaos.until_whole()
        await chaos.cluster.close()

    run(loop, main())
