"""One run: a workload, faults one after the other as a seed says, then all is drained, read and judged."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.chaos.chaos_cluster import BANK_NAMESPACE, NAMESPACE, ONCE_NAMESPACE
from tests.chaos.cluster_client import Doors
from tests.chaos.faults import Fault
from tests.chaos.library_clients import LibraryTopic
from tests.chaos.workload import FAILURES, Topic, World
from tests.integration.harness import Endpoint
from tests.integration.rest import Rest
from tests.soak.history import KINDS, Kind, Violation
from tests.soak.raw_client import Refused
from tests.transactions.bank import Bank, BankFailed
from tests.transactions.checker import check, summary

PREFIX = f"persistent://{NAMESPACE}"
SAMPLE_S = 0.25
CALM_S = 2.0
ONCE_OF = 4
"""Of so many topics of each kind one has its messages deduplicated."""
STATS_SECONDS_MAX = 5.0
SETTLE_SECONDS_MAX = 60.0
DRAIN_SECONDS_MAX = 90.0
BEGIN_AT_ONCE = 20
CHECK_AT_ONCE = 10
BANK_STANDSTILL_S = 30.0

Progress = Callable[[str], None]


class Served(Protocol):
    """A process that clients and scripts can reach."""

    @property
    def endpoint(self) -> Endpoint: ...


class ClusterUnderLoad(Protocol):
    """What a run has to know of a cluster; the faults that are given to it know the rest."""

    used: set[str]
    """Set by the run: service URLs of brokers that serve topics of the workload, as clients know it."""

    @property
    def endpoint(self) -> Endpoint: ...
    @property
    def discoveries(self) -> Sequence[Served]: ...
    @property
    def brokers(self) -> Sequence[Served]: ...
    @property
    def directory(self) -> Path:
        """Where what is stuck leaves its statistics."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a run does."""

    seed: int
    seconds: float
    """Faults are struck for so long; each kind that is given is struck once in any case."""
    topics: int = 100
    library_topics: int = 4
    """Of the PyPI client, beside the others."""
    bank_workers: int = 0
    """Workers of the bank, whose Java clients move balances in transactions."""
    idle_s_max: float = 5.0
    """A subscription with permits and backlog may get nothing for so long, once the fault should be cured."""
    quiet: bool = True
    """The machine has nothing else to do: no broker is late for its lease but by a fault."""


@dataclass(slots=True)
class Gaps:
    """What one fault did."""

    fault: str
    target: str
    publish: list[float] = field(default_factory=list)
    """Of each topic the longest time without a confirmed message, from the strike to the end of it."""
    library: float = 0.0
    """The longest of the PyPI clients, which wait as they see fit before they try again."""
    idle: float = 0.0
    """The longest that a subscription got nothing once the fault should have been cured."""
    created: float = 0.0
    """Seconds from the strike until a new topic was there."""
    moved: int = 0
    """Topics that were served anew, by another broker or the same."""
    settled: float = 0.0
    """Seconds from the healing until every topic had confirmed and delivered something new."""


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    counts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    struck: list[Gaps] = field(default_factory=list)
    by_kind: dict[Kind, Counter[str]] = field(default_factory=dict)


def run(cluster: ClusterUnderLoad, load: Load, faults: Sequence[Fault], progress: Progress) -> Outcome:
    """Over a cluster that serves and has the workload's namespaces.

    Every wait is bounded; what is wrong is in `violations`.
    """
    return asyncio.run(_Run(cluster, load, faults, progress).execute())


class _Run:
    def __init__(
        self, cluster: ClusterUnderLoad, load: Load, faults: Sequence[Fault], progress: Progress
    ) -> None:
        self._cluster = cluster
        self._load = load
        self._faults = faults
        self._progress = progress
        self._outcome = outcome = Outcome()
        self._doors = Doors([one.endpoint.service_url for one in cluster.discoveries], outcome.counts)
        self._world = World(random.Random(load.seed), self._doors, outcome.counts, outcome.violations)
        self._world.refusals = outcome.refusals
        self._topics = [
            Topic(self._world, n, f"{prefix}/chaos-{load.seed}-{n}", KINDS[n % len(KINDS)], once=once)
            for n in range(load.topics)
            for once in [n // len(KINDS) % ONCE_OF == ONCE_OF - 1]
            for prefix in [f"persistent://{ONCE_NAMESPACE}" if once else PREFIX]
        ]
        self._library = [
            LibraryTopic(
                cluster.endpoint.service_url, f"{PREFIX}/library-{load.seed}-{n}", KINDS[n % len(KINDS)]
            )
            for n in range(load.library_topics)
        ]
        self._bank: Bank | None = None

    async def execute(self) -> Outcome:
        keeping = asyncio.create_task(self._doors.keep())
        actors: list[asyncio.Task[None]] = []
        try:
            await self._begin()
            for topic in self._topics:
                actors += [asyncio.create_task(one.run()) for one in (topic.publisher, *topic.members)]
            for library in self._library:
                library.start()
            await self._settle(time.monotonic(), "the beginning")
            if self._load.bank_workers:
                await asyncio.to_thread(self._open_bank)
            await self._strike_all()
            if self._bank is not None:
                await asyncio.to_thread(self._close_bank, self._bank)
            await self._drain()
            self._world.over = True
            await asyncio.gather(*actors)
            await self._check()
            await asyncio.gather(*(asyncio.to_thread(one.finish, DRAIN_SECONDS_MAX) for one in self._library))
        finally:
            for task in (keeping, *actors):
                task.cancel()
            self._doors.close()
            if self._bank is not None:
                self._bank.kill()
        self._count()
        return self._outcome

    async def _begin(self) -> None:
        gate = asyncio.Semaphore(BEGIN_AT_ONCE)

        async def begin(topic: Topic) -> None:
            async with gate, asyncio.timeout(SETTLE_SECONDS_MAX):
                await topic.begin()

        await asyncio.gather(*map(begin, self._topics))
        self._progress(f"{len(self._topics)} topics are there")

    def _open_bank(self) -> None:
        load = self._load
        self._bank = Bank(
            self._cluster.endpoint,
            f"persistent://{BANK_NAMESPACE}/bank-{load.seed}",
            self._cluster.directory,
            seed=load.seed,
            workers=load.bank_workers,
            progress=self._progress,
        )
        self._bank.wait_until_open()
        self._progress("the bank is open")

    def _close_bank(self, bank: Bank) -> None:
        self._progress("closing the bank")
        try:
            bank.quiet()
            history = bank.close()
        except BankFailed as failed:
            self._outcome.violations.append(str(failed))
            return
        self._outcome.violations += check(history, standstill_s=BANK_STANDSTILL_S)
        self._outcome.counts.update({f"bank: {what}": count for what, count in summary(history).items()})

    async def _strike_all(self) -> None:
        rng = random.Random(self._load.seed)
        began, number = time.monotonic(), 0
        while number < len(self._faults) or time.monotonic() - began < self._load.seconds:
            fault = self._faults[number] if number < len(self._faults) else rng.choice(self._faults)
            await self._strike(fault, rng)
            number += 1
            await asyncio.sleep(CALM_S)

    async def _strike(self, fault: Fault, rng: random.Random) -> None:
        attached = [topic.publisher.connection for topic in self._topics]
        self._cluster.used = {one.url for one in attached if one is not None}
        at = time.monotonic()
        struck = await asyncio.to_thread(fault.strike, self._cluster, rng)
        gaps = Gaps(fault.name, struck.target)
        self._outcome.struck.append(gaps)
        self._progress(f"{fault.name}: {struck.target}")
        owners = sum(topic.history.owners for topic in self._topics)
        watching = asyncio.create_task(self._watch(gaps, at + fault.cured_s))
        creating = asyncio.create_task(self._create(gaps, at))
        try:
            await asyncio.sleep(fault.lasts_s)
            await asyncio.to_thread(struck.heal)
            healed = time.monotonic()
            await self._settle(healed, fault.name)
            gaps.settled = time.monotonic() - healed
            async with asyncio.timeout(SETTLE_SECONDS_MAX):
                await creating
            await asyncio.sleep(SAMPLE_S)
        except TimeoutError:
            self._world.violations.append(f"{fault.name}: no topic could be created afterwards")
        finally:
            watching.cancel()
            creating.cancel()
        gaps.moved = sum(topic.history.owners for topic in self._topics) - owners
        if gaps.moved and fault.untouched and self._load.quiet:
            self._world.violations.append(f"{fault.name} of {struck.target}: {gaps.moved} topics moved")
        gaps.publish = sorted(longest_gap(topic.publisher.receipts, at) for topic in self._topics)
        gaps.library = max((longest_gap([*one.receipts], at) for one in self._library), default=0.0)
        if gaps.idle > self._load.idle_s_max:
            self._world.violations.append(
                f"{fault.name} of {struck.target}: a subscription got nothing for {gaps.idle:.1f} s"
            )
        self._progress(
            f"  publishers waited {gaps.publish[-1]:.2f} s at most, subscriptions {gaps.idle:.2f} s after "
            f"the cure; all went on {gaps.settled:.2f} s after the healing"
        )

    async def _create(self, gaps: Gaps, at: float) -> None:
        """A topic that was not there before: it may wait, or be refused with a reason, until it is made."""
        name = f"{PREFIX}/new-{self._load.seed}-{len(self._outcome.struck)}"
        turn = 0
        while True:
            turn += 1
            try:
                connection = await self._doors.to(await self._doors.where(name, turn), 0)
                producer_id = connection.next_id()
                await connection.ask("producer", topic=name, producer_id=producer_id)
                gaps.created = time.monotonic() - at
                await connection.ask("close_producer", producer_id=producer_id)
                return
            except Refused as refused:
                self._world.refused(f"creating: {refused.name}: {refused.args[1]}")
            except FAILURES:
                if gaps.created:
                    return
            await asyncio.sleep(SAMPLE_S)

    async def _watch(self, gaps: Gaps, cured: float) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            now = time.monotonic()
            gaps.idle = max(gaps.idle, *(topic.history.idle(now, cured) for topic in self._topics))

    async def _settle(self, since: float, what: str) -> None:
        """Until every topic has confirmed and delivered something new."""
        while stuck := [topic for topic in self._topics if not self._goes_on(topic, since)]:
            if time.monotonic() - since > SETTLE_SECONDS_MAX:
                for topic in stuck:
                    self._world.violations.append(f"{what}: {topic.name} does not go on: {state(topic)}")
                await asyncio.gather(*(asyncio.to_thread(self._keep_stats, topic) for topic in stuck))
                return
            await asyncio.sleep(0.05)

    def _goes_on(self, topic: Topic, since: float) -> bool:
        receipts = topic.publisher.receipts
        return bool(receipts) and receipts[-1] > since and topic.history.last_delivery > since

    async def _drain(self) -> None:
        self._progress("draining")
        self._world.ending = True
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        left = self._topics
        while left and time.monotonic() < deadline:
            await asyncio.sleep(SAMPLE_S)
            drained = await asyncio.gather(*map(self._is_drained, left))
            left = [topic for topic, done in zip(left, drained, strict=True) if not done]
        for topic in left:
            self._world.violations.append(f"{topic.history}: is not drained: {state(topic)}")
        await asyncio.gather(*(asyncio.to_thread(self._keep_stats, topic) for topic in left))

    async def _is_drained(self, topic: Topic) -> bool:
        if not topic.drained:
            return False
        with suppress(*FAILURES):
            async with asyncio.timeout(STATS_SECONDS_MAX):
                return await topic.backlog() == 0
        return False

    def _keep_stats(self, topic: Topic) -> None:
        """What its broker says of a topic that is stuck, beside the logs."""
        rest = Rest(self._cluster.brokers[0].endpoint)
        path = topic.name.replace("://", "/")
        for kind in ("stats", "internalStats"):
            try:
                text = json.dumps(rest.get(f"/{path}/{kind}"), indent=1)
            except (AssertionError, OSError, ValueError) as error:
                text = repr(error)
            (self._cluster.directory / f"stuck-{topic.number}.{kind}.json").write_text(text)

    async def _check(self) -> None:
        self._progress("reading everything")
        gate = asyncio.Semaphore(CHECK_AT_ONCE)

        async def check(topic: Topic) -> None:
            async with gate:
                try:
                    await topic.check()
                except Violation as violation:
                    self._world.violations.append(str(violation))
                except FAILURES as failure:
                    self._world.violations.append(f"{topic.name} cannot be read: {failure!r}")

        await asyncio.gather(*map(check, self._topics))

    def _count(self) -> None:
        for library in self._library:
            self._outcome.violations += library.violations
            self._outcome.counts["confirmed to the PyPI client"] += len(library.confirmed)
        for topic in self._topics:
            counts = self._outcome.by_kind.setdefault(topic.kind, Counter())
            counts["topics"] += 1
            counts["confirmed"] += len(topic.publisher.published.confirmed)
            counts["once"] += topic.once * len(topic.publisher.published.confirmed)
            counts["delivered"] += topic.history.deliveries
            counts["owners"] += topic.history.owners


def longest_gap(times: Sequence[float], since: float) -> float:
    """The longest time between two of them, of which at least one is after `since`; 0 where there is none."""
    longest, before = 0.0, since
    for each in times:
        if each > since:
            longest = max(longest, each - before)
            before = each
    return longest


def state(topic: Topic) -> str:
    """What somebody wants to know of a topic that is stuck."""
    where = [one.connection.url if one.connection else "nowhere" for one in (topic.publisher, *topic.members)]
    lost = topic.history.lost()
    held = [len(member.seen.pending) for member in topic.members]
    now = time.monotonic()
    doing = [f"{one.doing} for {now - one.doing_since:.1f} s" for one in (topic.publisher, *topic.members)]
    return (
        f"{len(topic.publisher.unconfirmed)} unconfirmed, {len(lost)} not delivered (the first: {lost[:1]}), "
        f"held {held}, permits {[member.seen.permits for member in topic.members]}, its clients are "
        f"at {where}: {doing}"
    )
