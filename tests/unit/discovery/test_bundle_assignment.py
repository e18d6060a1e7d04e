"""Whom discovery asks to have a bundle owned."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from magnetar.common.control.control_errors import AnotherRun, BrokerUnreachable
from magnetar.common.control.control_pb2 import AssignRequest, AssignResponse
from magnetar.common.errors import NamespaceNotFound, ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration, Leader
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.discovery.bundle_assignment import AskingBrokers
from magnetar.discovery.live_brokers import LiveBrokers

NAMESPACE = NamespaceName.parse("public/default")
BUNDLE = BundleRange.parse("0x00000000_0x40000000")


@dataclass
class Cluster:
    """A directory and the control plane of as many brokers as have an answer."""

    answers: dict[str, str | Exception]
    draining: tuple[str, ...] = ()
    leader: Leader | None = None
    asked: list[str] = field(default_factory=list)
    requests: list[AssignRequest] = field(default_factory=list)

    def all(self) -> list[BrokerRegistration]:
        return [
            BrokerRegistration(broker_id=name, draining=name in self.draining, control_address=f"{name}:1")
            for name in sorted(self.answers)
        ]

    def get(self, broker_id: str) -> BrokerRegistration | None:
        return next((each for each in self.all() if each.broker_id == broker_id), None)

    async def call(
        self, broker: BrokerRegistration, method: Any, request: AssignRequest, *, deadline_s: float
    ) -> AssignResponse:
        assert deadline_s < 10, "a client waits"
        self.asked.append(broker.broker_id)
        self.requests.append(AssignRequest.FromString(request.SerializeToString()))
        answer = self.answers[broker.broker_id]
        if isinstance(answer, Exception):
            raise answer
        return AssignResponse(broker_id=answer)

    def assign(self, first: int = 0) -> str:
        return self.assign_all(1, first)[0]

    def assign_all(self, times: int, first: int = 0) -> list[str]:
        """So many times, one after the other."""
        stand_in = cast(Any, self)

        async def ask() -> list[str]:
            asking = AskingBrokers(stand_in, LiveBrokers(stand_in, first), stand_in)
            return [await asking.assign(NAMESPACE, BUNDLE) for _ in range(times)]

        return asyncio.run(ask())


def test_the_leader_is_asked_where_there_is_one() -> None:
    cluster = Cluster({"a": "x", "b": "y", "c": "z"}, leader=Leader(id="c"))
    assert cluster.assign() == "z"
    assert cluster.asked == ["c"]
    assert cluster.requests == [AssignRequest(namespace="public/default", bundle="0x00000000_0x40000000")]


def test_without_a_leader_any_broker_is_asked() -> None:
    assert [Cluster({"a": "x", "b": "y"}).assign(first) for first in range(3)] == ["x", "y", "x"]


@pytest.mark.parametrize("error", [BrokerUnreachable("it is gone"), AnotherRun("it started again")])
def test_unresponsive_broker_is_replaced_by_another(error: Exception) -> None:
    cluster = Cluster({"a": error, "b": "y", "c": error}, leader=Leader(id="c"))
    assert cluster.assign() == "y"
    assert cluster.asked == ["c", "a", "b"]


def test_paused_leader_delays_one_request_only() -> None:
    cluster = Cluster({"a": "x", "b": "y", "c": BrokerUnreachable("no answer")}, leader=Leader(id="c"))
    assert cluster.assign_all(3) == ["x", "y", "x"]
    assert cluster.asked == ["c", "a", "b", "a"]
    assert [each.passed_on for each in cluster.requests] == [False, True, True, True]


def test_a_leader_that_is_not_up_is_not_asked() -> None:
    assert Cluster({"a": "x"}, leader=Leader(id="gone")).assign() == "x"


def test_a_refusal_is_an_answer() -> None:
    cluster = Cluster({"a": NamespaceNotFound("no such namespace"), "b": "y"})
    with pytest.raises(NamespaceNotFound):
        cluster.assign()
    assert cluster.asked == ["a"]


def test_only_a_few_are_tried_and_then_the_client_looks_again() -> None:
    cluster = Cluster({name: BrokerUnreachable(f"{name} is gone") for name in "abcdefgh"})
    with pytest.raises(ServiceNotReady, match="c is gone"):
        cluster.assign()
    assert cluster.asked == ["a", "b", "c"]
    with pytest.raises(ServiceNotReady, match="no broker with a control address is available"):
        Cluster({}).assign()


def test_brokers_that_are_about_to_go_are_asked_only_when_there_are_no_others() -> None:
    brokers = cast(Any, Cluster({"a": "", "b": "", "c": ""}, draining=("b",)))
    turns = LiveBrokers(brokers)
    assert [[each.broker_id for each in turns.some(2)] for _ in range(3)] == [
        ["a", "c"],
        ["c", "a"],
        ["a", "c"],
    ]
    alone = cast(Any, Cluster({"b": ""}, draining=("b",)))
    assert [each.broker_id for each in LiveBrokers(alone).some(2)] == ["b"]
    assert LiveBrokers(cast(Any, Cluster({}))).some(2) == []
