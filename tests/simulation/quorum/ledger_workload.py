"""Writers of ledgers, and others that recover these under their hands, with the paths between them and the
bookies cut here and there; readers follow. In the end everything heals, and every promise must hold.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Final

from magnetar.common.errors import MetadataError, NoSuchLedger, StorageError
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.bookie_protocol.bookie_client import BookieUnreachable
from magnetar.ledger.ledger_store import RUN_CHUNK, LedgerReader, LedgerRef, LedgerWriter, Run

from tests.simulation.quorum.checker import Promises, write_set
from tests.simulation.quorum.cluster import ClientNode, Cluster
from tests.simulation.quorum.nemesis import Nemesis

REPLICATED_S: Final = 60.0
"""Auto-recovery is done within so much virtual time."""

ATTEMPTS: Final = 4
"""How often a recovery is tried while the trouble goes on."""

FINAL_S: Final = 60.0
"""Once everything is healed, every recovery is done within so much virtual time."""

READ_BYTES: Final = 20_000


class LedgerWorkload:
    """One run over one cluster."""

    fights: int = 9
    """How often somebody takes a ledger from its writer."""
    fight_pauses_s: tuple[float, ...] = (0.01, 0.05, 0.15)
    """Before each."""
    writers: int = 2
    runs: tuple[int, ...] = (1, 4, 12, 30)
    """Of a ledger, each followed by one of these pauses."""
    replicate: bool = False
    """In the end auto-recovery has to bring every entry to all of its write set."""
    pauses_s: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)

    def __init__(self, cluster: Cluster) -> None:
        self.rng = random.Random(f"workload {cluster.seed}")
        self.nemesis = Nemesis(cluster, cluster.seed)
        self.recoveries = 0
        self._writers: list[ClientNode] = []
        self._clients = 0
        self.undecided = 0
        """Ledgers whose end nobody could tell, since several bookies are in doubt."""
        self._hindrance: Exception | None = None
        self._ending = False
        self._cluster = cluster
        self._checker = cluster.checker
        self.nemesis.rarer.recover_some_ledger = self._recover_some
        self.nemesis.rarer.create_at_once = self._create_at_once

    async def run(self) -> None:
        """Everything, from the first bookie's start to the last check."""
        cluster, rng = self._cluster, self.rng
        for bookie in cluster.bookies:
            bookie.start()
        await asyncio.sleep(0.05)
        trouble = asyncio.ensure_future(self._trouble())
        reader = await cluster.client("reader")
        reader.process.spawn(self._follow(reader))
        self._writers = [await self._new_writer() for _ in range(self.writers)]
        for _ in range(self.fights):
            await asyncio.sleep(rng.choice(self.fight_pauses_s))
            await self._fight(reader)
            self._checker.raise_broken()
        self._ending = True
        self.nemesis.stop()
        await trouble
        await asyncio.sleep(0.5)
        await self._finish()

    async def _finish(self) -> None:
        """With everything healed: every recovery ends, every promise is kept."""
        last = await self._cluster.client("last")
        try:
            await asyncio.wait_for(last.process.spawn(self._check_everything(last)), FINAL_S)
        except TimeoutError:
            raise AssertionError(f"after everything healed: {self._hindrance}") from None
        if self.replicate:
            await self._replicate(last)
        self._checker.raise_broken()

    async def _trouble(self) -> None:
        await self.nemesis.run()

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
            place = rng.randrange(self.writers)
            former = self._writers[place]
            if rng.random() < 0.7:
                former.process.kill_after(rng.randint(1, 200))
            self._writers[place] = await self._new_writer()

    def _recover_some(self) -> None:
        """Somebody recovers a ledger that is written."""
        rng = self.nemesis.rarer.rng
        open_ones = [each for each in self._checker.ledgers.values() if self._checker.is_written(each.ref.id)]
        alive = [client for client in self._cluster.clients if client.process.alive]
        if open_ones and alive and not self._ending:
            client, seed = rng.choice(alive), random.Random(rng.getrandbits(64))
            client.process.spawn(self._recover(client, rng.choice(open_ones), seed, 2))

    def _create_at_once(self) -> None:
        """Every client writes one more ledger."""
        for client in self._cluster.clients:
            if client.process.alive and not self._ending:
                client.process.spawn(
                    self._write_one(client, random.Random(self.nemesis.rarer.rng.getrandbits(64)))
                )

    async def _write_one(self, client: ClientNode, rng: random.Random) -> None:
        with suppress(StorageError, MetadataError):
            await self._write_ledger(client, rng)

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
        writer = await self._create(client, promises)
        for _ in range(rng.choice(self.runs)):
            for _ in range(rng.choice((1, 1, 3))):
                run = small_run(rng)
                self._checker.appended(promises, run, writer.append(run))
            await asyncio.sleep(rng.choice(self.pauses_s))
            if promises.failed:
                break
        if rng.random() < 0.9:
            self._checker.closed(promises, await writer.close(), by_writer=True)

    async def _create(self, client: ClientNode, promises: Promises) -> LedgerWriter:
        shape = self._cluster.shape
        writer = await client.store.create(
            self._checker.listener(promises),
            ensemble_size=shape.ensemble_size,
            write_quorum=shape.write_quorum,
            ack_quorum=shape.ack_quorum,
            properties={},
        )
        self._checker.created(promises, writer)
        return writer

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
                if attempts > ATTEMPTS and "in doubt" in str(error):
                    return None  # nobody can tell where it ends, until auto-recovery has looked
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
            if promises is None or promises.deleted:
                continue  # nobody was told that it was created
            reader = await self._recover(client, promises, rng, 1000)
            if reader is None:
                self.undecided += 1
                continue
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
            await self._check_copies(client, promises)

    async def _replicate(self, client: ClientNode) -> None:
        """Auto-recovery begins; after a while every entry is on all that should have it."""
        for bookie in self._cluster.bookies:
            await bookie.recover_others()
        lacking = ["?"]
        deadline = self._cluster.loop.time() + REPLICATED_S
        while lacking and self._cluster.loop.time() < deadline:
            await asyncio.sleep(1.0)
            lacking = await client.process.spawn(self._lacking(client))
        assert not lacking, f"after auto-recovery: {lacking[:3]}"

    async def _lacking(self, client: ClientNode) -> list[str]:
        """Entries of closed ledgers that a bookie of their write set does not have, and ledgers left open."""
        lacking = []
        for ledger_id, value in list(self._checker.metadata.items()):
            promises = self._checker.ledgers.get(ledger_id)
            if promises is None or promises.deleted:
                continue
            if value.state != LedgerMetadata.CLOSED:
                lacking.append(f"{promises} is not closed")
                continue
            for entry_id in range(value.last_entry_id + 1):
                for name in write_set(value, entry_id):
                    try:
                        answer = await client.clients.client(name).read(promises.ref, entry_id, entry_id, 1)
                        reason = "" if answer.records else answer.reason
                    except BookieUnreachable as error:
                        reason = str(error)
                    if reason:
                        lacking.append(f"{promises}: {name} lacks entry {entry_id}: {reason}")
                        break
                if lacking:
                    return lacking
        return lacking

    async def _check_copies(self, client: ClientNode, promises: Promises) -> None:
        """Of the last entry: a bookie that kept its disk has what it said to have."""
        last = promises.closed
        if last is None or last < 0:
            return
        for name in self._checker.holders(promises, last):
            if name in self._cluster.lost_disks:
                continue
            while True:
                try:
                    answer = await client.clients.client(name).read(promises.ref, last, last, 1)
                    break
                except BookieUnreachable as error:
                    self._hindrance = error
                    await asyncio.sleep(0.1)
            assert answer.records, f"{promises}: {name} said to have entry {last}, and says {answer.reason}"


class Duel(LedgerWorkload):
    """A few short ledgers, each fought for at once; what goes wrong does so in the fight."""

    fights = 4
    writers = 1
    runs = (2, 6)
    pauses_s = (0.0005, 0.001, 0.002)

    async def _trouble(self) -> None:
        pass

    async def _follow(self, client: ClientNode) -> None:
        pass

    async def _fight(self, reader: ClientNode) -> None:
        rng, nemesis = self.rng, self.nemesis
        writer = self._writers[0]
        await asyncio.sleep(rng.choice((0, 0.002, 0.005)))
        open_ones = [each for each in self._checker.ledgers.values() if each.closed is None]
        nemesis.part_clients([reader, writer])
        await asyncio.sleep(rng.choice((0, 0.001, 0.003, 0.01)))
        if rng.random() < 0.6:
            nemesis.surprise()
        seeds = [random.Random(rng.getrandbits(64)) for _ in range(2)]
        if open_ones:
            fighting = [reader.process.spawn(self._recover(reader, open_ones[-1], seeds[0], 2))]
            if rng.random() < 0.3:
                writer.process.spawn(self._recover(writer, open_ones[-1], seeds[1], 2))
            await asyncio.wait(fighting, timeout=rng.choice((0.05, 0.3, 0.6)))
        if rng.random() < 0.3:
            writer.process.kill()
        if not writer.process.alive:
            self._writers[0] = await self._new_writer()


class ReplicatedDuel(Duel):
    """Afterwards everything is replicated again."""

    fights = 2
    replicate = True


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
