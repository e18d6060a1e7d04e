"""One term of the leader: assigns bundles, collects load reports and rebalances.

No state outlives the term, and no decision binds by itself: a broker takes a bundle by its own transaction,
and a broker that hands one over checks first that it owns it. Two leaders at the same time therefore do no
harm. A new leader moves nothing before every broker has reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from magnetar.broker.load.candidates import Candidates
from magnetar.broker.load.cluster_load import ClusterLoad
from magnetar.broker.load.config import LoadConfig
from magnetar.broker.load.explanation import BundlePlacement, what_would_move, why_here
from magnetar.broker.load.metrics import ASSIGNED, FAILED_MOVES, GIVING_BROKERS, MOVED_BUNDLES
from magnetar.broker.load.owner_counts import OwnerCounts, Run
from magnetar.broker.load.placement import Candidate, choose
from magnetar.broker.load.placement_rules import PlacementRules
from magnetar.broker.load.shedding import Move, Shedder
from magnetar.broker.reason import Reason
from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.cluster.bundle_owners import Bundle, BundleOwners, Owned
from magnetar.common.control.control_errors import BrokerUnreachable
from magnetar.common.control.control_pb2 import (
    LoadReport,
    TakeRequest,
    TakeResponse,
    UnloadRequest,
    UnloadResponse,
)
from magnetar.common.control.unresponsive_brokers import SilentBrokers
from magnetar.common.errors import (
    MagnetarError,
    MetadataError,
    NamespaceNotFound,
    ServiceNotReady,
    TooManyRequests,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner

log = get_logger(__name__)

TRIES_MAX: Final = 3
"""Maximum number of brokers that are called to take a bundle, one after the other."""

ASSIGNMENTS_MAX: Final = 10_000
"""Maximum number of concurrent assignments."""

STEP_S: Final = 1.0
"""Seconds of one step of waiting for the next comparison: the interval may be shortened at run time."""


@dataclass(frozen=True, slots=True)
class LeaderParts:
    """Dependencies of a leader term. The caller starts and closes the mirrors."""

    config: LoadConfig
    metadata: MetadataStore
    keys: Keys
    cluster: str
    clock: Clock
    directory: BrokerDirectory
    owners: BundleOwners
    take: Callable[[BrokerRegistration, TakeRequest], Awaitable[TakeResponse]]
    """Makes a broker (this one or another) take a bundle."""
    unload: Callable[[BrokerRegistration, UnloadRequest], Awaitable[UnloadResponse]]
    """Makes a broker hand over a bundle."""


class Leading:
    """One term: `start`, `run`, `close`. Used once."""

    def __init__(self, parts: LeaderParts) -> None:
        self._parts = parts
        self._config = parts.config
        self.load: Final = ClusterLoad(parts.config)
        self.counts: Final = OwnerCounts()
        self.rules: Final = PlacementRules(parts.metadata, parts.keys, parts.cluster)
        self._candidates = Candidates(self.load, self.counts, self.rules)
        self._silent = SilentBrokers()
        self._shedder = Shedder(parts.config)
        self._assigning: dict[Bundle, asyncio.Task[Run]] = {}
        self._tasks = TaskOwner("load leader")
        self._began = parts.clock.monotonic()

    async def start(self) -> None:
        """Loads placement rules and owners; waits until metadata is reachable."""
        await self.rules.start()
        for namespace, bundle, owned in self._parts.owners.all():
            self.owner_changed(namespace, bundle, owned)

    async def close(self) -> None:
        """Stops assigning. Idempotent."""
        await self._tasks.close()
        await self.rules.close()

    async def run(self) -> None:
        """Rebalances until canceled."""
        compared = self._now()
        while True:
            await asyncio.sleep(min(STEP_S, self._config.shedding.interval_min * 60))
            if self._now() - compared >= self._config.shedding.interval_min * 60:
                await self.compare()
                compared = self._now()

    # -- input

    def report(self, report: LoadReport) -> None:
        """Accepts a load report; reports of unregistered brokers or earlier runs are ignored."""
        if self._parts.directory.is_current(report.broker_id, report.run):
            self.load.report(report, self._now())

    def owner_changed(self, namespace: NamespaceName, bundle: BundleRange, owned: Owned | None) -> None:
        """Records a change of a bundle's owner in metadata."""
        self.counts.changed((namespace, bundle), None if owned is None else (owned.broker_id, owned.run))

    # -- assignment

    async def assign(self, bundle: Bundle) -> Run:
        """Assigns the bundle unless it has an owner; returns the owner. Concurrent callers share one
        assignment.

        Raises NamespaceNotFound, ServiceNotReady when no broker takes it, TooManyRequests, MetadataError.
        """
        running = self._assigning.get(bundle)
        if running is None:
            owned = self._owner(bundle)
            if owned is not None:
                return owned
            if len(self._assigning) >= ASSIGNMENTS_MAX:
                raise TooManyRequests(
                    f"{ASSIGNMENTS_MAX} bundle assignments are already in progress; look it up again"
                )
            running = self._tasks.spawn(self._outcome(bundle), f"assign {bundle[1]}")
            self._assigning[bundle] = running
            running.add_done_callback(lambda _: self._assigning.pop(bundle))
        await asyncio.wait((running,))
        if running.cancelled():
            raise ServiceNotReady("this broker is no longer the leader; look it up again")
        found = running.result()
        if isinstance(found, MagnetarError):
            raise type(found)(str(found))
        return found

    def choose(self, bundle: Bundle, excepted: Collection[str] = ()) -> Run:
        """Chooses the next owner of the bundle, which counts for it from now on. Raises ServiceNotReady."""
        self.counts.forget_expected(self._now())
        registered = self._parts.directory.by_id()
        candidates = self._candidates.of(bundle[0], registered, self._now())
        if excepted or self._silent or self.rules.isolation:
            found = self._choose_of(bundle[0], candidates, registered, excepted)
        else:
            found = choose(candidates, self._config.placement)
        if found is None:
            raise ServiceNotReady(
                f"no broker may take bundle {bundle[1]} of {bundle[0]}: {len(registered)} running, "
                f"{sum(each.draining for each in registered.values())} of them draining; check the isolation "
                "policies of the cluster"
            )
        run = found, registered[found].run
        self.counts.expect(bundle, run, self._now())
        self.load.given(bundle, found, self._now())
        return run

    def explain(self, bundle: Bundle) -> tuple[list[Reason], list[Reason], BundlePlacement]:
        """Returns why the bundle is at its broker, what would move it, and the figures of both. Assigns
        nothing.
        """
        now, registered = self._now(), self._parts.directory.by_id()
        candidates = self._candidates.of(bundle[0], registered, now)
        allowed = self.rules.isolation.allowed(bundle[0], {each.broker_id: each.usage for each in candidates})
        owned = self._parts.owners.owner_of(*bundle)
        if owned is not None and not self._parts.directory.is_current(owned.broker_id, owned.run):
            owned = None
        steady = {each.broker_id: each.steady for each in self.load.brokers(now) if not each.draining}
        placement = BundlePlacement(
            owner=owned,
            choice=choose(candidates, self._config.placement, lambda each: each.broker_id in allowed),
            candidates=candidates,
            allowed=frozenset(allowed),
            steady_percent=steady,
            limit_percent=self._shedder.limit(steady.values()),
            pinned=self.rules.has_policies(bundle[0]) and not self._config.shedding.with_policies,
            rests_s=0.0 if owned is None else self._shedder.rests_s(bundle, owned.broker_id, now),
        )
        return why_here(str(bundle[1]), placement), what_would_move(placement, self._config), placement

    # -- rebalancing

    async def compare(self) -> None:
        """Compares the load of all brokers once and moves bundles as needed."""
        parts, now = self._parts, self._now()
        registered = parts.directory.all()
        self.load.keep({each.broker_id: each.run for each in registered})
        self.counts.forget_expected(now)
        if not (self._config.enabled and self._config.shedding.enabled):
            return
        draining = {each.broker_id for each in registered if each.draining}
        taking_part = [each.broker_id for each in registered if each.broker_id not in draining]
        if (
            not self.load.reported(taking_part)
            and now - self._began < 2 * 60 * self._config.shedding.interval_min
        ):
            return
        brokers = [each for each in self.load.brokers(now) if each.broker_id not in draining]
        moves = self._shedder.moves(brokers, now, self._may_move())
        by_giver = {
            giver: list(group)
            for giver, group in groupby(
                sorted(moves, key=lambda each: each.from_broker), lambda each: each.from_broker
            )
        }
        await asyncio.gather(*(self._move_all(group) for group in by_giver.values()))

    # -- inside

    def _now(self) -> float:
        return self._parts.clock.monotonic()

    def _owner(self, bundle: Bundle) -> Run | None:
        """Returns the running owner of the bundle, if known."""
        owned = self._parts.owners.owner_of(*bundle)
        if owned is None or not self._parts.directory.is_current(owned.broker_id, owned.run):
            return None
        return owned.broker_id, owned.run

    async def _outcome(self, bundle: Bundle) -> Run | MagnetarError:
        try:
            found = await self._assign(bundle)
        except MagnetarError as error:
            ASSIGNED.labels("failed").inc()
            return error
        ASSIGNED.labels("taken").inc()
        return found

    async def _assign(self, bundle: Bundle) -> Run:
        namespace, of = bundle
        excepted: set[str] = set()
        for attempt in range(1, TRIES_MAX + 1):
            broker_id, run = self.choose(bundle, excepted)
            broker = self._parts.directory.get(broker_id)
            try:
                if broker is None or broker.run != run:
                    raise ServiceNotReady(f"broker {broker_id} has stopped")
                taken = await self._parts.take(broker, TakeRequest(namespace=str(namespace), bundle=str(of)))
            except BaseException as error:
                self.counts.expect_no_more(bundle)
                self.load.not_given(bundle, broker_id)
                again = isinstance(error, ServiceNotReady | TooManyRequests | MetadataError)
                if isinstance(error, NamespaceNotFound) or not again or attempt == TRIES_MAX:
                    raise
                if broker is not None and isinstance(error, BrokerUnreachable):
                    self._silent.note(broker)
                log.warning("bundle was not taken", bundle=str(of), broker=broker_id, reason=str(error))
                excepted.add(broker_id)
            else:
                if taken.broker_id != broker_id:
                    self.counts.expect_no_more(bundle)
                    self.load.not_given(bundle, broker_id)
                return taken.broker_id, taken.run
        raise AssertionError("the last attempt returns or raises")

    def _choose_of(
        self,
        namespace: NamespaceName,
        candidates: Sequence[Candidate],
        registered: Mapping[str, BrokerRegistration],
        excepted: Collection[str],
    ) -> str | None:
        """Chooses where not every broker may, or should, be given the bundle."""
        usage = {each.broker_id: each.usage for each in candidates}
        may = self.rules.isolation.allowed(namespace, usage) - set(excepted)
        awake = may - {each.broker_id for each in registered.values() if each in self._silent}
        found = choose(candidates, self._config.placement, lambda each: each.broker_id in awake)
        return found or choose(candidates, self._config.placement, lambda each: each.broker_id in may)

    def _may_move(self) -> Callable[[Bundle, str], bool]:
        """Returns a predicate: whether a bundle may move to a broker under the present rules and load."""
        usage = self._usage()
        allowed: dict[NamespaceName, Collection[str]] = {}

        def may_move(bundle: Bundle, to: str) -> bool:
            namespace = bundle[0]
            if namespace not in allowed:
                fixed = self.rules.has_policies(namespace) and not self._config.shedding.with_policies
                allowed[namespace] = () if fixed else self.rules.isolation.allowed(namespace, usage)
            return to in allowed[namespace] and not self._closer_to_its_group(bundle, to)

        return may_move

    def _closer_to_its_group(self, bundle: Bundle, to: str) -> bool:
        """Whether the target broker has more namespaces of the bundle's anti-affinity group."""
        groups = [self.counts.of_namespace(each) for each in self.rules.others_of_group(bundle[0])]
        if not groups:
            return False
        owner, taker = self._owner(bundle), self._parts.directory.get(to)
        there = 0 if taker is None else sum((to, taker.run) in group for group in groups)
        return there > sum(owner in group for group in groups)

    def _usage(self) -> dict[str, float]:
        now = self._now()
        brokers = self._parts.directory.all()
        return {each.broker_id: self.load.usage_of(each.broker_id, now)[0] for each in brokers}

    async def _move_all(self, moves: list[Move]) -> None:
        """Performs the moves of one broker, one after the other."""
        gave = 0
        for move in moves:
            self.load.moved(move.bundle, move.share, move.from_broker, move.to_broker)
            try:
                await self._move(move)
            except MagnetarError as error:
                FAILED_MOVES.inc()
                self.load.moved(move.bundle, move.share, move.to_broker, move.from_broker)
                log.warning("bundle was not moved", **_told(move), reason=str(error))
            else:
                gave += 1
                MOVED_BUNDLES.inc()
                log.info("bundle moved because of load", **_told(move))
        if gave:
            GIVING_BROKERS.inc()

    async def _move(self, move: Move) -> None:
        namespace, of = move.bundle
        giver, owner = self._parts.directory.get(move.from_broker), self._owner(move.bundle)
        if giver is None or owner is None or owner[0] != move.from_broker:
            raise ServiceNotReady(f"{move.from_broker} no longer owns it")
        request = UnloadRequest(namespace=str(namespace), bundle=str(of), to_broker_id=move.to_broker)
        await self._parts.unload(giver, request)


def _told(move: Move) -> dict[str, str | float]:
    namespace, of = move.bundle
    return {
        "namespace": str(namespace),
        "bundle": str(of),
        "from_broker": move.from_broker,
        "to_broker": move.to_broker,
        "percent": round(move.share, 1),
    }
