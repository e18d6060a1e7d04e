"""What goes wrong in a run: one thing after the other, by the seed, until it is told to stop.

A seed has its own climate: which kinds of trouble there are, how often, how many bookies at a time. Disks are
lost (emptied, put back to an image, without some files, or bits in them flipped) on as many bookies as the
quorums promise to survive, and no more.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from magnetar.sim.network import NetworkFaults
from magnetar.sim.process import SimProcess

from tests.simulation.quorum.cluster import BookieNode, ClientNode, Cluster
from tests.simulation.quorum.rarer_trouble import RarerTrouble
from tests.simulation.quorum.switches import ADDRESSES_ARE_REUSED

GIVE_UP_S = 0.3
"""Without a sign of life for so long, a stream is broken."""


class Nemesis:
    """The trouble of one run."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.rng = rng = random.Random(f"nemesis {seed}")
        self._cluster = cluster
        self._stopped = False
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.crash_bookie, 4),
            (self.kill_bookie, 2),
            (self.black_out, 2),
            (self.lose_disk, 2),
            (self.pause_bookie, 3),
            (self.pause_client, 3),
            (self.isolate_bookie, 3),
            (self.cut_paths, 4),
            (self.heal, 6),
            (self.fail_syncs, 2),
            (self.fill_disk, 1),
            (self.lose_metadata, 1),
            (self.unsure_metadata, 2),
        ]
        chosen = [kind for kind in kinds if rng.random() < 0.6]
        self.rarer = RarerTrouble(cluster, seed, self._note)
        chosen += self.rarer.chosen
        if ADDRESSES_ARE_REUSED and random.Random(f"addresses {seed}").random() < 0.2:
            chosen.append((self.trade_addresses, 3))
        self._kinds = [kind for kind, _ in chosen] or [self.crash_bookie]
        self._weights = [weight for _, weight in chosen] or [1]
        self._pause_s = rng.choice((0.05, 0.15, 0.15, 0.4))
        self._disturbed_max = rng.choice((1, 1, cluster.shape.unreachable_max or 1, cluster.shape.bookies))
        self._disturbed: dict[str, float] = {}
        self.struck: list[str] = []
        self._disks = random.Random(f"disks {seed}")
        """Chances of their own, so that what came before them stays as it is."""
        faults = cluster.network.faults
        faults.give_up_s = GIVE_UP_S
        if rng.random() < 0.6:
            faults.break_probability = rng.choice((0.0, 0.003, 0.02))
            faults.loss_probability = rng.choice((0.0, 0.02, 0.1))
            faults.duplicate_probability = rng.choice((0.0, 0.1))
            faults.slow_probability = rng.choice((0.0, 0.02, 0.2))

    def only_rarer(self) -> None:
        """Strike with every kind of `RarerTrouble`, and with crashes and kills, which they build upon."""
        chosen = [*self.rarer.kinds, (self.crash_bookie, 2), (self.kill_bookie, 2), (self.heal, 2)]
        self._kinds = [kind for kind, _ in chosen]
        self._weights = [weight for _, weight in chosen]

    async def run(self) -> None:
        """Strike again and again."""
        while not self._stopped:
            await asyncio.sleep(self.rng.expovariate(1 / self._pause_s))
            if not self._stopped:
                kind = self.rng.choices(self._kinds, self._weights)[0]
                self._cluster.happened[kind.__name__.replace("_", " ")] += 1
                kind()
                self.take_images()

    def stop(self) -> None:
        """Strike no more and let everything come back."""
        self._stopped = True
        self.rarer.stop()
        cluster = self._cluster
        cluster.network.faults = NetworkFaults(give_up_s=GIVE_UP_S, slow_probability=0)
        cluster.network.heal()
        for client in cluster.clients:
            client.metadata.faults.unreachable = False
            client.metadata.faults.unknown_probability = 0
            client.metadata.faults.watch_delay_max_s = 0.01
        for bookie in cluster.bookies:
            bookie.disk.capacity = 1 << 40
            bookie.disk.faults.sync_errors.clear()
            bookie.down_s = (0.05, 0.1)
            if bookie.process is not None:
                bookie.process.spare()
            bookie.start()

    # --- kinds ---

    def crash_bookie(self) -> None:
        self._end_bookie("crash")

    def kill_bookie(self) -> None:
        self._end_bookie("kill")

    def black_out(self) -> None:
        """The power goes for several bookies at the same moment."""
        if self._stopped:
            return
        names = [bookie.name for bookie in self._cluster.bookies]
        chosen = self.rng.sample(names, self.rng.randint(2, len(names)))
        self._note(f"the power goes for {chosen}")
        for bookie in self._cluster.bookies:
            if bookie.name in chosen and bookie.process is not None:
                bookie.down_s = self.rng.choice(((0.02, 0.05), (0.05, 0.3)))
                bookie.crash("crash")

    def lose_disk(self) -> None:
        """An emptied disk, or bits that flipped, on a bookie that lost its data already or still may."""
        cluster, rng = self._cluster, self.rng
        lost = cluster.lost_disks
        if len(lost) >= cluster.shape.lost_disks_max:
            if not lost:
                return
            names = sorted(lost)
        else:
            names = [bookie.name for bookie in cluster.bookies]
        name = rng.choice(names)
        lost.add(name)
        bookie = next(bookie for bookie in cluster.bookies if bookie.name == name)
        if rng.random() < 0.5:
            outage = self._disks.choice(("wipe", "wipe", "roll back", "roll back", "lose files"))
            self._note(f"{name} loses its disk: {outage}")
            bookie.down_s = self.rng.choice(((0.005, 0.02), (0.05, 0.8)))
            bookie.crash(outage)
        else:
            self._rot(bookie)

    def trade_addresses(self) -> None:
        """Two bookies die; one comes back at the address of the other, before that one is back. Clients learn
        of it when they do."""
        one, other = self.rng.sample(self._cluster.bookies, 2)
        if one.process is None or other.process is None:
            return
        self._note(f"{one.name} gets the address of {other.name}")
        one.down_s, other.down_s = (0.005, 0.02), self.rng.choice(((0.02, 0.05), (0.3, 0.8)))
        for client in self._cluster.clients:
            client.metadata.faults.watch_delay_max_s = self.rng.choice((0.01, 0.3))
        one.trade_addresses(other, self.rng.choice(("crash", "kill")))

    def take_images(self) -> None:
        """Copies of some disks, to come back one day; and now and then a bookie that finds another's disk."""
        for bookie in self._cluster.bookies:
            if self._disks.random() < 0.2:
                bookie.take_image()
        if self._disks.random() < 0.05:
            bookie = self._disks.choice(self._cluster.bookies)
            if bookie.up:
                self._note(f"{bookie.name} finds the directory of another bookie")
                bookie.down_s = (0.02, 0.05)
                bookie.crash("swap")

    def pause_bookie(self) -> None:
        bookie = self._some_bookie(0.05 + self.rng.random())
        if bookie is not None and bookie.process is not None:
            self._pause(bookie.process, self.rng.choice((0.05, 0.2, 0.6, 1.5)))

    def pause_client(self) -> None:
        clients = [client for client in self._cluster.clients if client.process.alive]
        if clients:
            client = self.rng.choice(clients)
            client.metadata.faults.silent = True

            def resumed() -> None:
                client.metadata.faults.silent = False

            self._pause(client.process, self.rng.choice((0.05, 0.2, 0.6, 2.0)), resumed)

    def isolate_bookie(self) -> None:
        bookie = self._some_bookie(1.0)
        if bookie is not None:
            others = [name for name in self._names() if name != bookie.name]
            self._note(f"{bookie.name} is isolated")
            self._cluster.network.partition([bookie.name], others, symmetric=self.rng.random() < 0.5)
            self._cluster.later(self.rng.choice((0.1, 0.5, 1.2)), self.heal)

    def part_clients(self, clients: Sequence[ClientNode]) -> None:
        """Each client loses about half of its paths to bookies and back, then finds some and loses others."""
        rng = self.rng
        self._note("the clients are parted")
        for at_s in (0.0, rng.uniform(0, 0.02), rng.uniform(0, 0.06)):
            self._cluster.later(at_s, lambda: self._flip_paths(clients))
        self._cluster.later(rng.choice((0.03, 0.1, 0.3)), self.heal)

    def _flip_paths(self, clients: Sequence[ClientNode]) -> None:
        network, share = self._cluster.network, self.rng.choice((0.2, 0.5))
        if self._stopped:
            return
        network.heal()
        for client in clients:
            name = client.process.name
            for bookie in self._cluster.bookies:
                if self.rng.random() < share:
                    network.block(name, bookie.name)
                if self.rng.random() < share:
                    network.block(bookie.name, name)

    def surprise(self) -> None:
        """Something that hurts most in the middle of a recovery."""
        rng, bookies = self.rng, self._cluster.bookies
        kind = rng.randrange(4)
        if kind == 0:
            self.lose_disk()
        elif kind == 1:
            self._cluster.later(rng.uniform(0, 0.05), self.black_out)
        elif kind == 2:
            for bookie in rng.sample(bookies, rng.randint(1, len(bookies))):
                self._end_one(bookie, rng.choice(("crash", "kill")), rng.randint(1, 60))
        else:
            # What is only in the page cache survives the first and not the second.
            self._note("every bookie is killed, and then loses power")
            for bookie in bookies:
                bookie.down_s = (0.005, 0.02)
                bookie.crash("kill")
            self._cluster.later(rng.uniform(0.03, 0.2), self.black_out)

    def cut_paths(self) -> None:
        """Some clients lose some bookies, in one direction or both."""
        rng, cluster = self.rng, self._cluster
        clients = [client.process.name for client in cluster.clients if client.process.alive]
        if not clients:
            return
        bookies = [bookie.name for bookie in cluster.bookies]
        some = rng.sample(bookies, rng.randint(1, min(len(bookies), self._disturbed_max + 1)))
        some_clients = rng.sample(clients, rng.randint(1, len(clients)))
        sides = (some_clients, some) if rng.random() < 0.5 else (some, some_clients)
        self._note(f"{sides[0]} and {sides[1]} are parted")
        cluster.network.partition(*sides, symmetric=rng.random() < 0.4)
        cluster.later(rng.choice((0.1, 0.5, 1.2)), self.heal)

    def heal(self) -> None:
        self._cluster.network.heal()

    def fail_syncs(self) -> None:
        bookie = self.rng.choice(self._cluster.bookies)
        self._note(f"syncs of {bookie.name} fail")
        start = bookie.disk.operations + self.rng.randint(1, 20)
        bookie.disk.faults.sync_errors.update(range(start, start + self.rng.randint(1, 6)))

    def fill_disk(self) -> None:
        """No space for a while."""
        bookie = self.rng.choice(self._cluster.bookies)
        self._note(f"the disk of {bookie.name} is full")
        bookie.disk.capacity = (
            bookie.disk.capacity - bookie.disk.free_bytes() + self.rng.choice((0, 3000, 200_000))
        )

        def empty() -> None:
            bookie.disk.capacity = 1 << 40

        self._cluster.later(self.rng.choice((0.1, 0.5)), empty)

    def lose_metadata(self) -> None:
        clients = [client for client in self._cluster.clients if client.process.alive]
        if clients:
            faults = self.rng.choice(clients).metadata.faults
            faults.unreachable = True

            def back() -> None:
                faults.unreachable = False

            self._cluster.later(self.rng.choice((0.05, 0.3)), back)

    def unsure_metadata(self) -> None:
        for client in self._cluster.clients:
            client.metadata.faults.unknown_probability = self.rng.choice((0.0, 0.1, 0.3))

    # --- inside ---

    def _names(self) -> list[str]:
        cluster = self._cluster
        clients = [client.process.name for client in cluster.clients if client.process.alive]
        return [*(bookie.name for bookie in cluster.bookies), *clients]

    def _some_bookie(self, duration_s: float) -> BookieNode | None:
        """One to be troubled now; None when enough of them are."""
        now = self._cluster.loop.time()
        self._disturbed = {name: end for name, end in self._disturbed.items() if end > now}
        candidates = self._cluster.bookies
        if len(self._disturbed) >= self._disturbed_max:
            candidates = [bookie for bookie in candidates if bookie.name in self._disturbed]
        bookie = self.rng.choice(candidates)
        self._disturbed[bookie.name] = max(self._disturbed.get(bookie.name, 0.0), now + duration_s)
        return bookie

    def _end_bookie(self, outage: str) -> None:
        bookie = self._some_bookie(1.0)
        if bookie is None or bookie.process is None:
            return
        bookie.down_s = self.rng.choice(((0.02, 0.05), (0.05, 0.8), (0.5, 2.0)))
        self._end_one(bookie, outage, self.rng.choice((0, self.rng.randint(1, 200))))

    def _end_one(self, bookie: BookieNode, outage: str, after_steps: int) -> None:
        self._note(f"{bookie.name}: {outage} after {after_steps} steps")
        if not after_steps:
            bookie.crash(outage)
        elif bookie.process is not None:
            bookie.outage = outage
            bookie.process.kill_after(after_steps)

    def _pause(
        self, process: SimProcess, duration_s: float, on_end: Callable[[], None] | None = None
    ) -> None:
        self._note(f"{process.name} stands still for {duration_s:g} s")
        process.pause(duration_s, on_end)

    def _rot(self, bookie: BookieNode) -> None:
        paths = [path for path in bookie.disk.paths() if path.startswith("segments/")]
        if not paths:
            return
        self._note(f"bits of {bookie.name} flip")
        path = self.rng.choice(paths)
        used = len(bookie.disk.content(path).rstrip(b"\0"))
        for _ in range(self.rng.randint(1, 4)):
            bookie.disk.flip_bit(path, self.rng.randrange(max(8, used * 8)))

    def _note(self, what: str) -> None:
        self.struck.append(what)
        self._cluster.loop.trace(what)
