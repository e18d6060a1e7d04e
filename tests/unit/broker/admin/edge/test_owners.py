"""Whom a call is sent on to, and who sends nobody on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
from magnetar.broker.admin.edge.routing import Route
from magnetar.broker.admin.table import routes
from yarl import URL

from tests.unit.broker.admin.fake_cluster import FakeCluster, registration

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

TOPIC = "/admin/v2/persistent/acme/demo/t%2Ba"


async def sent_on(http: Http, method: str, path: str) -> tuple[int, str]:
    """The status and where to."""
    url = URL(f"{http.base}{path}", encoded=True)
    async with http.client.request(method, url, data=_never(), allow_redirects=False) as response:
        return response.status, response.headers.get("Location", "")


async def _never() -> AsyncIterator[bytes]:
    """A body of which nothing comes."""
    return
    yield b""


@pytest.mark.parametrize(
    ("method", "verb", "to"),
    [
        ("GET", "/stats", "/stats?authoritative=true"),
        ("HEAD", "/stats", "/stats?authoritative=true"),
        ("PUT", "/subscription/a%252Fb?x=1", "/subscription/a%252Fb?x=1&authoritative=true"),
        ("POST", "/terminate?authoritative=false", "/terminate?authoritative=true"),
        ("DELETE", "?force=true&authoritative=no&a=b", "?force=true&a=b&authoritative=true"),
        ("DELETE", "/subscription/%2E%2E", "/subscription/%2E%2E?authoritative=true"),
        ("GET", "/subscription/%2e/properties", "/subscription/%2e/properties?authoritative=true"),
        ("GET", "/stats?a=%2B+%zz%26", "/stats?a=%2B+%zz%26&authoritative=true"),
    ],
)
def test_a_call_is_sent_on_with_its_path_and_query(serving: Serving, method: str, verb: str, to: str) -> None:
    async def body(http: Http) -> None:
        http.broker.cluster = cluster = FakeCluster()
        found = await sent_on(http, method, f"{TOPIC}{verb}")
        assert found == (307, f"http://other:8080{TOPIC}{to}")
        assert cluster.asked == ["persistent://acme/demo/t+a"]

    serving(body)


def test_request_redirected_before_is_told_to_retry(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.cluster = FakeCluster()
        path = f"{TOPIC.removeprefix('/admin/v2')}/stats?authoritative=true"
        assert "try again" in await http.reason(503, "GET", path)

    serving(body)


def test_an_owner_without_http_is_said(serving: Serving) -> None:
    async def body(http: Http) -> None:
        nowhere = registration("other:8080")
        nowhere.addresses.http_url = ""
        http.broker.cluster = FakeCluster([nowhere])
        path = f"{TOPIC.removeprefix('/admin/v2')}/stats"
        assert "other:8080, which has no HTTP address" in await http.reason(503, "GET", path)

    serving(body)


@pytest.mark.parametrize(
    "path",
    ["/persistent/acme/none/t/stats", "/persistent/acme/demo/parts/terminate", "/namespaces/acme/demo"],
)
def test_missing_partitioned_and_invalid_topics_are_answered_locally(serving: Serving, path: str) -> None:
    async def body(http: Http) -> None:
        http.broker.cluster = cluster = FakeCluster()
        http.broker.partition_counts["persistent://acme/demo/parts"] = 2
        status, _ = await http.send("POST" if path.endswith("terminate") else "GET", path)
        assert status in (200, 404, 405)
        assert cluster.asked == []

    serving(body)


def test_a_bundle_of_another_broker_is_asked_of_that_one(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.cluster = FakeCluster()
        path = "/admin/v2/namespaces/acme/demo/0x00000000_0x40000000/clearBacklog"
        assert await sent_on(http, "POST", path) == (307, f"http://other:8080{path}?authoritative=true")

    serving(body)


def test_every_verb_that_loads_a_topic_is_done_by_its_owner(serving: Serving) -> None:
    async def body(http: Http) -> None:
        """Those that are not are about what metadata says: any broker can answer them."""
        anywhere = {
            f"{route.method} {_verb(route)}"
            for route in routes(http.broker)
            if "{topic}" in route.path
            and not route.at_owner
            and route.path.startswith("/admin/v2/persistent/")
        }
        loads = {
            "stats",
            "unload",
            "terminate",
            "truncate",
            "trim",
            "lastMessageId",
            "internalStats",
            "compaction",
        }
        assert not {each for each in anywhere if each.split()[-1].split("/")[0] in loads | {"subscription"}}
        assert {"GET partitions", "PUT partitions", "POST retention", "GET permissions"} <= anywhere

    serving(body)


def _verb(route: Route) -> str:
    return route.path.partition("{topic}")[2].strip("/")
