"""What is done to all topics of a namespace over HTTP, while clients use them."""

from __future__ import annotations

from itertools import pairwise

import pulsar

from tests.integration.clients import publish
from tests.integration.harness import eventually
from tests.integration.rest import Rest


def prepared(rest: Rest, namespace: str, client: pulsar.Client) -> list[str]:
    """Paths of three topics, one of them partitioned, each part with two subscriptions that are behind."""
    names = ["t", "p-partition-0", "p-partition-1"]
    rest.do("PUT", f"/persistent/{namespace}/t")
    rest.do("PUT", f"/persistent/{namespace}/p/partitions", 2)
    for name in names:
        path = f"/persistent/{namespace}/{name}"
        for subscription in ("s1", "a%252Fb"):
            rest.do("PUT", f"{path}/subscription/{subscription}", "earliest")
        publish(client, f"persistent://{namespace}/{name}", [b"m"] * 3)
    return [f"/persistent/{namespace}/{name}" for name in names]


def backlogs(rest: Rest, paths: list[str], subscription: str) -> list[int]:
    found = [rest.get(f"{path}/stats")["subscriptions"].get(subscription) for path in paths]
    return [each["msgBacklog"] for each in found if each]


def test_backlogs_of_a_namespace_are_cleared_also_of_topics_that_are_not_loaded(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    paths = prepared(rest, namespace, client)
    rest.do("PUT", f"/namespaces/{namespace}/unload")
    for _ in range(2):
        rest.do("POST", f"/namespaces/{namespace}/clearBacklog/a%252Fb")
    assert backlogs(rest, paths, "a/b") == [0, 0, 0]
    assert backlogs(rest, paths, "s1") == [3, 3, 3]
    rest.do("POST", f"/namespaces/{namespace}/clearBacklog")
    assert backlogs(rest, paths, "s1") == [0, 0, 0]
    refused = rest.refused(404, "POST", f"/namespaces/{namespace}/clearBacklog/nosub")
    assert refused == f"Subscription nosub not found on any topic of {namespace}"
    assert rest.refused(404, "POST", "/namespaces/public/nope/clearBacklog") == "Namespace does not exist"
    rest.do("POST", f"/namespaces/{rest.new_namespace()}/clearBacklog/nosub")  # nothing is there to clear


def test_subscription_of_all_topics_is_deleted_without_consumers(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    paths = prepared(rest, namespace, client)
    consumer = client.subscribe(f"persistent://{namespace}/p-partition-1", "s1")
    refused = rest.refused(412, "POST", f"/namespaces/{namespace}/unsubscribe/s1")
    assert refused == "Subscription has active connected consumers"
    assert len(backlogs(rest, paths, "s1")) == 3, "none is deleted when one cannot be"
    consumer.close()
    for _ in range(2):
        rest.do("POST", f"/namespaces/{namespace}/unsubscribe/s1")
        assert backlogs(rest, paths, "s1") == []
    assert backlogs(rest, paths, "a/b") == [3, 3, 3]
    rest.do("POST", f"/namespaces/{namespace}/unsubscribe/nosub")


def test_bundle_operation_covers_only_topics_of_the_bundle(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    paths = prepared(rest, namespace, client)
    edges = rest.get(f"/namespaces/{namespace}/bundles")["boundaries"]
    bundles = [f"{lower}_{upper}" for lower, upper in pairwise(edges)]
    positions = {
        bundle: rest.get(f"/namespaces/{namespace}/{bundle}/topicHashPositions")["topicHashPositions"]
        for bundle in bundles
    }
    assert sorted(name for found in positions.values() for name in found) == sorted(
        path.replace("/persistent/", "persistent://", 1) for path in paths
    )
    meant = next(bundle for bundle, found in positions.items() if found)
    within = [path for path in paths if path.replace("/persistent/", "persistent://", 1) in positions[meant]]
    others = [path for path in paths if path not in within]
    rest.do("POST", f"/namespaces/{namespace}/{meant}/clearBacklog/s1")
    assert backlogs(rest, within, "s1") == [0] * len(within)
    assert backlogs(rest, others, "s1") == [3] * len(others)
    rest.do("POST", f"/namespaces/{namespace}/{meant}/clearBacklog")
    rest.do("POST", f"/namespaces/{namespace}/{meant}/unsubscribe/s1")
    assert backlogs(rest, within, "s1") == []
    assert backlogs(rest, within, "a/b") == [0] * len(within)
    assert backlogs(rest, others, "s1") == [3] * len(others)
    for rest_of in ("clearBacklog", "clearBacklog/s1", "unsubscribe/s1"):
        refused = rest.refused(412, "POST", f"/namespaces/{namespace}/0x0_0x8/{rest_of}")
        assert "Invalid upper boundary" in refused
    reason = rest.refused(409, "DELETE", f"/namespaces/{namespace}/{meant}")
    assert "Cannot delete non empty bundle" in reason


def test_clients_come_back_after_their_bundle_was_split_and_unloaded(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    topic = f"persistent://{namespace}/t"
    rest.do("PUT", f"/persistent/{namespace}/t")
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    producer.send(b"before")
    edges = rest.get(f"/namespaces/{namespace}/bundles")["boundaries"]
    for lower, upper in pairwise(edges):
        rest.do("PUT", f"/namespaces/{namespace}/{lower}_{upper}/split?unload=true")
    assert rest.get(f"/namespaces/{namespace}/bundles")["numBundles"] == 8
    producer.send(b"after")
    received = [consumer.receive(10_000) for _ in range(2)]
    for message in received:
        consumer.acknowledge(message)
    assert [message.data() for message in received] == [b"before", b"after"]
    rest.do("PUT", f"/namespaces/{namespace}/unload")
    eventually(lambda: producer.is_connected() and consumer.is_connected(), "clients come back")
    producer.send(b"again")
    # What was acknowledged just before may come once more.
    while (message := consumer.receive(10_000)).data() != b"again":
        assert message.data() in (b"before", b"after")
