"""Properties of a subscription: given with Subscribe or over HTTP, replaced, and kept over restarts."""

from __future__ import annotations

import pulsar

from tests.integration.harness import StandaloneServer
from tests.integration.raw.transcript import line
from tests.integration.rest import Rest


def test_properties_of_a_subscription_are_replaced_as_a_whole(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    path = f"/persistent/{namespace}/t/subscription/s"
    rest.do("PUT", path, {"ledgerId": -1, "entryId": -1, "properties": {"a": "b", "c": "d"}})
    rest.do("PUT", f"{path}/properties", {"a": "x"})
    assert rest.get(f"{path}/properties") == {"a": "x"}
    stats = rest.get(f"/persistent/{namespace}/t/stats")
    assert stats["subscriptions"]["s"]["subscriptionProperties"] == {"a": "x"}
    assert "at most" in rest.refused(412, "PUT", f"{path}/properties", {"a": "x" * 70_000})
    assert "string" in rest.refused(400, "PUT", f"{path}/properties", {"a": {}})
    assert rest.get(f"{path}/properties") == {"a": "x"}
    rest.do("PUT", f"{path}/properties", {})
    assert rest.get(f"{path}/properties") == {}
    gone = rest.refused(404, "PUT", f"{path}x/properties", {})
    assert gone == f"Subscription sx not found for topic persistent://{namespace}/t"
    rest.do("PUT", f"/persistent/{namespace}/p/partitions", 2)
    rest.do("PUT", f"/persistent/{namespace}/p/subscription/s")
    rest.do("PUT", f"/persistent/{namespace}/p/subscription/s/properties", {"k": "v"})
    for index in range(2):
        part = f"/persistent/{namespace}/p-partition-{index}/subscription/s/properties"
        assert rest.get(part) == {"k": "v"}
    consumer = client.subscribe(f"non-persistent://{namespace}/np", "s")
    volatile = f"/non-persistent/{namespace}/np/subscription/s/properties"
    rest.do("PUT", volatile, {"k": "v"})
    assert rest.get(volatile) == {"k": "v"}
    consumer.close()


def test_properties_of_a_subscription_survive_however_they_came(server: StandaloneServer, topic: str) -> None:
    rest, path = Rest(server.endpoint), "/" + topic.replace("://", "/")
    wanted = {"first": {"a": "1"}, "later": {"b": "2"}, "put": {"c": "3"}}
    with line(server.endpoint) as c:
        c.subscribe(topic, "first", 1, subscription_properties=[{"key": "a", "value": "1"}])
        c.subscribe(topic, "later", 2)
        c.subscribe(topic, "put", 3, subscription_properties=[{"key": "d", "value": "4"}])
        c.expect("success", request_id=c.request("close_consumer", consumer_id=2))
        c.subscribe(topic, "later", 2, subscription_properties=[{"key": "b", "value": "2"}])
    rest.do("PUT", f"{path}/subscription/put/properties", wanted["put"])
    server.kill_and_start()
    assert {name: rest.get(f"{path}/subscription/{name}/properties") for name in wanted} == wanted
