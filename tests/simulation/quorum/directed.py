"""Runs whose trouble is staged: what chance alone would bring about too rarely. Moments vary by the seed."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from magnetar.common.errors import StorageError
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.ledger_store import LedgerRef, LedgerWriter, Run
from magnetar.ledger.segment_log.codec_v1 import RECORD_HEADER_SIZE, UNIT
from magnetar.sim.network import NetworkFaults

from tests.simulation.quorum.checker import Promises
from tests.simulation.quorum.cluster import BookieNode, ClientNode, Cluster, Shape
from tests.simulation.quorum.ledger_workload import LedgerWorkload

THREE = Shape(3, 3, 2, 3)

CONFIRMED_WITHIN_S: Final = 2.0
"""Five times the time after which a bookie that does not answer is given up."""

MARK_WITHIN_S: Final = 0.05
"""So soon metadata knows how far a bookie's log is durable, and how long it takes to say so."""

FILLED_UP_WITHIN_S: Final = 15.0
"""Copying what a bookie missed in half a second."""


class Staged(LedgerWorkload):
    """A cluster without trouble but what `stage` makes."""

    async def run(self) -> None:
        self._cluster.network.faults = NetworkFaults(give_up_s=2.0)
        for bookie in self._cluster.bookies:
            bookie.down_s = (0.005, 0.02)
            bookie.start()
        await asyncio.sleep(0.1)
        await self.stage()
        self._cluster.network.heal()
        await asyncio.sleep(0.5)
        await self._finish()

    async def stage(self) -> None:
        raise NotImplementedError

    async def create(self, client: ClientNode) -> tuple[Promises, LedgerWriter]:
        """A new ledger."""
        shape = self._cluster.shape
        promises = Promises(LedgerRef(0, 0), shape.write_quorum, shape.ack_quorum)
        writer = await client.process.spawn(self._create(client, promises))
        return promises, writer

    def append(self, client: ClientNode, promises: Promises, writer: LedgerWriter, entry: bytes) -> None:
        """One entry; what a failed ledger refuses was not promised."""
        run = Run([entry])
        try:
            self._checker.appended(promises, run, client.process.call(writer.append, run))
        except StorageError:
            pass


class WritesGoOn(Staged):
    """As many bookies as the quorums can spare go away in the middle of writing, in one way or another."""

    async def stage(self) -> None:
        cluster, rng = self._cluster, self.rng
        client = await cluster.client("writer")
        promises, writer = await self.create(client)
        gone = rng.sample(cluster.bookies, cluster.shape.unreachable_max)
        at = rng.randrange(20)
        for number in range(30):
            if number == at:
                self.lose(client, gone, rng.randrange(3))
            self.append(client, promises, writer, b"entry %d" % number)
            await asyncio.sleep(rng.uniform(0, 0.005))
        await asyncio.sleep(CONFIRMED_WITHIN_S)
        assert not promises.failed, f"{promises} failed without {[bookie.name for bookie in gone]}"
        assert promises.told == 29, f"{promises}: confirmed up to {promises.told} without {gone[0].name}"

    def lose(self, client: ClientNode, gone: list[BookieNode], how: int) -> None:
        for bookie in gone:
            if how == 0:
                bookie.down_s = (3.0, 4.0)
                bookie.crash("crash")
            elif how == 1 and bookie.process is not None:
                bookie.process.pause(3.0)
            else:
                self._cluster.network.partition([bookie.name], [client.process.name])


class LateAppend(Staged):
    """An entry is on one bookie, which goes; another one, that missed the fence, gets it after the recovery's
    read."""

    async def stage(self) -> None:
        cluster, network, rng = self._cluster, self._cluster.network, self.rng
        writing, recovering = await cluster.client("writer"), await cluster.client("recoverer")
        promises, writer = await self.create(writing)
        for number in range(3):
            self.append(writing, promises, writer, b"entry %d" % number)
        await asyncio.sleep(0.1)
        has, fenced, late = rng.sample([bookie.name for bookie in cluster.bookies], 3)
        for path in (("writer", fenced), ("writer", late), (fenced, "writer"), ("recoverer", late)):
            network.block(*path)
        self.append(writing, promises, writer, b"the late one")
        await asyncio.sleep(0.01)
        recovery = recovering.process.spawn(self._recover(recovering, promises, rng, 1))
        await asyncio.sleep(rng.uniform(0.02, 0.04))  # it waits for the third one's fence
        network.partition(["recoverer"], [has])
        await asyncio.sleep(rng.uniform(0.13, 0.16))  # it has given up the fence, and asks everybody
        network.unblock("recoverer", late)
        await asyncio.sleep(rng.uniform(0.01, 0.03))
        network.unblock("writer", late)
        await asyncio.wait([recovery], timeout=1)
        await asyncio.sleep(0.05)


class EmptiedDisk(Staged):
    """Of the two bookies with the last entries one comes back with an empty disk, the other is out of reach;
    the third one never had them."""

    async def stage(self) -> None:
        cluster, network, rng = self._cluster, self._cluster.network, self.rng
        writing, recovering = await cluster.client("writer"), await cluster.client("recoverer")
        promises, writer = await self.create(writing)
        lost, away, lacking = rng.sample(cluster.bookies, 3)
        network.block("writer", lacking.name)
        for number in range(rng.randint(1, 5)):
            self.append(writing, promises, writer, b"entry %d" % number)
            await asyncio.sleep(rng.uniform(0, 0.01))
        await asyncio.sleep(0.02)
        writing.process.kill()
        network.partition(["recoverer"], [away.name])
        cluster.lost_disks.add(lost.name)
        lost.crash("wipe")
        await asyncio.sleep(rng.uniform(0, 0.1))
        recovery = recovering.process.spawn(self._recover(recovering, promises, rng, 3))
        await asyncio.wait([recovery], timeout=1)


class RottenTail(Staged):
    """Of the two bookies with the last entries one is away, and the last group of the other rots: it looks as
    if its kill had torn it. The third one never had them."""

    async def stage(self) -> None:
        cluster, network, rng = self._cluster, self._cluster.network, self.rng
        writing, recovering = await cluster.client("writer"), await cluster.client("recoverer")
        promises, writer = await self.create(writing)
        rotten, away, lacking = rng.sample(cluster.bookies, 3)
        network.block("writer", lacking.name)
        for number in range(rng.randint(1, 5)):
            self.append(writing, promises, writer, b"entry %d" % number)
            await asyncio.sleep(rng.uniform(0, 0.01))
        await asyncio.sleep(0.02)
        writing.process.kill()
        network.partition(["recoverer"], [away.name])
        cluster.lost_disks.add(rotten.name)
        assert rotten.core is not None, f"{rotten.name} serves"
        # On a slow network it may have nothing of the ledger yet.
        for segment in [each for each in rotten.core.log.segments if promises.ref in each.indexes][-1:]:
            record = max(segment.indexes[promises.ref].offsets) * UNIT
            rotten.disk.flip_bit(segment.path, 8 * (record + rng.randrange(RECORD_HEADER_SIZE)))
        rotten.crash("kill")
        await asyncio.sleep(rng.uniform(0.05, 0.1))
        recovery = recovering.process.spawn(self._recover(recovering, promises, rng, 3))
        await asyncio.wait([recovery], timeout=1)


class ReusedAddress(Staged):
    """Of a writer's three bookies one is dead, one is out of reach, and the third one comes back at the dead
    one's address, of which the writer learns late. Then the first two are back, and the third one is gone."""

    async def stage(self) -> None:
        cluster, network, rng = self._cluster, self._cluster.network, self.rng
        writing, recovering = await cluster.client("writer"), await cluster.client("recoverer")
        promises, writer = await self.create(writing)
        self.append(writing, promises, writer, b"confirmed by all")
        await asyncio.sleep(0.05)
        dead, heir, cut = rng.sample(cluster.bookies, 3)
        network.partition(["writer"], [cut.name])
        writing.metadata.faults.watch_delay_max_s = 0.4
        dead.down_s = None
        dead.trade_addresses(heir, "kill")
        for number in range(40):
            self.append(writing, promises, writer, b"entry %d" % number)
            await asyncio.sleep(rng.uniform(0.01, 0.03))
        await asyncio.sleep(0.1)
        writing.process.kill()
        network.heal()
        network.partition(["recoverer"], [heir.name])
        dead.down_s = (0.005, 0.02)
        dead.start()
        await asyncio.sleep(0.1)
        await asyncio.wait([recovering.process.spawn(self._recover(recovering, promises, rng, 3))], timeout=2)


class Returned(Staged):
    """Of two bookies with the last entries one comes back with an older disk, or without some of its files;
    the other is out of reach, the third one never had them."""

    outage = "roll back"

    async def stage(self) -> None:
        cluster, network, rng = self._cluster, self._cluster.network, self.rng
        writing, recovering = await cluster.client("writer"), await cluster.client("recoverer")
        promises, writer = await self.create(writing)
        back, away, lacking = rng.sample(cluster.bookies, 3)
        for number in range(rng.randint(1, 3)):
            self.append(writing, promises, writer, b"entry %d" % number)
        await asyncio.sleep(0.05)
        back.take_image()
        network.block("writer", lacking.name)
        for number in range(3):
            self.append(writing, promises, writer, b"late entry %d" % number)
            await asyncio.sleep(rng.uniform(0, 0.01))
        await asyncio.sleep(MARK_WITHIN_S)
        writing.process.kill()
        network.partition(["recoverer"], [away.name])
        cluster.lost_disks.add(back.name)
        assert back.may_roll_back(), "metadata knows of later groups than the image has"
        back.crash(self.outage)
        await asyncio.sleep(rng.uniform(0, 0.1))
        recovery = recovering.process.spawn(self._recover(recovering, promises, rng, 3))
        await asyncio.wait([recovery], timeout=1)


class LostFiles(Returned):
    """As Returned: all segments are gone, or one."""

    outage = "lose files"


class ForgottenFence(Staged):
    """A ledger was recovered while its writer stood still; of the two bookies that were fenced one comes back
    with an older disk. The writer wakes up, and reaches it and the third: another of its ledgers has found
    out before that the bookie was away."""

    outage = "roll back"

    async def stage(self) -> None:
        cluster, network, rng = self._cluster, self._cluster.network, self.rng
        writing, recovering = await cluster.client("writer"), await cluster.client("recoverer")
        promises, writer = await self.create(writing)
        other, other_writer = await self.create(writing)
        for number in range(rng.randint(1, 3)):
            self.append(writing, promises, writer, b"entry %d" % number)
        await asyncio.sleep(0.05)
        back, fenced, missed = rng.sample(cluster.bookies, 3)
        back.take_image()
        network.partition(["writer"], [bookie.name for bookie in cluster.bookies])
        network.partition(["recoverer"], [missed.name])
        recovery = recovering.process.spawn(self._recover(recovering, promises, rng, 5))
        await asyncio.wait([recovery], timeout=1)
        cluster.lost_disks.add(back.name)
        back.crash(self.outage)
        await asyncio.sleep(rng.uniform(0.05, 0.1))
        network.heal()
        network.partition(["writer"], [fenced.name])
        self.append(writing, other, other_writer, b"the other ledger's")
        await asyncio.sleep(0.1)
        for number in range(3):
            self.append(writing, promises, writer, b"too late %d" % number)
            await asyncio.sleep(rng.uniform(0, 0.05))
        await asyncio.sleep(0.3)


class ForgottenFenceOfAnEmptiedDisk(ForgottenFence):
    """As ForgottenFence."""

    outage = "wipe"


class KillThenPowerLoss(Staged):
    """Every bookie is killed in the middle of its writes, comes back, a ledger is recovered; then the power
    goes."""

    async def stage(self) -> None:
        cluster, rng = self._cluster, self.rng
        writing = await cluster.client("writer")
        recovering = await cluster.client("recoverer")
        promises, writer = await self.create(writing)
        for number in range(rng.randint(3, 10)):
            self.append(writing, promises, writer, b"entry %d" % number)
            await asyncio.sleep(0.002)
        await asyncio.sleep(rng.uniform(0, 0.004))
        for bookie in cluster.bookies:
            bookie.crash("kill")
        writing.process.kill()
        await asyncio.sleep(0.1)
        await asyncio.wait([recovering.process.spawn(self._recover(recovering, promises, rng, 4))], timeout=2)
        for bookie in cluster.bookies:
            bookie.crash("crash")
        await asyncio.sleep(0.1)


class Garbage(Staged):
    """Ledgers come, and some go again, while the bookies give back the space of those that are gone."""

    async def stage(self) -> None:
        cluster, rng = self._cluster, self.rng
        client = await cluster.client("writer")
        for _ in range(8):
            promises, writer = await self.create(client)
            for number in range(25):
                self.append(client, promises, writer, b"entry %d" % number + bytes(rng.randrange(2000)))
                await asyncio.sleep(0.003)
            closed = await client.process.spawn(writer.close())
            self._checker.closed(promises, closed, by_writer=True)
            if rng.random() < 0.4:
                promises.deleted = True
                await client.process.spawn(client.store.delete(promises.ref))
            await asyncio.sleep(0.2)
        await asyncio.sleep(2)


class FilledUp(Staged):
    """A bookie is away for a while, and is filled up in a ledger that is written on without a pause; then the
    power goes on another one."""

    replicate = True

    async def stage(self) -> None:
        cluster, rng = self._cluster, self.rng
        client = await cluster.client("writer")
        promises, writer = await self.create(client)
        away, later = rng.sample(cluster.bookies, 2)
        writing = client.process.spawn(self.write_on(client, promises, writer))
        await asyncio.sleep(rng.uniform(0.01, 0.1))
        away.down_s = (0.5, 0.6)  # so long that the writer goes on without it
        away.crash(rng.choice(("kill", "crash")))
        await asyncio.sleep(1)
        for bookie in cluster.bookies:
            await bookie.recover_others()
        until_s = cluster.loop.time() + FILLED_UP_WITHIN_S
        while gaps := cluster.checker.metadata[promises.ref.id].gaps:
            assert cluster.loop.time() < until_s, f"{promises} still has gaps: {gaps}"
            await asyncio.sleep(0.05)
        later.crash("crash")
        await asyncio.sleep(rng.uniform(0, 0.1))
        assert not promises.failed, f"{promises} failed"
        assert cluster.checker.metadata[promises.ref.id].state == LedgerMetadata.OPEN
        writing.cancel()
        self._checker.closed(promises, await client.process.spawn(writer.close()), by_writer=True)

    async def write_on(self, client: ClientNode, promises: Promises, writer: LedgerWriter) -> None:
        while True:
            self.append(client, promises, writer, b"entry %d" % len(promises.appended))
            await asyncio.sleep(self.rng.uniform(0, 0.004))


def staged(cluster: Cluster, kind: type[Staged]) -> Staged:
    """One of them for a cluster; its chances differ from those of the others."""
    workload = kind(cluster)
    workload.rng = random.Random(f"{kind.__name__} {cluster.seed}")
    return workload
