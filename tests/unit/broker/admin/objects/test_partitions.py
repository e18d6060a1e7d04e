"""Calls on partitions here and elsewhere, and what is said when some of them fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.edge.peers import PEERS
from magnetar.broker.admin.objects import partitions
from magnetar.broker.admin.objects.partitions import Ask, Parts, on_parts
from magnetar.broker.admin.routes.topics.stats_pages import cut
from magnetar.common.errors import ServiceNotReady, TopicBusy, TopicNotFound
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.admin.fake_cluster import FakeCluster, registration

TOPIC = TopicName.parse("persistent://acme/demo/a b")
NAMES = [TOPIC.partition(index) for index in range(4)]


class Asked:
    """Stands for `Peers`: notes what others are asked; `answer` says what they answer."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self.paths: list[tuple[str, str, str, Any]] = []
        self._answer = answer

    async def ask(self, broker: Any, method: str, path: str, query: Any, body: Any, *, caller: object) -> Any:
        self.paths.append((broker.broker_id, method, path, dict(query)))
        await asyncio.sleep(0)
        found = self._answer(path)
        if isinstance(found, Exception):
            raise found
        return found


def spread(
    here: Callable[[TopicName], Any],
    answer: Callable[[str], Any] = lambda path: "there",
    cluster: FakeCluster | None = None,
    ask: Ask | None = None,
) -> tuple[Parts | Exception, Asked]:
    """Partitions 0 and 2 are here."""
    asked = Asked(answer)
    found_cluster = cluster or FakeCluster(is_ours=lambda name: name.partition_index % 2 == 0)
    call: Any = SimpleNamespace(
        broker=SimpleNamespace(cluster=found_cluster),
        request=SimpleNamespace(app={PEERS: asked}, query={"force": "true", "authoritative": "true"}),
    )

    async def act(name: TopicName) -> Any:
        found = here(name)
        if isinstance(found, Exception):
            raise found
        return found

    async def run() -> Parts | Exception:
        try:
            return await on_parts(call, NAMES, act, ask or Ask("GET", "stats"))
        except Exception as error:
            return error

    return asyncio.run(run()), asked


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "AGAIN_AFTER_S", 0.0)


def test_each_partition_is_asked_of_its_owner_and_answers_come_in_order() -> None:
    found, asked = spread(lambda name: "here")
    assert isinstance(found, Parts)
    assert list(found.done.items()) == list(zip(NAMES, ["here", "there", "here", "there"], strict=True))
    assert asked.paths == [
        (
            "other:8080",
            "GET",
            f"/admin/v2/persistent/acme/demo/a%20b-partition-{index}/stats",
            {"force": "true"},
        )
        for index in (1, 3)
    ]


def test_missing_partitions_are_omitted_and_refusals_can_be_answers() -> None:
    found, _ = spread(
        lambda name: TopicNotFound("no") if name.partition_index else "here",
        lambda path: Refused(409, "there already"),
        ask=Ask("PUT", answers={409: False}),
    )
    assert isinstance(found, Parts)
    assert list(found.done.values()) == ["here", False, False]
    assert list(found.missing) == [NAMES[2]]


def test_a_failure_says_where_and_that_the_others_are_done() -> None:
    done: list[TopicName] = []

    def here(name: TopicName) -> Any:
        done.append(name)
        return TopicBusy("in use") if name.partition_index == 0 else None

    found, asked = spread(here)
    assert isinstance(found, Refused)
    assert (found.status, found.reason) == (412, "partition 0: in use; the other 3 are done")
    assert (done, len(asked.paths)) == ([NAMES[0], NAMES[2]], 2)
    found, _ = spread(lambda name: None, lambda path: Refused(412, "in use"))
    assert str(found) == "2 partitions (1, 3): in use; the other 2 are done"
    found, _ = spread(lambda name: TopicBusy("in use"), lambda path: Refused(412, "in use"))
    assert (type(found), str(found)) == (TopicBusy, "in use")


def test_a_partition_that_goes_to_another_broker_meanwhile_is_asked_of_that_one() -> None:
    cluster = FakeCluster(
        owners=[registration("first:1"), registration("second:1")],
        is_ours=lambda name: name.partition_index != 1,
    )
    answers = [ServiceNotReady("not mine"), "there"]
    found, asked = spread(lambda name: "here", lambda path: answers.pop(0), cluster)
    assert isinstance(found, Parts)
    assert [each[0] for each in asked.paths] == ["first:1", "second:1"]
    cluster.owners[:] = [registration("first:1"), None]
    answers[:] = [ServiceNotReady("not mine")]
    found, _ = spread(lambda name: "here", lambda path: answers.pop(0), cluster)
    assert isinstance(found, Parts)
    assert set(found.done.values()) == {"here"}


def test_an_owner_that_does_not_answer_is_not_asked_again_and_again() -> None:
    found, asked = spread(lambda name: "here", lambda path: ServiceNotReady("gone"))
    assert isinstance(found, Refused)
    assert found.status == 503
    assert len(asked.paths) == 2


def test_a_page_is_cut_from_the_topics_of_all_brokers() -> None:
    assert cut([3, 0, 4], 0, 10) == [(0, 3), (0, 0), (0, 4)]
    assert cut([3, 0, 4], 2, 3) == [(2, 1), (0, 0), (0, 2)]
    assert cut([3, 0, 4], 5, 10) == [(3, 0), (0, 0), (2, 2)]
    assert cut([3, 4], 9, 1) == [(3, 0), (4, 0)]
