"""One run: a server, its topics under churn for a while, then everything drained and judged."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.faults.observe import peak_resident_mib
from tests.integration.harness import Endpoint, StandaloneServer
from tests.soak.history import KINDS, Kind
from tests.soak.library_clients import LibraryTopic
from tests.soak.raw_client import PING_SECONDS, Ended, RawConnection
from tests.soak.workload import SUBSCRIPTION, Topic, World

CONNECTIONS = 24
CUT_SECONDS = 0.7
TICK_SECONDS = (0.05, 0.6)
STALL_SECONDS_MAX = 60.0
MEMORY_MIB_MAX = 250.0
NAMESPACE = "persistent://public/default"
SETTINGS = {
    "allowAutoTopicCreationType": "partitioned",
    "defaultNumPartitions": "3",
    "activeConsumerFailoverDelayTimeMillis": "100",
}
"""A raw client that does not ask for partition metadata makes topics without partitions all the same."""

Progress = Callable[[str, float, float], None]
"""Told the phase, how far it is, and where it ends."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a run does, entirely by its seed but for the scheduling of processes."""

    seed: int
    seconds: float
    topics: int = 200
    library_topics: int = 8

    @property
    def command(self) -> str:
        """Repeats it."""
        extra = f" --library-topics {self.library_topics}" if self.library_topics != 8 else ""
        size = f" --topics {self.topics}" if self.topics != 200 else ""
        return f'make soak ARGS="--minutes {self.seconds / 60:g} --seed {self.seed}{size}{extra}"'


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    by_kind: dict[Kind, Counter[str]] = field(default_factory=dict)
    peak_mib: float = 0.0


def run(server: StandaloneServer, load: Load, progress: Progress) -> Outcome:
    """Start `server`, run, stop it. Every wait is bounded; what is wrong is in `violations`."""
    server.start()
    outcome = asyncio.run(_Run(server.endpoint, load, progress).execute())
    outcome.peak_mib = peak_resident_mib(server)
    if outcome.peak_mib > MEMORY_MIB_MAX:
        outcome.violations.append(f"the server used {outcome.peak_mib:.0f} MiB, beyond {MEMORY_MIB_MAX:.0f}")
    server.stop()
    outcome.violations += [f"the server's log: {line}" for line in errors_in(server)]
    return outcome


def errors_in(server: StandaloneServer) -> list[str]:
    """Lines of the server's log that say error, and what is not a line of the log at all."""
    found = []
    for line in server.log_path.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            if json.loads(line).get("level") in ("error", "critical"):
                found.append(line[:2_000])
        elif "Traceback" in line or "Error" in line:
            found.append(line[:500])
    return found[:20]


def plan(load: Load) -> list[tuple[str, Kind]]:
    """Name and kind of each topic of the raw clients; now and then three are the partitions of one."""
    planned: list[tuple[str, Kind]] = []
    number = 0
    while len(planned) < load.topics:
        kind = KINDS[number % len(KINDS)]
        name = f"{NAMESPACE}/soak-{load.seed}-{number}"
        if number % 9 == 8 and len(planned) + 3 <= load.topics:
            planned += [(f"{name}-partition-{partition}", kind) for partition in range(3)]
        else:
            planned.append((name, kind))
        number += 1
    return planned


class _Run:
    def __init__(self, endpoint: Endpoint, load: Load, progress: Progress) -> None:
        self._endpoint = endpoint
        self._load = load
        self._progress = progress
        self._world = World(random.Random(load.seed), [])
        self._topics = [Topic(self._world, name, kind) for name, kind in plan(load)]
        self._library = [
            LibraryTopic(
                endpoint, f"{NAMESPACE}/library-{load.seed}-{n}", KINDS[n % len(KINDS)], load.seed + n
            )
            for n in range(load.library_topics)
        ]

    async def execute(self) -> Outcome:
        world = self._world
        world.connections += [await RawConnection.connect(self._endpoint) for _ in range(CONNECTIONS)]
        pinging = asyncio.create_task(self._ping())
        try:
            await self._begin()
            for library in self._library:
                library.start()
            await self._churn()
            await self._drain()
            await asyncio.gather(*(asyncio.to_thread(one.finish, STALL_SECONDS_MAX) for one in self._library))
        finally:
            pinging.cancel()
            for connection in world.connections:
                connection.abort()
        outcome = Outcome(world.counts, world.violations)
        for library in self._library:
            outcome.violations += library.violations
            outcome.counts["delivered to the library"] += library.delivered
        for topic in self._topics:
            counts = outcome.by_kind.setdefault(topic.kind, Counter())
            counts["topics"] += 1
            counts["delivered"] += topic.history.deliveries
            counts["messages"] += len(topic.history.delivered)
        return outcome

    async def _begin(self) -> None:
        asker = self._world.connections[0]
        for made, topic in enumerate(self._topics, 1):
            base, partition, _ = topic.name.rpartition("-partition-")
            if partition:
                await asker.ask("partitionMetadata", topic=base)
            await topic.begin()
            self._progress("topics", made, len(self._topics))

    async def _churn(self) -> None:
        ending = asyncio.Event()
        began = time.monotonic()
        actors = [asyncio.create_task(self._tend(topic, ending)) for topic in self._topics]
        actors.append(asyncio.create_task(self._cut(ending)))
        while (passed := time.monotonic() - began) < self._load.seconds:
            self._progress("churn", passed, self._load.seconds)
            await asyncio.sleep(min(0.5, self._load.seconds))
            for actor in actors:
                if actor.done():
                    actor.result()
        ending.set()
        await asyncio.gather(*actors)

    async def _tend(self, topic: Topic, ending: asyncio.Event) -> None:
        while not ending.is_set():
            await topic.tick()
            await asyncio.sleep(self._world.rng.uniform(*TICK_SECONDS))

    async def _cut(self, ending: asyncio.Event) -> None:
        """Connections end without a word; another one takes the place of each."""
        world = self._world
        while not ending.is_set():
            await asyncio.sleep(CUT_SECONDS)
            victim = world.rng.randrange(len(world.connections))
            world.connections[victim].abort()
            world.connections[victim] = await RawConnection.connect(self._endpoint)
            world.counts["connections cut"] += 1

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            for connection in self._world.connections:
                connection.ping()

    async def _drain(self) -> None:
        """Until every subscription has everything and no backlog is counted, or nothing moves for long."""
        left = {*self._topics}
        moved = time.monotonic()
        state: tuple[int, ...] = ()
        while left:
            await asyncio.gather(*(topic.drain() for topic in left))
            for topic in [*left]:
                if not topic.history.missing() and await self._backlog(topic) == 0:
                    left.discard(topic)
            self._progress("drain", len(self._topics) - len(left), len(self._topics))
            now = (len(left), self._world.counts["delivered"], self._world.counts["acknowledged"])
            if now != state:
                state, moved = now, time.monotonic()
            elif time.monotonic() - moved > STALL_SECONDS_MAX:
                for topic in left:
                    self._world.violations.append(await self._stall(topic))
                return
            await asyncio.sleep(0.05)

    async def _backlog(self, topic: Topic) -> int:
        try:
            return await topic.backlog()
        except Ended:
            return -1

    async def _stall(self, topic: Topic) -> str:
        missing = topic.history.missing()
        what = f"{len(missing)} never came, the first at {missing[:1]}" if missing else "all came"
        seen = [f"{one.seen.name}: {one.seen.permits} permits" for one in topic.consumers]
        why = await asyncio.to_thread(why_not_dispatching, self._endpoint, topic.name)
        backlog = await self._backlog(topic)
        return f"{topic.history}: stalled: {what}, backlog {backlog}, {seen}; the server says: {why}"


def why_not_dispatching(endpoint: Endpoint, topic: str) -> str:
    """The reason that the server gives, and its statistics of the subscription."""
    path = topic.replace("://", "/")
    try:
        url = f"{endpoint.http_url}/admin/v2/{path}/stats?whyNotDispatching=true"
        with urllib.request.urlopen(url, timeout=30) as response:
            subscription = json.loads(response.read())["subscriptions"][SUBSCRIPTION]
    except (urllib.error.URLError, KeyError, TimeoutError) as error:
        return f"no statistics: {error}"
    return f"{subscription['whyNotDispatching']}; {json.dumps(subscription)[:1_500]}"
