"""The brokers among which the leader chooses, with their figures, kept from one choice to the next.

Between two choices the figures of few brokers change, so only theirs are looked up again: with a thousand
brokers, looking up all of them for each of many bundles would keep the leader busy for minutes.
"""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.broker.load.cluster_load import ClusterLoad
from magnetar.broker.load.owner_counts import OwnerCounts, Run
from magnetar.broker.load.placement import Candidate
from magnetar.broker.load.placement_rules import PlacementRules
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.namespace_name import NamespaceName


class Candidates:
    """All registered brokers as candidates; synchronous, time is a parameter."""

    def __init__(self, load: ClusterLoad, counts: OwnerCounts, rules: PlacementRules) -> None:
        self._load = load
        self._counts = counts
        self._rules = rules
        self._registered: Mapping[str, BrokerRegistration] = {}
        self._domains: Mapping[str, str] = {}
        self._found: list[Candidate] = []
        """Without figures of a namespace, in the order of ids."""
        self._runs: list[Run] = []
        self._at: dict[str, int] = {}
        """Place of each broker in both lists."""

    def of(
        self, namespace: NamespaceName, registered: Mapping[str, BrokerRegistration], now: float
    ) -> list[Candidate]:
        """Returns the candidates for a bundle of the namespace. `registered` is another object after each
        change of the registrations.
        """
        self._refresh(registered, now)
        of_namespace = self._counts.of_namespace(namespace)
        groups = [self._counts.of_namespace(each) for each in self._rules.others_of_group(namespace)]
        found = self._found.copy()
        for run in {*of_namespace, *(run for group in groups for run in group)}:
            at = self._at.get(run[0])
            if at is not None and self._runs[at] == run:
                found[at] = _with(found[at], of_namespace.get(run, 0), sum(run in each for each in groups))
        return found

    def _refresh(self, registered: Mapping[str, BrokerRegistration], now: float) -> None:
        self._load.forget_pending(now)
        changed = self._load.take_changed()
        changed.update(broker_id for broker_id, _ in self._counts.take_changed())
        if registered is not self._registered or self._rules.domains is not self._domains:
            self._registered, self._domains = registered, self._rules.domains
            self._runs = [(broker_id, each.run) for broker_id, each in registered.items()]
            self._at = {broker_id: at for at, broker_id in enumerate(registered)}
            self._found = [self._candidate(run, now) for run in self._runs]
            return
        for broker_id in changed:
            at = self._at.get(broker_id)
            if at is not None:
                self._found[at] = self._candidate(self._runs[at], now)

    def _candidate(self, run: Run, now: float) -> Candidate:
        broker_id = run[0]
        usage, topics = self._load.usage_of(broker_id, now)
        return Candidate(
            broker_id,
            usage=usage,
            topics=topics,
            bundles=self._counts.bundles(run),
            draining=self._registered[broker_id].draining,
            domain=self._domains.get(broker_id, ""),
        )


def _with(one: Candidate, of_namespace: int, of_group: int) -> Candidate:
    return Candidate(
        one.broker_id,
        one.usage,
        one.topics,
        one.bundles,
        of_namespace,
        one.draining,
        of_group,
        one.domain,
    )
