"""Brokers take, give, hand over, split and merge the bundles of two namespaces, while everything goes wrong.

What is checked all the time:
- what metadata gives away of a namespace never overlaps;
- nobody believes to own what metadata does not give to it for longer than it takes to be told.
And in the end, when nothing goes wrong any more: everybody knows the same owners, each of whom knows it, too.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from magnetar.broker.ownership.bundle_ownership import BundleOwnership
from magnetar.broker.ownership.cluster import Cluster
from magnetar.broker.ownership.own_bundles import OwnBundle
from magnetar.common.cluster.bundles import bundles_of, cut
from magnetar.common.control.methods import TAKE
from magnetar.common.errors import MagnetarError, MetadataError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import WatchEvent
from magnetar.common.metadata.values import Namespace, decode, encode
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.sim.loop import SimClock, SimLoop
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore

KEYS: Final = Keys("test")
NAMESPACES: Final = (NamespaceName("t", "one"), NamespaceName("t", "two"))
BROKERS: Final = 3
TTL_MS: Final = 3_000
TOLD_S: Final = 6.0
"""What it takes at most to be told, from when on metadata can be reached."""
BUNDLES_MAX: Final = 12
"""No more splits of a namespace than that: what overlaps has to be tried often."""

Bundle = tuple[NamespaceName, BundleRange]


@dataclass
class Run:
    """One run of a broker, and what it believes."""

    cluster: Cluster
    following: asyncio.Task[str]

    @property
    def ownership(self) -> BundleOwnership:
        return self.cluster.ownership


@dataclass
class SimBroker:
    """A broker's process: a store of its own, one run after the other."""

    name: str
    store: SimMetadataStore
    clock: SimClock
    rng: random.Random
    run: Run | None = None
    runs: int = 0
    cut_off_since: float = 0.0
    reachable_since: float = 0.0
    lost: list[Bundle] = field(default_factory=list)

    async def begin(self) -> None:
        while self.run is None:
            await self._begin()

    async def _begin(self) -> None:
        cluster = Cluster(self.store, KEYS, self.clock, self.rng, session_ttl_ms=TTL_MS)
        cluster.ownership.on_lost = lambda namespace, bundle: self.lost.append((namespace, bundle))
        await cluster.begin(self.name)
        try:
            await cluster.register(lambda registration: None)
        except MetadataError as error:
            cluster.drop(str(error))
            await cluster.close()
            await asyncio.sleep(0.2)
            return
        self.runs += 1
        self.run = Run(cluster, asyncio.create_task(cluster.presence.lost()))

    async def end(self, reason: str) -> None:
        run, self.run = self.run, None
        if run is not None:
            run.following.cancel()
            run.cluster.drop(reason)
            await run.cluster.close()

    async def live(self) -> None:
        """Begin anew after every run that was lost."""
        while True:
            run = self.run
            assert run is not None
            await self.end(await run.following)
            await self.begin()

    @property
    def beliefs(self) -> list[OwnBundle]:
        return [] if self.run is None else [own for own in self.run.ownership.table if not own.giving]


class OwnershipWorkload:
    """One simulated run: `drive` for a while, then `settle` and check."""

    def __init__(self, loop: SimLoop, *, faults: bool) -> None:
        self.server = SimMetadataServer()
        self.done: Counter[str] = Counter()
        self.merged = 0
        self._loop = loop
        self._rng = random.Random(loop.rng.getrandbits(64))
        self._faults = faults
        self._wrong_since: dict[tuple[str, Bundle], float] = {}
        clock = SimClock(loop)
        self.brokers = [
            SimBroker(f"b{number}:8080", SimMetadataStore(self.server, loop.rng), clock, self._rng)
            for number in range(BROKERS)
        ]
        self.server.subscribe(self._check_metadata)

    async def drive(self, steps: int) -> None:
        admin = self.brokers[0].store
        for namespace in NAMESPACES:
            await admin.put(KEYS.namespace(namespace), encode(Namespace(bundle_count=4)))
        for broker in self.brokers:
            await broker.begin()
        living = [asyncio.create_task(broker.live(), name=broker.name) for broker in self.brokers]
        watching = asyncio.create_task(self._watch_beliefs())
        await asyncio.gather(*(self._operate(steps) for _ in range(4)), *self._faulty(steps))
        await self._end_faults()
        for task in (*living, watching):
            if task.done():
                task.result()
        await self._settled()
        for task in (*living, watching):
            task.cancel()
        for broker in self.brokers:
            await broker.end("the test is over")
            await broker.store.close()

    # -- what happens

    async def _operate(self, steps: int) -> None:
        operations = (
            self._take,
            self._take,
            self._take,
            self._release,
            self._hand_over,
            self._split,
            self._merge,
            self._find,
        )
        for _ in range(steps):
            await asyncio.sleep(self._rng.uniform(0, 0.2))
            broker = self._rng.choice(self.brokers)
            run = broker.run
            if run is None:
                continue
            operation = self._rng.choice(operations)
            try:
                await operation(broker, run)
                self.done[operation.__name__] += 1
            except (MagnetarError, TimeoutError) as error:
                self.done[type(error).__name__] += 1

    async def _take(self, broker: SimBroker, run: Run) -> None:
        namespace = self._rng.choice(NAMESPACES)
        ring = run.ownership.finder.rings.get(namespace)
        if ring is not None:
            await run.ownership.take(namespace, self._rng.choice(ring.bundles))

    async def _release(self, broker: SimBroker, run: Run) -> None:
        own = self._one_of(run)
        if own is not None:
            await run.ownership.release(own.namespace, own.range)

    async def _hand_over(self, broker: SimBroker, run: Run) -> None:
        own, other = self._one_of(run), self._rng.choice(self.brokers)
        if own is None or other is broker or other.run is None:
            return
        target = other.run.ownership
        async with run.ownership.giving(own.namespace, own.range) as owned:
            if owned is not None:
                await asyncio.sleep(self._rng.uniform(0, 0.5))
                async with asyncio.timeout(TAKE.deadline_s):  # two may give each other the same at once
                    taken = await target.take(own.namespace, own.range, owned)
                if self._rng.random() < 0.5:  # told of it, or not
                    run.ownership.finder.owners.note(own.namespace, own.range, taken)

    async def _split(self, broker: SimBroker, run: Run) -> None:
        own = self._one_of(run)
        ring = None if own is None else run.ownership.finder.rings.get(own.namespace)
        if own is None or ring is None or len(ring.bundles) >= BUNDLES_MAX:
            return
        at = {
            self._rng.randint(own.range.lower + 1, own.range.upper - 1)
            for _ in range(self._rng.randint(1, 3))
        }
        lost_before = broker.lost.count((own.namespace, own.range))
        parts = await run.ownership.split(own.namespace, own.range, sorted(at))
        assert broker.lost.count((own.namespace, own.range)) == lost_before, "topics stay open"
        assert [parts[0].lower, parts[-1].upper] == [own.range.lower, own.range.upper]

    async def _merge(self, broker: SimBroker, run: Run) -> None:
        """Neighbors that it has, or believes to have, or now and then a third one that it has not."""
        own = self._one_of(run)
        ring = None if own is None else run.ownership.finder.rings.get(own.namespace)
        if own is None or ring is None or own.range not in ring.bundles:
            return
        at = list(ring.bundles).index(own.range)
        upto = at
        while upto + 1 < len(ring.bundles) and run.ownership.table.get(own.namespace, ring.bundles[upto + 1]):
            upto += 1
        if self._rng.random() < 0.1:
            upto = min(upto + 1, len(ring.bundles) - 1)
        merged = BundleRange(own.range.lower, ring.bundles[upto].upper)
        lost_before = len(broker.lost)
        found = await run.ownership.merge(own.namespace, merged)
        if not self._faults:
            lost = [
                bundle for _, bundle in broker.lost[lost_before:] if bundle in ring.bundles[at : upto + 1]
            ]
            assert not lost, "topics stay open"
        assert found.run == run.cluster.presence.run
        self.merged += upto > at

    async def _find(self, broker: SimBroker, run: Run) -> None:
        name = TopicName.of("persistent", self._rng.choice(NAMESPACES), f"t{self._rng.randrange(1000)}")
        await run.ownership.finder.find(name)

    def _one_of(self, run: Run) -> OwnBundle | None:
        owned = list(run.ownership.table)
        return self._rng.choice(owned) if owned else None

    # -- what goes wrong

    def _faulty(self, steps: int) -> list[Awaitable[None]]:
        return [self._go_wrong(steps)] if self._faults else []

    async def _go_wrong(self, steps: int) -> None:
        for broker in self.brokers:
            broker.store.faults.unknown_probability = 0.1
        faults: list[Callable[[SimBroker], Awaitable[None]]] = [
            self._lose_watches,
            self._expire,
            self._cut_off,
            self._slow_watches,
            self._cut_otherwise,
        ]
        for _ in range(steps // 8):
            await asyncio.sleep(self._rng.uniform(0, 1))
            await self._rng.choice(faults)(self._rng.choice(self.brokers))

    async def _lose_watches(self, broker: SimBroker) -> None:
        broker.store.lose_watches()

    async def _expire(self, broker: SimBroker) -> None:
        for session in list(broker.store._sessions):
            session.expire()

    async def _cut_off(self, broker: SimBroker) -> None:
        broker.store.faults.unreachable = True
        await asyncio.sleep(self._rng.uniform(0, 2 * TTL_MS / 1000))
        broker.store.faults.unreachable = False
        broker.reachable_since = self._loop.time()

    async def _slow_watches(self, broker: SimBroker) -> None:
        broker.store.faults.watch_delay_max_s = self._rng.choice([0.01, 0.5, 2.0])

    async def _cut_otherwise(self, broker: SimBroker) -> None:
        """Somebody else cuts a ring, or changes a policy of it, without asking any owner."""
        key = KEYS.namespace(self._rng.choice(NAMESPACES))
        found = self.server.get(key)
        assert found is not None
        value = decode(Namespace, found.value)
        if self._rng.random() < 0.3:
            cut(value, sorted(self._rng.sample(range(1, 0xFFFF_FFFF), 3)))
        value.properties["changed"] = str(found.version)
        try:
            await broker.store.put(key, encode(value), found.version)
        except MetadataError:
            pass

    async def _end_faults(self) -> None:
        for broker in self.brokers:
            broker.store.faults.unreachable = False
            broker.store.faults.unknown_probability = 0.0
            broker.store.faults.watch_delay_max_s = 0.01
        await asyncio.sleep(4 * TOLD_S)

    # -- what must hold

    def _check_metadata(self, events: list[WatchEvent]) -> None:
        if not any(event.key.startswith(KEYS.bundle_owners_prefix) for event in events):
            return
        for namespace in NAMESPACES:
            listing = self.server.children(KEYS.namespace_bundle_owners_prefix(namespace))
            owned = sorted(KEYS.bundle_of_owner(item.key)[1] for item in listing.items)
            for one, other in pairwise(owned):
                assert one.upper <= other.lower, f"{one} and {other} of {namespace} are both owned"

    async def _watch_beliefs(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            now, wrong = self._loop.time(), set()
            for broker in self.brokers:
                for own in broker.beliefs:
                    found = self.server.get(KEYS.bundle_owner(own.namespace, own.range))
                    if found is None or found.version != own.version:
                        wrong.add((broker.name, (own.namespace, own.range)))
                        self._check_time(broker, own, now)
            self._wrong_since = {each: self._wrong_since.get(each, now) for each in wrong}

    def _check_time(self, broker: SimBroker, own: OwnBundle, now: float) -> None:
        if broker.store.faults.unreachable:
            return
        since = self._wrong_since.get((broker.name, (own.namespace, own.range)), now)
        since = max(since, broker.reachable_since)
        assert now - since < TOLD_S, f"{broker.name} believes for {now - since:.1f} s to own {own}"

    async def _settled(self) -> None:
        """Every bundle can be had, everybody knows by whom, and so does who has it."""
        runs = [broker.run for broker in self.brokers]
        for namespace in NAMESPACES:
            found = self.server.get(KEYS.namespace(namespace))
            assert found is not None
            for bundle in bundles_of(decode(Namespace, found.value)):
                for run in runs:
                    assert run is not None
                    await run.ownership.finder.rings.load(namespace)
                    await run.ownership.finder.assigned(namespace, bundle)
        await asyncio.sleep(TOLD_S)
        given: dict[Bundle, int] = {}
        for item in self.server.children(KEYS.bundle_owners_prefix).items:
            given[KEYS.bundle_of_owner(item.key)] = item.version
        believed = {
            (own.namespace, own.range): own.version for broker in self.brokers for own in broker.beliefs
        }
        assert believed == given
        for run in runs:
            assert run is not None
            known = {
                (namespace, bundle): owned.version
                for namespace, bundle, owned in run.ownership.finder.owners.all()
            }
            assert known == given
