"""The candidates that the leader keeps from one choice to the next are those that it would look up anew."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

import pytest
from magnetar.broker.load.candidates import Candidates
from magnetar.broker.load.cluster_load import ClusterLoad
from magnetar.broker.load.config import LoadConfig
from magnetar.broker.load.load_report import OwnedLoad, Usage, make_report
from magnetar.broker.load.owner_counts import OwnerCounts
from magnetar.broker.load.placement import Candidate
from magnetar.broker.load.placement_rules import PlacementRules
from magnetar.common.cluster.bundle_owners import Bundle
from magnetar.common.control.control_pb2 import Load, LoadReport
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.namespace_name import NamespaceName

from tests.unit.broker.load.clusters import bundle

CONFIG = LoadConfig()
GROUP = [NamespaceName.parse(f"t/n{number}") for number in range(2)]


class Rules:
    """The first two namespaces are a group; domains change now and then."""

    def __init__(self) -> None:
        self.domains: dict[str, str] = {}

    def others_of_group(self, namespace: NamespaceName) -> set[NamespaceName]:
        return set(GROUP) - {namespace} if namespace in GROUP else set()


class Parts:
    """The parts that candidates are made of, and random changes of them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.load, self.counts = ClusterLoad(CONFIG), OwnerCounts()
        self.rules = Rules()
        self.now = 0.0
        self.registered: dict[str, BrokerRegistration] = {}
        self.kept = self.candidates()

    def candidates(self) -> Candidates:
        return Candidates(self.load, self.counts, cast("PlacementRules", self.rules))

    def of(self, candidates: Candidates, number: int) -> list[Candidate]:
        return candidates.of(bundle(number)[0], self.registered, self.now)

    def happen(self) -> None:
        operations: list[Callable[[], None]] = [self.register, self.report, self.give, self.own, self.move]
        operations += [self.refuse, self.expire, self.withdraw, self.set_domains, self.keep]
        self.rng.choice(operations)()

    def register(self) -> None:
        broker_id = self.broker()
        one = BrokerRegistration(
            broker_id=broker_id, run=self.rng.randrange(3), draining=self.rng.random() < 0.2
        )
        changed = {**self.registered, broker_id: one}
        if self.rng.random() < 0.3:
            del changed[broker_id]
        self.registered = dict(sorted(changed.items()))

    def report(self) -> None:
        self.load.report(self.one_report(), self.now)

    def one_report(self) -> LoadReport:
        broker_id = self.broker()
        rates = [
            OwnedLoad(*self.bundle(), 1, Load(message_rate_in=self.rng.random(), topics=1)) for _ in "ab"
        ]
        usage = Usage(self.rng.uniform(0, 100), 1, 2)
        return make_report(
            broker_id, self.run_of(broker_id), usage, rates, bundles_max=9, taken_ms=0, draining=False
        )

    def give(self) -> None:
        one, broker_id = self.bundle(), self.broker()
        self.counts.expect(one, (broker_id, self.run_of(broker_id)), self.now)
        self.load.given(one, broker_id, self.now)

    def refuse(self) -> None:
        self.load.not_given(self.bundle(), self.broker())

    def withdraw(self) -> None:
        self.counts.expect_no_more(self.bundle())

    def own(self) -> None:
        broker_id = self.broker()
        owner = None if self.rng.random() < 0.2 else (broker_id, self.run_of(broker_id))
        self.counts.changed(self.bundle(), owner)

    def move(self) -> None:
        self.load.moved(self.bundle(), self.rng.uniform(0, 9), self.broker(), self.broker())

    def expire(self) -> None:
        self.now += self.rng.choice([1.0, 20.0, 61.0])
        self.counts.forget_expected(self.now)

    def set_domains(self) -> None:
        self.rules.domains = {self.broker(): "rack"}

    def keep(self) -> None:
        self.load.keep({each.broker_id: each.run for each in self.registered.values()})

    def run_of(self, broker_id: str) -> int:
        found = self.registered.get(broker_id)
        return 0 if found is None else found.run

    def broker(self) -> str:
        return f"b{self.rng.randrange(5)}"

    def bundle(self) -> Bundle:
        return bundle(self.rng.randrange(200))


@pytest.mark.seeds(20, full=100)
def test_what_is_kept_is_what_would_be_looked_up(seed: int) -> None:
    parts = Parts(seed)
    for _ in range(300):
        parts.happen()
        number = parts.rng.randrange(200)
        kept = parts.of(parts.kept, number)
        assert kept == parts.of(parts.candidates(), number)
        assert [each.broker_id for each in kept] == list(parts.registered)


def test_a_choice_looks_up_only_the_brokers_that_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(1)
    ids = [f"b{number:03}" for number in range(200)]
    parts.registered = {each: BrokerRegistration(broker_id=each, run=1) for each in ids}
    asked: list[str] = []
    usage_of = parts.load.usage_of

    def noted(broker_id: str, now: float) -> tuple[float, int]:
        asked.append(broker_id)
        return usage_of(broker_id, now)

    monkeypatch.setattr(parts.load, "usage_of", noted)
    assert len(parts.of(parts.kept, 0)) == len(ids) == len(asked)
    asked.clear()
    for number, broker_id in enumerate(ids[:50]):
        parts.counts.expect(bundle(number), (broker_id, 1), parts.now)
        parts.load.given(bundle(number), broker_id, parts.now)
        parts.of(parts.kept, number)
    assert sorted(asked) == ids[:50]
