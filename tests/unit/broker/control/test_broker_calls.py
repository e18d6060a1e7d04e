"""Calls to a broker by other brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from magnetar.broker.control import broker_calls
from magnetar.broker.control.broker_calls import BrokerCalls
from magnetar.common.cluster.bundle_owners import Owned
from magnetar.common.control.control_pb2 import (
    BrokerLoad,
    LoadReport,
    LoadsRequest,
    MergeRequest,
    NonPersistentTopicsRequest,
    ReportRequest,
    SplitRequest,
    TakeRequest,
    UnloadRequest,
)
from magnetar.common.errors import InvalidName
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.ownership.world import FIRST, NAMESPACE, SimBroker, World, in_a_cluster, topic_in

NAMES = sorted(f"non-persistent://{NAMESPACE}/t-{number}" for number in range(20))
NEXT = Owned("b:8080", 2, 7, 0)


@dataclass
class FakeMover:
    """Writes down what it is asked to do."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)
    next_owner: Owned | None = NEXT

    async def unload(self, namespace: NamespaceName, bundle: BundleRange, to: str = "") -> Owned | None:
        self.asked.append(("unload", bundle, to))
        return self.next_owner

    async def split(
        self,
        namespace: NamespaceName,
        bundle: BundleRange,
        boundaries: Sequence[int] = (),
        *,
        algorithm: str = "",
        unload: bool = False,
    ) -> list[BundleRange]:
        self.asked.append(("split", bundle, boundaries, algorithm, unload))
        return [bundle]

    async def merge(self, namespace: NamespaceName, bundle: BundleRange) -> Owned:
        self.asked.append(("merge", bundle))
        return NEXT

    def taken(
        self, namespace: NamespaceName, bundle: BundleRange, topics: Sequence[str], written: int = 0
    ) -> None:
        self.asked.append(("taken", bundle, topics))


@dataclass
class FakeParts:
    """The leader, and the topics."""

    reports: list[LoadReport] = field(default_factory=list)

    def report(self, report: LoadReport) -> None:
        self.reports.append(report)

    def loads(self) -> list[BrokerLoad]:
        return [BrokerLoad(report=each, age_ms=5) for each in self.reports]

    async def list(self, namespace: NamespaceName, *, persistent: bool, system_too: bool) -> list[str]:
        assert (namespace, persistent, system_too) == (NAMESPACE, False, True)
        return NAMES


def calls_of(broker: SimBroker) -> tuple[BrokerCalls, FakeMover, FakeParts]:
    mover, parts = FakeMover(), FakeParts()
    nothing = cast(Any, None)
    calls = BrokerCalls(broker.cluster, nothing, cast(Any, parts), cast(Any, parts), mover, nothing)
    return calls, mover, parts


def take_request(**fields: Any) -> TakeRequest:
    return TakeRequest(namespace=str(NAMESPACE), bundle=str(FIRST), **fields)


def test_broker_takes_an_unowned_bundle_or_names_the_faster_owner() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        taken = await calls_of(a)[0].take(take_request())
        owner = world.owner(FIRST)
        assert owner is not None
        assert (taken.broker_id, taken.run, taken.version) == ("a:8080", owner.run, owner.version)
        calls, mover, _ = calls_of(b)
        assert await calls.take(take_request(topics=["t"])) == taken
        assert mover.asked == []

    in_a_cluster(body)


def test_a_broker_takes_what_is_handed_over_with_its_topics() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        given = await a.take(FIRST)
        calls, mover, _ = calls_of(b)
        async with a.ownership.giving(NAMESPACE, FIRST):
            topic = topic_in(FIRST).full
            request = take_request(
                from_broker_id="a:8080", from_run=given.run, from_version=given.version, topics=[topic]
            )
            assert (await calls.take(request)).broker_id == "b:8080"
        assert mover.asked == [("taken", FIRST, [topic])]

    in_a_cluster(body)


def test_unloading_splitting_and_merging_are_the_movers() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        calls, mover, _ = calls_of(a)
        request = UnloadRequest(namespace=str(NAMESPACE), bundle=str(FIRST), to_broker_id="b:8080")
        unloaded = await calls.unload(request)
        assert (unloaded.broker_id, unloaded.run, unloaded.version) == ("b:8080", 2, 7)
        mover.next_owner = None
        assert (await calls.unload(request)).broker_id == ""
        split = await calls.split(
            SplitRequest(
                namespace=str(NAMESPACE), bundle=str(FIRST), boundaries=[5], algorithm="x", unload=True
            )
        )
        assert list(split.bundles) == [str(FIRST)]
        assert mover.asked[1:] == [("unload", FIRST, "b:8080"), ("split", FIRST, [5], "x", True)]
        merged = await calls.merge(MergeRequest(namespace=str(NAMESPACE), bundle=str(FIRST)))
        assert (merged.version, mover.asked[-1]) == (7, ("merge", FIRST))
        with pytest.raises(InvalidName):
            await calls.unload(UnloadRequest(namespace="x", bundle=str(FIRST)))

    in_a_cluster(body)


def test_reports_go_to_the_leader_and_come_from_it() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        calls, _, parts = calls_of(a)
        await calls.report(ReportRequest(report=LoadReport(broker_id="b:8080")))
        assert [each.broker_id for each in parts.reports] == ["b:8080"]
        assert (await calls.loads(LoadsRequest())).loads[0].report.broker_id == "b:8080"

    in_a_cluster(body)


def test_non_persistent_topics_are_named_in_pages_of_a_bundle_or_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        calls, *_ = calls_of(a)

        async def pages(**fields: Any) -> list[list[str]]:
            found: list[list[str]] = []
            more = True
            while more:
                after = found[-1][-1] if found else ""
                request = NonPersistentTopicsRequest(namespace=str(NAMESPACE), after=after, **fields)
                page = await calls.non_persistent_topics(request)
                found.append(list(page.topics))
                more = page.more
            return found

        assert await pages() == [NAMES]
        assert await pages(limit=15) == [NAMES[:15], NAMES[15:]]
        within = [name for name in NAMES if TopicName.parse(name).hash in FIRST]
        assert 0 < len(within) < 20
        assert await pages(bundle=str(FIRST)) == [within]
        monkeypatch.setattr(broker_calls, "NAMES_BYTES_MAX", 3 * len(NAMES[0]) + 5)
        small = await pages()
        assert [name for page in small for name in page] == NAMES
        assert max(map(len, small)) == 3

    in_a_cluster(body)
