"""Who decides who owns a bundle that nobody owns: the leader, and whoever is asked while there is none."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from magnetar.broker.control.bundle_assignment import Assigning
from magnetar.common.control.control_errors import AnotherRun, BrokerUnreachable, NobodyLeads
from magnetar.common.control.control_pb2 import AssignRequest, AssignResponse
from magnetar.common.control.unresponsive_brokers import SILENT_S
from magnetar.common.errors import InvalidName, ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration, Leader, encode

from tests.unit.broker.ownership.world import (
    BUNDLES,
    FIRST,
    KEYS,
    NAMESPACE,
    SimBroker,
    World,
    in_a_cluster,
    told,
)

ASSIGN = AssignRequest(namespace=str(NAMESPACE), bundle=str(FIRST))
CHOOSE = AssignRequest(
    namespace=str(NAMESPACE), bundle=str(FIRST), choose_only=True, except_broker_ids=["a:8080"]
)


@dataclass
class FakeLeader:
    """Leads, or not; gives every bundle to one broker."""

    leads: bool = False
    assigned: list[Any] = field(default_factory=list)

    async def assign(self, bundle: Any) -> tuple[str, int]:
        self.assigned.append(bundle)
        return "c:8080", 3

    def choose(self, bundle: Any, excepted: Any) -> tuple[str, int]:
        self.assigned.append((bundle, list(excepted)))
        return "d:8080", 4


@dataclass
class FakeClient:
    """Answers calls to other brokers, or fails."""

    answer: AssignResponse | Exception
    calls: list[tuple[str, AssignRequest]] = field(default_factory=list)

    async def call(self, broker: BrokerRegistration, method: Any, request: Any, **_: Any) -> AssignResponse:
        self.calls.append((broker.broker_id, request))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def assigning(
    broker: SimBroker, *, leads: bool = False, answer: AssignResponse | Exception | None = None
) -> tuple[Assigning, FakeLeader, FakeClient]:
    leader, client = FakeLeader(leads), FakeClient(answer or AssignResponse(broker_id="c:8080", run=3))
    return Assigning(broker.cluster, cast(Any, leader), cast(Any, client)), leader, client


async def led_by(world: World, leader: SimBroker) -> None:
    """Metadata says that it leads, and where it is called."""

    def fill(registration: BrokerRegistration) -> None:
        registration.control_address = "127.0.0.1:1"

    await leader.cluster.register(fill)
    await world.store.put(KEYS.broker_leader, encode(Leader(id=leader.name)))
    await told()


def test_leader_decides() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        made, leader, client = assigning(a, leads=True)
        assert await made.assign(NAMESPACE, FIRST) == "c:8080"
        assert await made.answer(CHOOSE) == AssignResponse(broker_id="d:8080", run=4)
        assert leader.assigned == [(NAMESPACE, FIRST), ((NAMESPACE, FIRST), ["a:8080"])]
        assert client.calls == []
        assert a.owns == []

    in_a_cluster(body)


def test_follower_forwards_to_the_leader_and_marks_the_request() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await led_by(world, b)
        made, _, client = assigning(a)
        assert await made.assign(NAMESPACE, FIRST) == "c:8080"
        ((asked, request),) = client.calls
        assert asked == "b:8080"
        assert (request.namespace, request.bundle, request.passed_on) == (str(NAMESPACE), str(FIRST), True)
        assert a.owns == []

    in_a_cluster(body)


@pytest.mark.parametrize(
    "error", [BrokerUnreachable("away"), AnotherRun("another"), NobodyLeads("not any more")]
)
def test_a_leader_that_does_not_answer_is_not_waited_for(error: Exception) -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await led_by(world, b)
        made, *_ = assigning(a, answer=error)
        assert await made.assign(NAMESPACE, FIRST) == "a:8080"
        assert a.owns == [FIRST]
        with pytest.raises(ServiceNotReady, match="there is no leader to choose"):
            await made.answer(CHOOSE)

    in_a_cluster(body)


def test_a_leader_that_stands_still_is_waited_for_once_in_a_while() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await led_by(world, b)
        made, _, client = assigning(a, answer=BrokerUnreachable("no answer"))
        for bundle in BUNDLES:
            assert await made.assign(NAMESPACE, bundle) == "a:8080"
        assert len(client.calls) == 1
        await asyncio.sleep(SILENT_S)
        with pytest.raises(NobodyLeads):
            await made.answer(CHOOSE)
        assert len(client.calls) == 2

    in_a_cluster(body)


def test_leader_decision_holds_even_if_it_is_a_refusal() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await led_by(world, b)
        made, *_ = assigning(a, answer=ServiceNotReady("no broker may take it"))
        with pytest.raises(ServiceNotReady, match="no broker may take it"):
            await made.assign(NAMESPACE, FIRST)
        assert a.owns == []

    in_a_cluster(body)


def test_without_a_leader_who_is_asked_takes_the_bundle() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        made, _, client = assigning(a)
        assert await made.assign(NAMESPACE, FIRST) == "a:8080"
        other, *_ = assigning(b)
        assert await other.assign(NAMESPACE, FIRST) == "a:8080"
        assert client.calls == []

    in_a_cluster(body)


def test_forwarded_request_is_decided_and_never_forwarded_again() -> None:
    async def body(world: World) -> None:
        a, b = await world.started("a:8080", "b:8080")
        await led_by(world, b)
        made, _, client = assigning(a)
        passed_on = AssignRequest(namespace=str(NAMESPACE), bundle=str(FIRST), passed_on=True)
        assert (await made.answer(passed_on)).broker_id == "a:8080"
        assert client.calls == []

    in_a_cluster(body)


def test_a_broker_that_is_said_to_lead_and_does_not_know_it_decides_itself() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        await led_by(world, a)
        made, _, client = assigning(a)
        assert await made.assign(NAMESPACE, FIRST) == "a:8080"
        assert client.calls == []

    in_a_cluster(body)


def test_a_bundle_that_cannot_be_is_refused() -> None:
    async def body(world: World) -> None:
        (a,) = await world.started("a:8080")
        made, *_ = assigning(a)
        for namespace, bundle in (("x", str(FIRST)), (str(NAMESPACE), "0x0_0x1")):
            with pytest.raises(InvalidName):
                await made.answer(AssignRequest(namespace=namespace, bundle=bundle))

    in_a_cluster(body)
