"""Where single topics are, over HTTP: in this cluster, and without shadows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from magnetar.common.metadata.values import PartitionedTopic, TopicHead, encode
from magnetar.common.naming.topic_name import TopicName

from tests.unit.broker.admin.fake_broker import KEYS

if TYPE_CHECKING:
    from tests.unit.broker.admin.conftest import Serving
    from tests.unit.broker.admin.fake_broker import Http

TOPIC = "/persistent/geo/ns/t"


async def prepare(http: Http) -> None:
    """geo/ns, whose tenant may be in two of three clusters, with a topic."""
    for cluster in ("c2", "c3"):
        given = {"serviceUrl": f"http://{cluster}"}
        assert (await http.send("PUT", f"/clusters/{cluster}", given))[0] == 200
    assert (await http.send("PUT", "/tenants/geo", {"allowedClusters": ["standalone", "c2"]}))[0] == 204
    assert (await http.send("PUT", "/namespaces/geo/ns"))[0] == 204
    name = TopicName.parse("persistent://geo/ns/t")
    await http.store.put(KEYS.topic_head(name), encode(TopicHead()))
    http.broker.unloaded.append(name.full)


def test_a_topic_is_where_its_namespace_is_until_it_says_so_itself(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await prepare(http)
        path = f"{TOPIC}/replication"
        assert await http.send("GET", path) == (200, "")
        assert await http.ask(f"{path}?applied=true") == ["standalone"]
        for _ in range(2):
            assert await http.send("POST", path, ["standalone"]) == (204, "")
        assert await http.ask(path) == ["standalone"]
        for _ in range(2):
            assert await http.send("DELETE", path) == (204, "")
        assert await http.send("GET", path) == (200, "")

    serving(body)


@pytest.mark.parametrize(
    ("given", "status", "reason"),
    [
        (["nope"], 403, "Invalid cluster id: nope"),
        (["c3"], 403, "not in the list of allowed clusters"),
        (["standalone", "c2"], 405, "replication between clusters is not supported yet"),
        ([], 412, "ClusterIds should not be null"),
        (b"", 412, "ClusterIds should not be null"),
        ("standalone", 400, "list of strings"),
    ],
)
def test_a_topic_is_nowhere_else(serving: Serving, given: Any, status: int, reason: str) -> None:
    async def body(http: Http) -> None:
        await prepare(http)
        assert reason in await http.reason(status, "POST", f"{TOPIC}/replication", given)
        assert await http.send("GET", f"{TOPIC}/replication") == (200, "")

    serving(body)


def test_a_topic_has_no_shadows(serving: Serving) -> None:
    async def body(http: Http) -> None:
        await prepare(http)
        path = f"{TOPIC}/shadowTopics"
        assert await http.send("GET", path) == (200, "")
        reason = await http.reason(405, "PUT", path, ["persistent://geo/ns/shadow"])
        assert "shadow topics are not supported yet" in reason
        assert await http.send("PUT", path, []) == (204, "")
        await http.reason(400, "PUT", path, "persistent://geo/ns/shadow")
        for _ in range(2):
            assert await http.send("DELETE", path) == (204, "")

    serving(body)


@pytest.mark.parametrize("name", ["replication", "shadowTopics"])
def test_neither_is_there_for_topics_that_are_not(serving: Serving, name: str) -> None:
    async def body(http: Http) -> None:
        await prepare(http)
        orders = TopicName.parse("persistent://geo/ns/orders")
        await http.store.put(KEYS.partitioned_topic(orders), encode(PartitionedTopic(partitions=2)))
        http.broker.partition_counts[orders.full] = 2
        setting = "PUT" if name == "shadowTopics" else "POST"
        for method, given in (("GET", None), (setting, ["standalone"]), ("DELETE", None)):
            assert "not found" in await http.reason(404, method, f"/persistent/geo/ns/nope/{name}", given)
            missing = await http.reason(404, method, f"/persistent/geo/nope/t/{name}", given)
            assert missing == "Namespace not found"
            part = f"/persistent/geo/ns/orders-partition-0/{name}"
            assert "for a partition" in await http.reason(412, method, part, given)

    serving(body)
