"""Nothing is published over HTTP, and nothing pretends to be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from yarl import URL

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

MESSAGES = {"producerName": "r", "messages": [{"payload": "hi", "properties": {"a": "b"}}]}


async def publish(http: Http, path: str) -> tuple[int, str]:
    url = URL(f"{http.base}/topics/{path}", encoded=True)
    async with http.client.post(url, json=MESSAGES) as response:
        return response.status, str(json.loads(await response.text())["reason"])


def test_publishing_is_refused_with_what_to_do_instead(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.unloaded = ["persistent://acme/demo/t", "non-persistent://acme/demo/np"]
        http.broker.partition_counts["persistent://acme/demo/p"] = 2
        for path in ("persistent/acme/demo/t", "non-persistent/acme/demo/np", "persistent/acme/demo/p"):
            status, reason = await publish(http, path)
            assert (status, "magnetar produce" in reason) == (405, True)
        assert (await publish(http, "persistent/acme/demo/p/partitions/1"))[0] == 405

    serving(body)


def test_missing_or_invalid_topic_is_refused_first(serving: Serving) -> None:
    async def body(http: Http) -> None:
        http.broker.partition_counts["persistent://acme/demo/p"] = 2
        missing = "Topic persistent://acme/demo/nope not found"
        assert await publish(http, "persistent/acme/demo/nope") == (404, missing)
        assert (await publish(http, "persistent/acme/nope/t")) == (404, "Namespace not found")
        assert (await publish(http, "persistent/acme/demo/p/partitions/2"))[0] == 404
        assert (await publish(http, "persistent/acme/demo/p/partitions/two"))[0] == 400
        assert (await publish(http, "persistent/acme/demo/p/partitions/-1"))[0] == 412
        assert (await publish(http, "volatile/acme/demo/t"))[0] == 404

    serving(body)
