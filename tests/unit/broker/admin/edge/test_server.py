"""The HTTP port over a socket: statuses, bodies and names as Pulsar has them (its answers were recorded)."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from magnetar.broker.admin.edge import routing, server
from magnetar.broker.admin.edge.call import Call
from magnetar.broker.admin.edge.errors import Refused
from magnetar.broker.admin.table import routes
from magnetar.broker.config import BrokerConfig
from magnetar.broker.service_urls import ServiceUrls
from magnetar.broker.topics.config import TopicConfig
from magnetar.common.errors import TopicNotFound
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.security.authorization.operations import Operation

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http


def test_lists_of_clusters_tenants_and_namespaces(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.json("/admin/v2/clusters") == (200, ["standalone"])
        assert await http.json("/admin/v2/tenants") == (200, ["acme", "public", "pulsar"])
        assert await http.json("/admin/v2/namespaces/acme") == (200, ["acme/demo"])
        assert await http.json("/admin/v2/namespaces/public") == (200, ["public/default"])
        assert await http.json("/admin/v2/namespaces/nope") == (404, {"reason": "Tenant not found"})

    serving(body)


def test_health_says_ok_as_plain_text(serving: Serving) -> None:
    async def body(http: Http) -> None:
        assert await http.get("/health") == (200, "ok")
        assert await http.get("/admin/v2/brokers/health") == (200, "ok")

    serving(body)


def test_health_page_says_why_clients_are_refused(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.not_ready = "another broker is the owner"
        assert await http.get("/health") == (503, "not ready: another broker is the owner")

    serving(body)


def test_broker_that_refuses_clients_loads_no_topic_and_changes_nothing(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.not_ready = "another broker is the owner"
        for route in routes(http.broker):
            if not route.needs_owner:
                continue
            path = route.path.replace("{domain}", "persistent").replace("{", "").replace("}", "")
            status, text = await http.get(path, route.method)
            assert (route.path, status) == (route.path, 503)
            assert "another broker is the owner" in text
        assert (await http.json("/admin/v2/tenants"))[0] == 200

    serving(body)


def test_topics_are_listed_by_domain_and_system_topics_only_when_asked_for(serving: Serving) -> None:
    async def body(http: Http) -> None:
        broker = http.broker
        broker.load("persistent://acme/demo/zip")
        broker.unloaded = [
            "persistent://acme/demo/orders-partition-0",
            "persistent://acme/demo/__change_events",
            "persistent://public/default/other",
        ]
        broker.load("non-persistent://acme/demo/np")
        shown = ["persistent://acme/demo/orders-partition-0", "persistent://acme/demo/zip"]
        path = "/admin/v2/persistent/acme/demo"
        assert await http.json(path) == (200, shown)
        assert await http.json(f"{path}?includeSystemTopic=true") == (
            200,
            ["persistent://acme/demo/__change_events", *shown],
        )
        assert await http.json("/admin/v2/non-persistent/acme/demo") == (
            200,
            ["non-persistent://acme/demo/np"],
        )
        assert await http.json("/admin/v2/namespaces/acme/demo/topics?mode=ALL") == (
            200,
            [*shown, "non-persistent://acme/demo/np"],
        )

    serving(body)


def test_topics_of_one_bundle(serving: Serving) -> None:
    async def body(http: Http) -> None:
        names = [f"persistent://acme/demo/t{n}" for n in range(20)]
        http.broker.unloaded = names
        path = "/admin/v2/persistent/acme/demo?bundle="
        expected = sorted(name for name in names if TopicName.parse(name).hash >= 0xC0000000)
        assert await http.json(f"{path}0xc0000000_0xffffffff") == (200, expected)
        assert await http.json(f"{path}0x00000000_0xffffffff") == (200, sorted(names))
        status, _ = await http.get(f"{path}nonsense")
        assert status == 412

    serving(body)


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("/admin/v2/persistent/acme/nope", 404, "Namespace does not exist"),
        ("/admin/v2/persistent/nope/nope", 404, "Namespace does not exist"),
        ("/admin/v2/namespaces/acme/nope/topics", 404, "Namespace does not exist"),
        ("/admin/v2/persistent/acme/nope/t/partitions", 404, "Namespace not found"),
        ("/lookup/v2/topic/persistent/acme/nope/t", 404, "Namespace not found"),
        ("/lookup/v2/topic/persistent/acme/nope/t/bundle", 404, "Namespace not found"),
        (
            "/admin/v2/persistent/acme/demo/nope/partitions",
            404,
            "Topic persistent://acme/demo/nope not found",
        ),
        ("/admin/v2/persistent/ac%20me/demo", 412, "tenant"),
        ("/admin/v2/persistent/acme/de%2Fmo", 412, "namespace"),
        ("/admin/v2/namespaces/ac%20me", 412, "tenant"),
        ("/admin/v2/namespaces/acme/demo/topics?mode=BOGUS", 412, "BOGUS"),
        ("/lookup/v2/topic/bogus/acme/demo/t", 412, "bogus"),
        ("/lookup/v2/topic/persistent/acme/demo/a%2Fb", 412, "'/'"),
        ("/lookup/v2/topic/persistent/acme/demo/%ff", 412, "UTF-8"),
        ("/admin/v2/nosuch", 404, "Not Found"),
        ("/nothing", 404, "Not Found"),
    ],
)
def test_refusals_carry_a_status_and_a_reason(serving: Serving, path: str, status: int, reason: str) -> None:
    async def body(http: Http) -> None:
        answer = await http.json(path)
        assert isinstance(answer, tuple)
        assert answer[0] == status
        assert set(answer[1]) == {"reason"}
        assert reason in answer[1]["reason"]

    serving(body)


@pytest.mark.parametrize("origin", ["https://somewhere.example", "http://127.0.0.1:1", "null"])
def test_a_page_of_another_site_has_its_readers_browser_change_nothing(serving: Serving, origin: str) -> None:
    async def body(http: Http) -> None:
        async def make(tenant: str, **headers: str) -> tuple[int, str]:
            url = f"{http.base}/admin/v2/tenants/{tenant}"
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            async with http.client.put(
                url, json={"allowedClusters": ["standalone"]}, headers=named
            ) as answer:
                return answer.status, await answer.text()

        status, text = await make("a", Origin=origin)
        assert (status, "another site" in text) == (403, True)
        assert (await make("a"))[0] == 204
        assert (await make("b", Origin=http.base))[0] == 204
        assert (await make("c", Origin=origin, X_Forwarded_Host="admin.example"))[0] == 204
        async with http.client.get(f"{http.base}/admin/v2/clusters", headers={"Origin": origin}) as answer:
            assert answer.status == 200, "which the browser does not show to that page"

    serving(body)


def test_a_method_that_a_path_does_not_have_is_405(serving: Serving) -> None:
    async def body(http: Http) -> None:
        status, text = await http.get("/admin/v2/clusters", method="DELETE")
        assert status == 405
        assert "reason" in text

    serving(body)


def test_lookup_answers_with_the_addresses_of_the_broker(serving: Serving) -> None:
    async def body(http: Http) -> None:
        expected = {
            "brokerUrl": "pulsar://localhost:6650",
            "httpUrl": "http://localhost:8080",
            "nativeUrl": "pulsar://localhost:6650",
            "brokerUrlSsl": "",
        }
        for path in ("persistent/acme/demo/single", "non-persistent/acme/demo/np"):
            assert await http.json(f"/lookup/v2/topic/{path}") == (200, expected)
        assert await http.json("/lookup/v2/topic/persistent/acme/demo/t?authoritative=true") == (
            200,
            expected,
        )

    serving(body)


def test_lookup_names_the_port_that_was_asked_when_the_broker_knows_none(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.urls = ServiceUrls("pulsar://localhost:6650")
        answer = await http.json("/lookup/v2/topic/persistent/acme/demo/t")
        assert isinstance(answer, tuple)
        assert answer[1]["httpUrl"] == http.base

    serving(body)


def test_the_bundle_of_a_topic_holds_its_hash(serving: Serving) -> None:
    async def body(http: Http) -> None:
        for name in ("single", "zip", "bundle"):
            status, text = await http.get(f"/lookup/v2/topic/persistent/acme/demo/{name}/bundle")
            assert status == 200
            found = re.fullmatch(r"0x([0-9a-f]{8})_0x([0-9a-f]{8})", text)
            assert found is not None
            topic = TopicName.parse(f"persistent://acme/demo/{name}")
            assert int(found[1], 16) <= topic.hash <= int(found[2], 16)

    serving(body)


def test_partitions_of_partitioned_plain_and_missing_topics(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.partition_counts["persistent://acme/demo/orders"] = 3
        http.broker.unloaded = ["persistent://acme/demo/single"]
        path = "/admin/v2/persistent/acme/demo"
        assert await http.json(f"{path}/orders/partitions") == (200, {"partitions": 3, "deleted": False})
        nothing = {"partitions": 0, "deleted": False}
        assert await http.json(f"{path}/single/partitions") == (200, nothing)
        assert (await http.get(f"{path}/nope/partitions"))[0] == 404
        assert await http.json(f"{path}/nope/partitions?checkAllowAutoCreation=true") == (200, nothing)
        assert (await http.get(f"{path}/nope/partitions"))[0] == 404

        http.broker.config = BrokerConfig(topics=TopicConfig(auto_creation=False))
        assert (await http.get(f"{path}/nope/partitions?checkAllowAutoCreation=true"))[0] == 404
        expected = {
            "nope": 404,
            "single": 200,
            "orders": 200,
            "orders-partition-2": 200,
            "orders-partition-3": 404,
        }
        for name, status in expected.items():
            assert (name, (await http.get(f"/lookup/v2/topic/persistent/acme/demo/{name}"))[0]) == (
                name,
                status,
            )

    serving(body)


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("sp%20ace", "sp ace"),
        ("sp+ace", "sp ace"),
        ("plus%2Bx", "plus+x"),
        ("pc%2525x", "pc%25x"),
        ("pc%25x", "pc%x"),
        ("u%C3%A9", "ué"),
        ("partitions", "partitions"),
    ],
)
def test_a_topic_name_is_decoded_once(serving: Serving, sent: str, name: str) -> None:
    async def body(http: Http) -> None:
        http.broker.partition_counts[f"persistent://acme/demo/{name}"] = 7
        answer = await http.json(f"/admin/v2/persistent/acme/demo/{sent}/partitions")
        assert answer == (200, {"partitions": 7, "deleted": False})

    serving(body)


def test_every_route_is_authorized(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Operation, str]] = []

    async def deny(call: Call, operation: Operation, path: str) -> None:
        asked.append((operation, path))
        raise Refused(403, "no role may")

    monkeypatch.setattr(routing, "authorize", deny)

    async def body(http: Http) -> None:
        table = routes(http.broker)
        assert len(table) >= 200
        for route in table:
            asked.clear()
            # No name that another route has as a word of its path.
            filled = re.sub(r"{(\w+)}", r"its-\1", route.path.replace("{domain}", "persistent"))
            status, _ = await http.get(filled, route.method)
            expected = Operation.ANY if route.names_in_body else route.operation
            assert (route.path, status) == (route.path, 403)
            assert asked == [(expected, route.path)]

    serving(body)


def test_the_table_has_each_verb_of_a_path_once_and_says_what_it_answers(serving: Serving) -> None:
    async def body(http: Http) -> None:
        table = routes(http.broker)
        assert len({(route.method, route.path) for route in table}) == len(table)
        for route in table:
            assert route.summary.endswith("."), route.path
            assert not route.answer or route.status in (200, 202), route.path
            # Pulsar answers a few writes with 200 and nothing else.
            assert route.answer or route.status != 200 or route.method != "GET", route.path
            assert 412 in route.errors or "{tenant}" not in route.path, route.path

    serving(body)


def test_broker_errors_become_reasons_and_unexpected_errors_do_not_leak(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(http: Http) -> None:
        async def refuse(topic: TopicName, listener: str) -> ServiceUrls:
            raise TopicNotFound(f"Topic not found {topic}")

        async def explode(topic: TopicName, listener: str) -> ServiceUrls:
            raise ValueError("secret detail")

        monkeypatch.setattr(http.broker, "lookup", refuse)
        path = "/lookup/v2/topic/persistent/acme/demo/t"
        reason = {"reason": "Topic not found persistent://acme/demo/t"}
        assert await http.json(path) == (404, reason)
        monkeypatch.setattr(http.broker, "lookup", explode)
        status, text = await http.get(path)
        assert status == 500
        assert "secret" not in text

    serving(body)


def test_more_requests_than_the_bound_are_answered_503(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUESTS_MAX", 2)

    async def body(http: Http) -> None:
        release, entered = asyncio.Event(), asyncio.Semaphore(0)

        async def slow(topic: TopicName, listener: str) -> ServiceUrls:
            entered.release()
            await release.wait()
            return ServiceUrls("pulsar://localhost:6650")

        monkeypatch.setattr(http.broker, "lookup", slow)
        waiting = [
            asyncio.ensure_future(http.get("/lookup/v2/topic/persistent/acme/demo/t")) for _ in range(2)
        ]
        await entered.acquire()
        await entered.acquire()
        assert (await http.get("/health"))[0] == 503
        release.set()
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200, 200]
        assert (await http.get("/health"))[0] == 200

    serving(body)
