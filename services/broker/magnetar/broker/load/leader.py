"""This broker as one that may lead: it stands for the office, and leads for as long as it holds it."""

from __future__ import annotations

from collections.abc import Collection

from magnetar.broker.load.leader_term import LeaderParts, Leading
from magnetar.broker.load.metrics import IS_LEADER
from magnetar.broker.load.owner_counts import Run
from magnetar.common.cluster.bundle_owners import Bundle, Owned
from magnetar.common.control.control_pb2 import BrokerLoad, LoadReport
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.election import Candidate, Leadership
from magnetar.common.metadata.store import Session
from magnetar.common.metadata.values import Leader
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName


class LoadLeader:
    """One for a run of the broker. `run` until canceled; the rest is what others ask of the leader."""

    def __init__(self, parts: LeaderParts, session: Session, candidate: Leader) -> None:
        """`session` is the broker's: with it the office ends. `candidate` says who this broker is."""
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
        """Whether this broker leads now, as far as it knows."""
        return self._term is not None

    async def run(self) -> None:
        """Stand for the office and lead, again and again, until canceled."""
        await self._candidate.run()

    def report(self, report: LoadReport) -> None:
        """A broker's load. Raises ServiceNotReady where this broker does not lead."""
        self._leading().report(report)

    def loads(self) -> list[BrokerLoad]:
        """The last report of each broker. Raises ServiceNotReady where this broker does not lead."""
        return [
            BrokerLoad(report=report, age_ms=int(age_s * 1000))
            for report, age_s in self._leading().load.reports(self._parts.clock.monotonic())
        ]

    async def assign(self, bundle: Bundle) -> Run:
        """Have the bundle owned, unless it is; returns who owns it. Raises as Leading.assign."""
        return await self._leading().assign(bundle)

    def choose(self, bundle: Bundle, excepted: Collection[str]) -> Run:
        """Who is to have the bundle next, if not one of these. Raises ServiceNotReady."""
        return self._leading().choose(bundle, excepted)

    # -- inside

    def _leading(self) -> Leading:
        if self._term is None:
            raise ServiceNotReady("this broker does not lead; ask the leader, or again")
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
