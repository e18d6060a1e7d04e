"""Leader election: this broker as a candidate, and as the leader for as long as it holds the lease."""

from __future__ import annotations

from collections.abc import Collection

from magnetar.broker.load.explanation import BundlePlacement, what_would_split
from magnetar.broker.load.leader_term import LeaderParts, Leading
from magnetar.broker.load.metrics import IS_LEADER
from magnetar.broker.load.owner_counts import Run
from magnetar.broker.reason import Reason
from magnetar.common.cluster.bundle_owners import Bundle, Owned
from magnetar.common.control.control_pb2 import BrokerLoad, Load, LoadReport
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.election import Candidate, Leadership
from magnetar.common.metadata.store import Session
from magnetar.common.metadata.values import Leader
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName


class LoadLeader:
    """The leader role of one broker run. `run` until canceled; the other methods serve requests to the
    leader.
    """

    def __init__(self, parts: LeaderParts, session: Session, candidate: Leader) -> None:
        """`session` is the broker's; leadership ends with it. `candidate` identifies this broker."""
        self._term: Leading | None = None
        self._parts = parts

        async def current() -> Session:
            return session

        self._candidate = Candidate(
            parts.metadata, parts.keys.broker_leader, current, parts.clock, candidate, self._lead
        )
        parts.owners.on_change(self._owner_changed)

    @property
    def leads(self) -> bool:
        """Whether this broker is the leader, to its knowledge."""
        return self._term is not None

    async def run(self) -> None:
        """Takes part in elections and lead, until canceled."""
        await self._candidate.run()

    def report(self, report: LoadReport) -> None:
        """Accepts a broker's load report. Raises ServiceNotReady when this broker does not lead."""
        self._leading().report(report)

    def loads(self) -> list[BrokerLoad]:
        """Returns the last load of each broker. Raises ServiceNotReady when this broker does not lead."""
        return [
            BrokerLoad(report=report, age_ms=int(age_s * 1000))
            for report, age_s in self._leading().load.reports(self._parts.clock.monotonic())
        ]

    async def assign(self, bundle: Bundle) -> Run:
        """Assigns the bundle unless it has an owner; returns the owner. Raises as LeaderTerm.assign."""
        return await self._leading().assign(bundle)

    def choose(self, bundle: Bundle, excepted: Collection[str]) -> Run:
        """Chooses the next owner of the bundle, except these brokers. Raises ServiceNotReady."""
        return self._leading().choose(bundle, excepted)

    def explain(self, bundle: Bundle) -> tuple[list[Reason], list[Reason], BundlePlacement]:
        """Explains the place of a bundle as `Leading.explain`. Raises ServiceNotReady when this broker does
        not lead.
        """
        return self._leading().explain(bundle)

    def explain_split(self, load: Load, namespace_bundles: int) -> list[Reason]:
        """Returns what would split an owned bundle with this load; owners split, so any broker answers."""
        return what_would_split(load, namespace_bundles, self._parts.config)

    # -- inside

    def _leading(self) -> Leading:
        if self._term is None:
            raise ServiceNotReady("this broker is not the leader; retry with the current leader")
        return self._term

    async def _lead(self, _leadership: Leadership) -> None:
        term = Leading(self._parts)
        try:
            await term.start()
            self._term = term
            IS_LEADER.set(1)
            await term.run()
        finally:
            self._term = None
            IS_LEADER.set(0)
            await term.close()

    def _owner_changed(self, namespace: NamespaceName, bundle: BundleRange, owned: Owned | None) -> None:
        if self._term is not None:
            self._term.owner_changed(namespace, bundle, owned)
