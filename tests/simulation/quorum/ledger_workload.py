"""Writers of ledgers, and others that recover these under their hands, with the paths between them and the
bookies cut here and there; readers follow. In the end everything heals, and every promise must hold.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from magnetar.common.errors import MetadataError, NoSuchLedger, StorageError
from magnetar.ledger.ledger_store import RUN_CHUNK, LedgerReader, LedgerRef, Run

from tests.simulation.quorum.checker import Promises
from tests.simulation.quorum.cluster import ClientNode, Cluster
from tests.simulation.quorum.nemesis import Nemesis

FIGHTS: Final = 9
"""How often somebody takes a ledger from its writer."""

WRITERS: Final = 2

ATTEMPTS: Final = 4
"""How often a recovery is tried while the trouble goes on."""

FINAL_S: Final = 60.0
"""Once everything is healed, every recovery is done within so much virtual time."""

READ_BYTES: Final = 20_000


class LedgerWorkload:
    """One run over one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.rng = random.Random(f"workload {cluster.seed}")
        self.nemesis = Nemesis(cluster, cluster.seed)
        self.recoveries = 0
        self._writers: list[ClientNode] = []
        self._clients = 0
        self._hindrance: Exception | None = None
        self._ending = False
        self._cluster = cluster
        self._checker = cluster.checker

    async def run(self) -> None:
        """Everything, from the first bookie's start to the last check."""
        cluster, rng = self._cluster, self.rng
        for bookie in cluster.bookies:
            bookie.start()
        await asyncio.sleep(0.05)
        trouble = asyncio.ensure_future(self.nemesis.run())
        reader = await cluster.client("reader")
        reader.process.spawn(self._follow(reader))
        self._writers = [await self._new_writer() for _ in range(WRITERS)]
        for _ in range(FIGHTS):
            await asyncio.sleep(rng.choice((0.01, 0.05, 0.15)))
            await self._fight(reader)
            self._checker.raise_broken()
        self._ending = True
        self.nemesis.stop()
        await trouble
        await asyncio.sleep(0.5)
        last = await cluster.client("last")
        try:
            await asyncio.wait_for(last.process.spawn(self._check_everything(last)), FINAL_S)
        except TimeoutError:
            raise AssertionError(f"after everything healed: {self._hindrance}") from None
        self._checker.raise_broken()

    # --- those who fight ---

    async def _fight(self, reader: ClientNode) -> None:
        """Somebody recovers a ledger while it is written, and neither reaches every bookie."""
        rng = self.rng
        open_ones = [each for each in self._checker.ledgers.values() if each.closed is None]
        if open_ones:
            promises = rng.choice(open_ones[-4:])
            others = [reader, *self._writers]
            if rng.random() < 0.7:
                self.nemesis.part_clients(others)
                await asyncio.sleep(rng.choice((0, 0.001, 0.005, 0.02)))
            if rng.random() < 0.4:
                self.nemesis.surprise()
            for client in rng.sample(others, rng.choice((1, 1, 2))):
                if client.process.alive:
                    seed = rng.getrandbits(64)
                    client.process.spawn(self._recover(client, promises, random.Random(seed), ATTEMPTS))
        if rng.random() < 0.5:
            place = rng.randrange(WRITERS)
            former = self._writers[place]
            if rng.random() < 0.7:
                former.process.kill_after(rng.randint(1, 200))
            self._writers[place] = await self._new_writer()

    async def _new_writer(self) -> ClientNode:
        self._clients += 1
        client = await self._cluster.client(f"writer{self._clients}")
        client.process.spawn(self._own(client, random.Random(self.rng.getrandbits(64))))
        return client

    async def _own(self, client: ClientNode, rng: random.Random) -> None:
        """Write one ledger after the other."""
        while not self._ending:
            try:
                await self._write_ledger(client, rng)
            except (StorageError, MetadataError):
                await asyncio.sleep(rng.uniform(0.01, 0.1))

    async def _write_ledger(self, client: ClientNode, rng: random.Random) -> None:
        shape = self._cluster.shape
        promises = Promises(LedgerRef(0, 0), shape.write_quorum, shape.ack_quorum)
        writer = await client.store.create(
            self._checker.listener(promises),
            ensemble_size=shape.ensemble_size,
            write_quorum=shape.write_quorum,
            ack_quorum=shape.ack_quorum,
            properties={},
        )
        self._checker.created(promises, writer)
        for _ in range(rng.choice((1, 4, 12, 30))):
            for _ in range(rng.choice((1, 1, 3))):
                run = small_run(rng)
                self._checker.appended(promises, run, writer.append(run))
            await asyncio.sleep(rng.choice((0.001, 0.003, 0.01, 0.03)))
            if promises.failed:
                break
        if rng.random() < 0.9:
            self._checker.closed(promises, await writer.close(), by_writer=True)

    async def _recover(
        self, client: ClientNode, promises: Promises, rng: random.Random, attempts: int
    ) -> LedgerReader | None:
        """Recover a ledger; others may be at it too."""
        for _ in range(attempts):
            try:
                reader, closed = await client.store.recover(promises.ref)
                self._checker.closed(promises, closed)
                self.recoveries += 1
                return reader
            except (StorageError, MetadataError) as error:
                self._hindrance = error
                await asyncio.sleep(rng.uniform(0.02, 0.1))
        return None

    # --- readers ---

    async def _follow(self, client: ClientNode) -> None:
        """Read what may be read of some ledger, again and again."""
        rng = random.Random(self.rng.getrandbits(64))
        while True:
            await asyncio.sleep(rng.uniform(0.05, 0.2))
            if not self._checker.ledgers:
                continue
            promises = rng.choice(list(self._checker.ledgers.values())[-3:])
            try:
                reader = await client.store.open(promises.ref)
                last = reader.last_confirmed
                if last >= 0:
                    first = rng.randint(0, last)
                    await self._read(reader, promises, first, min(last, first + 20))
            except (StorageError, MetadataError):
                continue

    async def _read(self, reader: LedgerReader, promises: Promises, first: int, last: int) -> None:
        while first <= last:
            runs = await reader.read(first, last, READ_BYTES)
            first = self._checker.read(promises, first, reader.last_confirmed, runs)

    # --- the end ---

    async def _check_everything(self, client: ClientNode) -> None:
        """Every ledger ends somewhere, and every entry up to there can be read."""
        rng = random.Random(self.rng.getrandbits(64))
        for ledger_id in list(self._checker.metadata):
            promises = self._checker.ledgers.get(ledger_id)
            if promises is None:
                continue  # nobody was told that it was created
            reader = await self._recover(client, promises, rng, 1000)
            assert reader is not None
            assert promises.closed is not None
            while True:
                try:
                    await self._read(reader, promises, 0, promises.closed)
                    break
                except NoSuchLedger:
                    raise
                except StorageError as error:
                    self._hindrance = error
                    await asyncio.sleep(0.1)


def small_run(rng: random.Random) -> Run:
    """A few entries, now and then a large one, batches and flags. None looks as if it carried a checksum."""
    count = rng.choice((1, 1, 2, 4))
    size = rng.choice((0, 7, 60, 300)) if count > 1 else rng.choice((1, 60, 60, 60, 60, 5_000))
    lengths = [size if rng.random() < 0.7 else rng.randrange(size + 1) for _ in range(count)]
    return Run(
        [(b"-" + rng.randbytes(length))[:length] for length in lengths],
        publish_time_ms=rng.randrange(1 << 41),
        first_index=rng.randrange(1 << 40),
        message_counts=None if rng.random() < 0.6 else [rng.randrange(1, 9) for _ in lengths],
        flags=rng.choice((0, 0, RUN_CHUNK)),
    )
