"""Calls about all transaction coordinators: this broker's here, the others at their owners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.peers import PEERS
from magnetar.broker.admin.objects.coordinators import of_each
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.naming.topic_name import TopicName
from yarl import URL

from tests.unit.broker.admin.fake_cluster import FakeCluster

Answer = Callable[[int], Any]


class Coordinators:
    async def count(self) -> int:
        return 3

    async def coordinator(self, coordinator_id: int) -> int:
        return coordinator_id


def asked_of_all(answer: Answer, is_ours: Callable[[TopicName], bool]) -> tuple[Any, list[Any]]:
    """Results of a call, and what other brokers were asked."""
    asked: list[Any] = []

    async def ask(
        owner: BrokerRegistration, method: str, path: str, query: dict[str, str], *, caller: Any
    ) -> Any:
        asked.append((owner.broker_id, method, path, query))
        return answer(int(query["coordinatorId"]))

    async def here(coordinator: Any) -> Any:
        return f"here {coordinator}"

    call: Any = SimpleNamespace(
        broker=SimpleNamespace(coordinators=Coordinators(), cluster=FakeCluster(is_ours=is_ours)),
        request=SimpleNamespace(
            query={"openAtLeastMs": "5"},
            rel_url=URL("/admin/v3/transactions/slowTransactions/1", encoded=True),
            app={PEERS: SimpleNamespace(ask=ask)},
        ),
    )
    return asyncio.run(of_each(call, here)), asked


def test_owners_are_asked_for_their_coordinator_with_the_query_of_the_call() -> None:
    found, asked = asked_of_all(lambda each: f"there {each}", lambda name: name.partition_index == 1)
    assert found == {0: "there 0", 1: "here 1", 2: "there 2"}
    assert sorted(asked, key=lambda each: str(each[3]["coordinatorId"])) == [
        (
            "other:8080",
            "GET",
            "/admin/v3/transactions/slowTransactions/1",
            {"openAtLeastMs": "5", "coordinatorId": each},
        )
        for each in ("0", "2")
    ]


@pytest.mark.parametrize("failure", [Refused(401, "no"), ServiceNotReady("it left")])
def test_one_failure_fails_the_call(failure: Exception) -> None:
    def answer(coordinator_id: int) -> Any:
        if coordinator_id == 2:
            raise failure
        return None

    with pytest.raises(type(failure)):
        asked_of_all(answer, lambda _: False)
