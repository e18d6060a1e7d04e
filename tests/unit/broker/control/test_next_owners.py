"""Who is to have a bundle next: whom the leader says, and without a leader who has the fewest."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.broker.control.next_owners import NextOwners
from magnetar.common.cluster.bundle_owners import Owned
from magnetar.common.control.control_errors import NobodyLeads
from magnetar.common.control.control_pb2 import AssignRequest, AssignResponse
from magnetar.common.errors import MagnetarError, ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName

NAMESPACE = NamespaceName("t", "n")
BUNDLE = BundleRange(0, 1 << 30)


class Leader:
    """Answers as it is told."""

    def __init__(self, answer: AssignResponse | MagnetarError) -> None:
        self.answer_with = answer
        self.asked: list[AssignRequest] = []

    async def answer(self, request: AssignRequest) -> AssignResponse:
        self.asked.append(request)
        if isinstance(self.answer_with, MagnetarError):
            raise self.answer_with
        return self.answer_with


def registered(broker_id: str, **fields: Any) -> BrokerRegistration:
    return BrokerRegistration(**{"broker_id": broker_id, "run": 1, "control_address": "x:1", **fields})


def chosen(
    answer: AssignResponse | MagnetarError,
    brokers: Collection[BrokerRegistration],
    owners: Collection[str] = (),
    excepted: Collection[str] = ("a",),
) -> str:
    by_id = {each.broker_id: each for each in brokers}
    cluster: Any = SimpleNamespace(
        directory=SimpleNamespace(get=by_id.get, all=lambda: list(by_id.values())),
        owners=SimpleNamespace(
            all=lambda: [(NAMESPACE, BUNDLE, Owned(each, 1, number, 0)) for number, each in enumerate(owners)]
        ),
    )
    leader: Any = Leader(answer)
    client: Any = None
    found = asyncio.run(NextOwners(cluster, leader, client).next_owner(NAMESPACE, BUNDLE, excepted))
    (asked,) = leader.asked
    assert asked.choose_only
    assert list(asked.except_broker_ids) == sorted(excepted)
    return found.broker_id


THREE = [registered("a"), registered("b"), registered("c")]


def test_the_leader_has_the_word() -> None:
    assert chosen(AssignResponse(broker_id="c", run=1), THREE) == "c"


@pytest.mark.parametrize(
    "answer",
    [
        AssignResponse(broker_id="d", run=1),
        AssignResponse(broker_id="b", run=2),
        AssignResponse(broker_id="a", run=1),
        ServiceNotReady("isolation policies"),
    ],
)
def test_ineligible_broker_is_not_chosen(answer: AssignResponse | MagnetarError) -> None:
    with pytest.raises(ServiceNotReady):
        chosen(answer, THREE)


def test_without_a_leader_it_is_the_broker_with_the_fewest_bundles() -> None:
    nobody = NobodyLeads("gone")
    assert chosen(nobody, THREE) == "b"
    assert chosen(nobody, THREE, owners=["b", "b", "c"]) == "c"
    draining = [registered("a"), registered("b", draining=True), registered("c")]
    assert chosen(nobody, draining, owners=["c"]) == "c"
    assert chosen(nobody, THREE, excepted=["a", "b"]) == "c"
    with pytest.raises(ServiceNotReady, match="no other running broker"):
        chosen(nobody, [registered("a"), registered("b", control_address="")])
