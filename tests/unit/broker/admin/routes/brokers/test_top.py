"""The busiest topics, subscriptions, namespaces and brokers of a cluster."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.peers import PEERS
from magnetar.broker.admin.routes.brokers import top
from magnetar.broker.admin.stats.top_rows import Sums
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BookieCookie, BookieRegistration, Decommission, encode
from magnetar.common.naming.topic_name import TopicName
from yarl import URL

from tests.unit.broker.admin.fake_broker import KEYS, FakeSubscription, FakeTopic
from tests.unit.broker.admin.fake_cluster import registration

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

ROOT = "/admin/magnetar/v1"
TOP = "/broker-stats/top"


def some_topics(http: Http) -> None:
    for namespace in ("acme/demo", "acme/other"):
        for number in range(5):
            topic = http.broker.load(f"persistent://{namespace}/t{number}")
            topic.stats.message_rate_in = float(number)
            topic.producer_count = 1
            topic.subscriptions["slow"] = FakeSubscription(consumer_count=2, entries_behind=10 * number)
            topic.subscriptions["quick"] = FakeSubscription(consumer_count=1)


def names(found: Any, member: str = "topic") -> list[str]:
    return [row[member].removeprefix("persistent://") for row in found["rows"]]


def test_topics_come_by_a_column_in_pages(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.root = ROOT
        some_topics(http)
        first = await http.ask(f"{TOP}?limit=3")
        assert names(first) == ["acme/demo/t4", "acme/other/t4", "acme/demo/t3"]
        assert (first["total"], first["unreachable"], first["of"]) == (10, {}, "topics")
        assert first["rows"][0]["msgBacklog"] == 40
        assert first["rows"][0]["consumers"] == 3
        second = await http.ask(f"{TOP}?limit=3&offset=3")
        assert names(second) == ["acme/other/t3", "acme/demo/t2", "acme/other/t2"]
        least = await http.ask(f"{TOP}?limit=2&sort=msgBacklog&ascending=true&contains=OTHER")
        assert names(least) == ["acme/other/t0", "acme/other/t1"]
        assert least["total"] == 5

    serving(body)


def test_subscriptions_namespaces_and_the_broker_have_rows_of_their_own(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.root = ROOT
        some_topics(http)
        found = await http.ask(f"{TOP}?of=subscriptions&sort=msgBacklog&limit=1")
        assert (found["total"], names(found), names(found, "subscription")) == (
            20,
            ["acme/demo/t4"],
            ["slow"],
        )
        one = await http.ask(f"{TOP}?of=subscriptions&topic=persistent://acme/demo/t2&sort=subscription")
        assert sorted(names(one, "subscription")) == ["quick", "slow"]
        assert set(names(one)) == {"acme/demo/t2"}
        spaces = await http.ask(f"{TOP}?of=namespaces&sort=msgBacklog")
        assert [(row["namespace"], row["topics"], row["msgBacklog"]) for row in spaces["rows"]] == [
            ("acme/demo", 5, 100),
            ("acme/other", 5, 100),
        ]
        brokers = await http.ask(f"{TOP}?of=brokers")
        (row,) = brokers["rows"]
        assert (row["broker"], row["topics"], row["subscriptions"]) == (brokers["broker"], 10, 20)
        assert row["residentBytes"] > 1_000_000
        assert row["cpuSeconds"] > 0

    serving(body)


def test_a_namespace_shows_its_own_topics_and_nothing_of_the_process(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.root = ROOT
        some_topics(http)
        await http.add_namespace("acme/demo")
        path = "/namespaces/acme/demo/top"
        assert (await http.ask(path))["total"] == 5
        reason = await http.reason(412, "GET", f"{path}?of=brokers")
        assert reason == "unknown rows 'brokers': of is one of topics, subscriptions"
        assert "does not exist" in await http.reason(404, "GET", "/namespaces/acme/none/top")

    serving(body)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("of=clients", "of is one of topics, subscriptions, namespaces, brokers, bookies"),
        ("sort=color", "unknown column 'color': sort of topics is one of topic, subscriptions"),
        ("limit=0", "limit from 1 to 1000"),
        ("limit=1001", "limit from 1 to 1000"),
        ("offset=4999&limit=2", "both together at most 5000"),
        ("offset=-1", "offset must be at least 0"),
        ("reasons=true", "first 200 subscriptions"),
        ("of=subscriptions&reasons=true&limit=201", "first 200 subscriptions"),
        (f"contains={'x' * 257}", "at most 256 characters, not 257"),
    ],
)
def test_an_invalid_request_is_refused(serving: Serving, query: str, said: str) -> None:
    async def body(http: Http) -> None:
        http.root = ROOT
        assert said in await http.reason(412, "GET", f"{TOP}?{query}")

    serving(body)


def test_reasons_of_a_topic_without_storage_are_empty(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.root = ROOT
        some_topics(http)
        found = await http.ask(f"{TOP}?of=subscriptions&reasons=true&limit=1")
        assert (found["rows"][0]["codes"], found["rows"][0]["oldestPublishTime"]) == ([], 0)

    serving(body)


def in_a_cluster(query: dict[str, str], other: dict[str, Any] | Exception) -> Any:
    """The answer of a broker with one topic, beside brokers `b2`, which answers, and `b3`, which does not."""
    topic = FakeTopic(TopicName.parse("persistent://acme/demo/here"), producer_count=1)
    topic.stats.message_rate_in = 5.0
    asked: list[dict[str, str]] = []

    async def ask(broker: Any, method: str, path: str, given: dict[str, str], *, caller: Any) -> Any:
        asked.append(given)
        assert (method, path, given["here"]) == ("GET", f"{ROOT}{TOP}", "true")
        if broker.broker_id == "b3":
            raise ServiceNotReady("broker b3 did not answer (refused); retry")
        if isinstance(other, Exception):
            raise other
        return other

    registered = [registration("b1"), registration("b2"), registration("b3")]
    call = SimpleNamespace(
        broker=SimpleNamespace(
            topics={topic.name.full: topic},
            cluster=SimpleNamespace(
                presence=SimpleNamespace(broker_id="b1"), directory=SimpleNamespace(all=lambda: registered)
            ),
            topics_elsewhere=object(),
            urls=SimpleNamespace(any_http_url="http://b1"),
            ledgers=SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 7)),
        ),
        request=SimpleNamespace(
            query=query, rel_url=URL(f"{ROOT}{TOP}"), app={PEERS: SimpleNamespace(ask=ask)}
        ),
        flag=lambda name: query.get(name) == "true",
        query_number=lambda name, default: int(query.get(name) or default),
    )
    answer = asyncio.run(top._top(cast("Call", call), None))
    return json.loads(cast(bytes, cast(Any, answer).body)), asked


def row_of(name: str, rate: float, **more: Any) -> dict[str, Any]:
    return {"topic": f"persistent://acme/demo/{name}", "msgRateIn": rate, **more}


def test_rows_of_other_brokers_are_merged_and_a_broker_that_does_not_answer_is_named() -> None:
    there = {"rows": [row_of("more", 9.0), row_of("less", 1.0)], "total": 40}
    found, asked = in_a_cluster({"limit": "2"}, there)
    assert names(found) == ["acme/demo/more", "acme/demo/here"]
    assert found["total"] == 41
    assert found["unreachable"] == {"b3": "broker b3 did not answer (refused); retry"}
    assert {(each["offset"], each["limit"]) for each in asked} == {("0", "2")}


def test_a_namespace_on_two_brokers_is_one_row() -> None:
    there = {
        "rows": [{"namespace": "acme/demo", "topics": 3, **dict.fromkeys(Sums().figures, 2)}],
        "total": 1,
    }
    found, _ = in_a_cluster({"of": "namespaces"}, there)
    (row,) = found["rows"]
    assert (row["topics"], row["producers"], row["msgRateIn"], found["total"]) == (4, 3, 7.0, 1)


def test_bookies_have_their_state_and_space(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.root = ROOT
        assert (await http.ask(f"{TOP}?of=bookies"))["rows"] == []
        put = http.store.put
        for name in ("a:1", "b:1", "c:1", "d:1"):
            await put(KEYS.cookie(name), encode(BookieCookie(bookie_id=name)))
        for name, read_only in (("a:1", False), ("b:1", True), ("d:1", False), ("e:1", False)):
            registered = BookieRegistration(address=name, rack="/r", free_bytes=5, read_only=read_only)
            await put(KEYS.bookie(name), encode(registered))
        leaving = Decommission(bookie_id="d:1", ledgers=3, audited_ms=9)
        await put(KEYS.decommission("d:1"), encode(leaving))
        found = await http.ask(f"{TOP}?of=bookies&ascending=true")
        assert [
            (row["bookie"], row["state"], row["freeBytes"], row["ledgersToMove"]) for row in found["rows"]
        ] == [
            ("a:1", "up", 5, 0),
            ("b:1", "read-only", 5, 0),
            ("c:1", "down", -1, 0),
            ("d:1", "decommissioning", 5, 3),
            ("e:1", "decommissioned", 5, 0),
        ]
        assert (await http.ask(f"{TOP}?of=bookies&contains=C:"))["total"] == 1

    serving(body)
