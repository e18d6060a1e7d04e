"""Topics and their subscriptions over HTTP, with clients at work on them."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pulsar
import pytest

from tests.integration.clients import drain, expect_nothing, publish
from tests.integration.harness import eventually
from tests.integration.rest import Rest


def payloads(count: int) -> list[bytes]:
    return [b"m%d" % number for number in range(count)]


def expect_exactly(client: pulsar.Client, topic: str, subscription: str, expected: list[bytes]) -> None:
    """A new consumer gets this and nothing more; nothing is acknowledged."""
    consumer = client.subscribe(topic, subscription)
    assert drain(consumer, len(expected), acknowledge=False) == expected
    expect_nothing(consumer, 500)
    consumer.close()


def backlog(rest: Rest, path: str, subscription: str) -> int:
    return int(rest.get(f"{path}/stats")["subscriptions"][subscription]["msgBacklog"])


def test_the_life_of_a_topic(rest: Rest, namespace: str) -> None:
    path, name = f"/persistent/{namespace}/t", f"persistent://{namespace}/t"
    assert rest.refused(404, "GET", f"{path}/stats") == f"Topic {name} not found"
    rest.do("PUT", path, {"k": "v"})
    assert rest.refused(409, "PUT", path) == "This topic already exists"
    assert rest.refused(409, "PUT", f"{path}/partitions", 2) == "This topic already exists"
    assert rest.get(f"/persistent/{namespace}") == [name]
    assert rest.get(f"{path}/properties") == {"k": "v"}
    rest.do("PUT", f"{path}/properties", {"x": "y"})
    rest.do("DELETE", f"{path}/properties?key=k")
    assert rest.get(f"{path}/properties") == {"x": "y"}
    rest.do("PUT", f"{path}/unload")
    assert rest.get(f"{path}/properties") == {"x": "y"}
    rest.do("DELETE", path)
    assert rest.refused(404, "DELETE", path) == f"Topic {name} not found"
    assert rest.refused(404, "PUT", f"{path}/unload") == f"Topic {name} not found"
    assert rest.get(f"/persistent/{namespace}") == []


def test_names_are_decoded_once_and_plus_is_a_space(rest: Rest, namespace: str) -> None:
    for segment, local_name in (("sp%20ace", "sp ace"), ("pc%2525x", "pc%25x"), ("u%C3%A9", "u\u00e9")):
        rest.do("PUT", f"/persistent/{namespace}/{segment}")
        assert f"persistent://{namespace}/{local_name}" in rest.get(f"/persistent/{namespace}")
        assert rest.get(f"/persistent/{namespace}/{segment}/stats")["msgInCounter"] == 0


def test_half_a_character_is_refused_and_does_no_harm(rest: Rest, namespace: str) -> None:
    path = f"/persistent/{namespace}/t"
    rest.do("PUT", path)
    for body in (b'{"x": "\\ud800"}', b'{"\\ud800": "x"}'):
        assert "not JSON" in rest.refused(400, "PUT", f"{path}/properties", body)
        assert "not JSON" in rest.refused(400, "PUT", f"/namespaces/{namespace}/properties", body)
    rest.do("PUT", f"{path}/properties", {"x": "\U0001f600"})
    assert rest.get(f"{path}/properties") == {"x": "\U0001f600"}


def test_the_life_of_a_partitioned_topic(rest: Rest, namespace: str) -> None:
    path, name = f"/persistent/{namespace}/p", f"persistent://{namespace}/p"
    more_than_none = "Number of partitions should be more than 0"
    assert rest.refused(406, "PUT", f"{path}/partitions", 0) == more_than_none
    rest.refused(400, "PUT", f"{path}/partitions", "two")
    assert "isn't a partitioned topic" in rest.refused(412, "PUT", f"{path}-partition-0")
    rest.do("PUT", f"{path}/partitions", {"partitions": 2, "properties": {"a": "b"}})
    shown = {"partitions": 2, "deleted": False, "properties": {"a": "b"}}
    assert rest.get(f"{path}/partitions") == shown
    rest.do("PUT", f"{path}/properties", {"c": "d"})
    rest.do("DELETE", f"{path}/properties?key=a")
    assert rest.get(f"{path}/properties") == {"c": "d"}
    rest.refused(412, "PUT", f"{path}/properties", {"c": "d" * 70_000})
    assert rest.refused(409, "PUT", f"{path}/partitions", 2) == "This topic already exists"
    assert rest.refused(409, "PUT", path) == "This topic already exists"
    rest.do("POST", f"{path}/partitions", 4)
    rest.do("POST", f"{path}/partitions", 4)
    fewer = rest.refused(422, "POST", f"{path}/partitions", 3)
    assert fewer == "Desired partitions 3 can't be less than the current partitions 4."
    rest.do("POST", f"{path}/createMissedPartitions")
    assert rest.get(f"/persistent/{namespace}/partitioned") == [name]
    assert rest.get(f"/persistent/{namespace}") == [f"{name}-partition-{index}" for index in range(4)]
    assert "please call delete-partitioned-topic" in rest.refused(409, "DELETE", path)
    assert rest.refused(404, "GET", f"{path}/stats") == f"Topic {name} not found"
    never = rest.refused(404, "GET", f"{path}-partition-9/stats")
    assert never == "Topic partitions were not yet created"
    rest.do("DELETE", f"{path}/partitions")
    assert rest.refused(404, "DELETE", f"{path}/partitions") == f"Topic {name} not found."
    not_one = f"Topic {name} is not the partitioned topic."
    assert rest.refused(409, "POST", f"{path}/partitions", 3) == not_one
    assert rest.get(f"/persistent/{namespace}") == []


def test_figures_of_a_topic_have_pulsars_names(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    consumer = client.subscribe(topic, "s", consumer_name="c", properties={"k": "v"})
    producer = client.create_producer(topic, producer_name="p", properties={"app": "x"})
    for payload in payloads(5):
        producer.send(payload)
    for _ in range(5):
        consumer.acknowledge(consumer.receive(5_000)) if _ < 2 else consumer.receive(5_000)
    eventually(lambda: backlog(rest, path, "s") == 3, "two acknowledgements arrive")
    stats = rest.get(f"{path}/stats")
    assert (stats["msgInCounter"], stats["msgOutCounter"], stats["waitingPublishers"]) == (5, 5, 0)
    assert (stats["backlogQuotaLimitSize"], stats["deduplicationStatus"]) == (-1, "Disabled")
    (publisher,) = stats["publishers"]
    assert (publisher["producerName"], publisher["accessMode"]) == ("p", "Shared")
    assert publisher["metadata"] == {"app": "x"}
    assert publisher["connectedSince"].endswith("Z")
    subscription = stats["subscriptions"]["s"]
    assert (subscription["type"], subscription["activeConsumerName"]) == ("Exclusive", "c")
    (shown,) = subscription["consumers"]
    assert (shown["consumerName"], shown["msgOutCounter"], shown["metadata"]) == ("c", 5, {"k": "v"})
    less = rest.get(f"{path}/stats?excludePublishers=true&excludeConsumers=true")
    assert (less["publishers"], less["subscriptions"]["s"]["consumers"]) == ([], [])
    internal = rest.get(f"{path}/internalStats")
    assert (internal["numberOfEntries"], internal["state"]) == (5, "LedgerOpened")
    assert internal["lastConfirmedEntry"] == f"{internal['ledgers'][-1]['ledgerId']}:4"
    assert internal["cursors"]["s"]["markDeletePosition"] == f"{internal['ledgers'][-1]['ledgerId']}:1"
    assert internal["cursors"]["s"]["active"] is True


@pytest.mark.parametrize("count", ["3", 3.7, {"partitions": "3"}])
def test_the_number_of_partitions_may_be_a_text(rest: Rest, namespace: str, count: Any) -> None:
    path = f"/persistent/{namespace}/p"
    rest.do("PUT", f"{path}/partitions", count)
    assert rest.get(f"{path}/partitions")["partitions"] == 3
    rest.do("POST", f"{path}/partitions", "4")
    assert rest.get(f"{path}/partitions")["partitions"] == 4


def test_a_peek_at_a_subscription_that_does_not_exist_looks_at_the_topic_and_makes_nothing(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    path, name = f"/persistent/{namespace}/t", f"persistent://{namespace}/t"
    rest.do("PUT", path)
    peek = f"{path}/subscription/nobody/position"
    assert rest.refused(404, "GET", f"{peek}/1") == "Message not found"
    publish(client, name, payloads(3))
    for number, payload in enumerate(payloads(3), 1):
        reply = rest.call("GET", f"{peek}/{number}")
        assert (reply.status, reply.body) == (200, payload)
    for number in (4, 0, -1):
        assert rest.refused(404, "GET", f"{peek}/{number}") == "Message not found"
    assert rest.get(f"{path}/subscriptions") == []


def test_statistics_say_when_a_topic_was_created_and_last_published_to(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    path, name = f"/persistent/{namespace}/p", f"persistent://{namespace}/p"
    before_ms = int(time.time() * 1000)
    rest.do("PUT", f"{path}/partitions", 2)
    for part in (0, 1):
        shown = rest.get(f"{path}-partition-{part}/stats")
        created_ms = shown["topicCreationTimeStamp"]
        assert before_ms <= created_ms <= time.time() * 1000
        assert shown["lastPublishTimeStamp"] == 0
    publish(client, f"{name}-partition-1", payloads(1))
    shown = rest.get(f"{path}-partition-1/stats")
    assert created_ms <= shown["lastPublishTimeStamp"] <= time.time() * 1000
    whole = rest.get(f"{path}/partitioned-stats")
    parts = whole["partitions"].values()
    assert whole["topicCreationTimeStamp"] == min(each["topicCreationTimeStamp"] for each in parts)
    assert whole["lastPublishTimeStamp"] == shown["lastPublishTimeStamp"]


def test_figures_of_partitions_add_up(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    topic, path = f"persistent://{namespace}/p", f"/persistent/{namespace}/p"
    rest.do("PUT", f"{path}/partitions", 3)
    rest.do("PUT", f"{path}/subscription/s")
    publish(client, topic, payloads(9))
    whole = rest.get(f"{path}/partitioned-stats")
    assert whole["metadata"] == {"partitions": 3, "deleted": False}
    assert set(whole["partitions"]) == {f"{topic}-partition-{index}" for index in range(3)}
    assert whole["msgInCounter"] == 9
    assert whole["subscriptions"]["s"]["msgBacklog"] == 9
    assert whole["backlogQuotaLimitSize"] == -1
    assert rest.get(f"{path}/partitioned-stats?perPartition=false")["partitions"] == {}
    internal = rest.get(f"{path}/partitioned-internalStats")
    assert sum(each["numberOfEntries"] for each in internal["partitions"].values()) == 9
    gone = rest.refused(404, "GET", f"/persistent/{namespace}/nope/partitioned-stats")
    assert gone == f"Partitioned Topic persistent://{namespace}/nope not found"


def test_figures_of_a_non_persistent_topic(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    topic, path = f"non-persistent://{namespace}/np", f"/non-persistent/{namespace}/np"
    consumer = client.subscribe(topic, "s")
    publish(client, topic, payloads(3))
    stats = rest.get(f"{path}/stats")
    assert stats["msgInCounter"] == 3
    assert set(stats["subscriptions"]["s"]) >= {"msgDropRate", "type"}
    assert rest.get(f"{path}/internalStats")["entriesAddedCounter"] == 3
    assert rest.get(f"/non-persistent/{namespace}") == [topic]
    assert "non-persistent" in rest.refused(405, "POST", f"{path}/subscription/s/skip_all")
    assert "non-persistent" in rest.refused(405, "GET", f"{path}/lastMessageId")
    consumer.close()


def test_subscriptions_are_made_where_they_shall_begin(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    ids = publish(client, topic, payloads(6))
    rest.do("PUT", f"{path}/subscription/latest")
    rest.do("PUT", f"{path}/subscription/earliest", "earliest")
    position = {"ledgerId": ids[2].ledger_id(), "entryId": ids[2].entry_id(), "partitionIndex": -1}
    rest.do("PUT", f"{path}/subscription/third", {**position, "properties": {"p": "q"}})
    rest.do("PUT", f"{path}/subscription/fourth", {**position, "excluded": True})
    rest.do("PUT", f"{path}/subscription/a%252Fb")
    twice = rest.refused(409, "PUT", f"{path}/subscription/a%2Fb")
    assert twice == "Subscription already exists for topic"
    assert "earliest" in rest.refused(400, "PUT", f"{path}/subscription/bogus", "bogus")
    assert sorted(rest.get(f"{path}/subscriptions")) == ["a/b", "earliest", "fourth", "latest", "third"]
    assert rest.get(f"{path}/subscription/third/properties") == {"p": "q"}
    wanted = {"latest": 0, "earliest": 6, "third": 4, "fourth": 3}
    assert {name: backlog(rest, path, name) for name in wanted} == wanted
    expect_exactly(client, topic, "third", payloads(6)[2:])


def test_a_subscription_of_a_topic_that_is_not_there_makes_it_where_that_is_allowed(
    rest: Rest, namespace: str
) -> None:
    rest.do("PUT", f"/persistent/{namespace}/new/subscription/s")
    assert rest.get(f"/persistent/{namespace}/new/subscriptions") == ["s"]
    rest.do("POST", f"/namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False})
    refused = rest.refused(412, "PUT", f"/persistent/{namespace}/other/subscription/s")
    assert refused == "Topic does not exist and cannot be auto-created"


def test_subscriptions_are_deleted_unless_they_are_used(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    consumer = client.subscribe(topic, "s")
    used = rest.refused(412, "DELETE", f"{path}/subscription/s")
    assert used == "Subscription has active connected consumers"
    rest.refused(412, "DELETE", path)
    consumer.close()
    rest.do("DELETE", f"{path}/subscription/s")
    gone = f"Subscription s not found for topic {topic}"
    for method, call in (
        ("DELETE", ""),
        ("POST", "/skip_all"),
        ("POST", "/skip/1"),
        ("POST", "/resetcursor/1"),
        ("POST", "/expireMessages/1"),
        ("GET", "/properties"),
    ):
        assert rest.refused(404, method, f"{path}/subscription/s{call}") == gone


def test_a_used_subscription_is_deleted_by_force(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    rest.do(
        "POST", f"/namespaces/{namespace}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}
    )
    rest.do("PUT", f"{path}/subscription/s")
    client.subscribe(topic, "s")
    rest.do("DELETE", f"{path}/subscription/s?force=true")
    assert rest.get(f"{path}/subscriptions") == []


def test_backlogs_are_skipped_expired_and_read_again(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    sub = f"{path}/subscription/s"
    rest.do("PUT", sub)
    ids = publish(client, topic, payloads(10))
    rest.do("POST", f"{sub}/skip/3")
    assert backlog(rest, path, "s") == 7
    expect_exactly(client, topic, "s", payloads(10)[3:])
    rest.do("POST", f"{sub}/skip_all")
    assert backlog(rest, path, "s") == 0
    rest.do("POST", f"{sub}/resetcursor/0")
    assert backlog(rest, path, "s") == 10
    position = {"ledgerId": ids[6].ledger_id(), "entryId": ids[6].entry_id()}
    rest.do("POST", f"{sub}/resetcursor", position)
    expect_exactly(client, topic, "s", payloads(10)[6:])
    rest.do("POST", f"{sub}/resetcursor", {**position, "excluded": True})
    assert backlog(rest, path, "s") == 3
    rest.do("POST", f"{sub}/resetcursor", {"ledgerId": -1, "entryId": -1})
    rest.do("POST", f"{sub}/expireMessages/100")
    assert backlog(rest, path, "s") == 10
    rest.do("POST", f"{sub}/expireMessages", position)
    assert backlog(rest, path, "s") == 3
    rest.do("POST", f"{path}/all_subscription/expireMessages/0")
    assert backlog(rest, path, "s") == 0
    shown = rest.get(f"{path}/stats")["subscriptions"]["s"]
    assert shown["totalMsgExpired"] == 10
    assert shown["lastExpireTimestamp"] > 0
    rest.do("POST", f"{sub}/resetcursor", "earliest")
    assert backlog(rest, path, "s") == 10
    rest.do("POST", f"{sub}/expireMessages", {"ledgerId": ids[0].ledger_id(), "entryId": 1})
    assert backlog(rest, path, "s") == 8
    assert rest.get(f"{path}/stats")["subscriptions"]["s"]["totalMsgExpired"] == 12
    rest.do("POST", f"{sub}/resetcursor", "latest")
    assert backlog(rest, path, "s") == 0
    assert "latest" in rest.refused(400, "POST", f"{sub}/resetcursor", "sometime")
    rest.refused(400, "POST", f"{sub}/skip/many")
    rest.refused(400, "POST", f"{sub}/resetcursor", {"ledgerId": "one"})


def test_backlogs_of_partitions_are_skipped_at_once_but_not_by_number(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    topic, path = f"persistent://{namespace}/p", f"/persistent/{namespace}/p"
    rest.do("PUT", f"{path}/partitions", 2)
    rest.do("PUT", f"{path}/subscription/s")
    publish(client, topic, payloads(6))
    for call in ("POST skip/1", "GET position/1"):
        method, _, what = call.partition(" ")
        rest.refused(405, method, f"{path}/subscription/s/{what}")
    rest.do("POST", f"{path}/subscription/s/skip_all")
    assert rest.get(f"{path}/partitioned-stats")["subscriptions"]["s"]["msgBacklog"] == 0
    rest.do("POST", f"{path}/subscription/s/resetcursor/0")
    assert rest.get(f"{path}/partitioned-stats")["subscriptions"]["s"]["msgBacklog"] == 6


def test_single_messages_can_be_looked_at(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    rest.do("PUT", f"{path}/subscription/s")
    empty = rest.refused(412, "GET", f"{path}/examinemessage")
    assert empty == "Could not examine messages due to the total message is zero"
    producer = client.create_producer(topic, producer_name="p")
    ids = [
        producer.send(payload, properties={"k 2": "v/2"}, partition_key="key", event_timestamp=1700000000000)
        for payload in payloads(3)
    ]
    second = ids[1]
    name = f"{second.ledger_id()}:{second.entry_id()}"
    for call in (
        "subscription/s/position/2",
        f"ledger/{second.ledger_id()}/entry/{second.entry_id()}",
        "examinemessage?initialPosition=earliest&messagePosition=2",
        "examinemessage?messagePosition=2",
    ):
        reply = rest.call("GET", f"{path}/{call}")
        assert (reply.status, reply.body, reply.headers["X-Pulsar-Message-ID"]) == (200, b"m1", name), call
        assert json.loads(reply.headers["X-Pulsar-PROPERTY"]) == {"k 2": "v/2"}
        assert reply.headers["X-Pulsar-producer-name"] == "p"
        assert reply.headers["X-Pulsar-partition-key"] == "key"
        assert reply.headers["X-Pulsar-event-time"].startswith("2023-11-14T22:13:20")
    assert rest.refused(404, "GET", f"{path}/subscription/s/position/4") == "Message not found"
    assert rest.refused(404, "GET", f"{path}/ledger/999999/entry/0") == "Message id not found"
    last = {
        "ledgerId": ids[2].ledger_id(),
        "entryId": 2,
        "partitionIndex": -1,
        "batchIndex": -1,
        "batchSize": 0,
    }
    assert rest.get(f"{path}/lastMessageId") == last
    assert rest.get(f"{path}/messageid/{int(time.time() * 1000) - 3_600_000}") == {**last, "entryId": 0}
    assert backlog(rest, path, "s") == 3


def test_a_terminated_topic_takes_no_more(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t"
    ids = publish(client, topic, payloads(2))
    last = {
        "ledgerId": ids[1].ledger_id(),
        "entryId": 1,
        "partitionIndex": -1,
        "batchIndex": -1,
        "batchSize": 0,
    }
    for _ in range(2):
        reply = rest.call("POST", f"{path}/terminate")
        assert (reply.status, reply.json) == (200, last)
    assert rest.get(f"{path}/internalStats")["state"] == "Terminated"
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    rest.do("PUT", f"/persistent/{namespace}/p/partitions", 2)
    refused = rest.refused(405, "POST", f"/persistent/{namespace}/p/terminate")
    assert refused == "Termination of a partitioned topic is not allowed"
    reply = rest.call("POST", f"/persistent/{namespace}/p/terminate/partitions")
    assert (reply.status, sorted(reply.json)) == (200, ["0", "1"])
    rest.refused(405, "POST", f"{path}/terminate/partitions")


def test_properties_are_bounded_and_what_is_refused_does_no_harm(rest: Rest, namespace: str) -> None:
    topic, partitioned = f"/persistent/{namespace}/t", f"/persistent/{namespace}/p/partitions"
    kept = {"k": "x" * 40_000}
    rest.do("PUT", topic, kept)
    start = {"ledgerId": -1, "entryId": -1}
    places = [
        (f"{topic}/properties", "PUT", {"l": "x" * 30_000}),
        (f"{topic}/properties", "PUT", {"l": "x" * 900_000}),
        (f"{topic}-2", "PUT", {"l": "x" * 70_000}),
        (partitioned, "PUT", {"partitions": 2, "properties": {"l": "x" * 70_000}}),
        (f"{topic}/subscription/s", "PUT", {**start, "properties": {"l": "x" * 70_000}}),
    ]
    for path, method, body in places:
        refused = rest.call(method, path, body)
        assert refused.status == 412, (path, refused)
        assert "properties" in refused.reason
    assert rest.get(f"{topic}/properties") == kept
    assert rest.get(f"/persistent/{namespace}") == [f"persistent://{namespace}/t"]
    assert rest.get(f"{topic}/subscriptions") == []
    rest.do("PUT", f"{topic}/properties", {"k": "short"})
    space = f"/namespaces/{namespace}/properties"
    rest.do("PUT", space, kept)
    assert rest.call("PUT", space, {"l": "x" * 30_000}).status == 412
    assert rest.call("PUT", f"/namespaces/{namespace}x", {"properties": {"l": "x" * 70_000}}).status == 412
    assert rest.get(space) == kept


def test_properties_that_are_set_at_once_are_all_there(rest: Rest, namespace: str) -> None:
    topic = f"/persistent/{namespace}/t"
    rest.do("PUT", topic)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: rest.do("PUT", f"{topic}/properties", {key: key}), "abcdefgh"))
    assert set(rest.get(f"{topic}/properties")) == set("abcdefgh")


def test_a_subscription_of_a_non_persistent_topic_is_deleted(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    topic = f"/non-persistent/{namespace}/t"
    consumer = client.subscribe(f"non-persistent://{namespace}/t", "s")
    assert rest.call("DELETE", f"{topic}/subscription/s").status == 412
    consumer.close()
    rest.do("DELETE", f"{topic}/subscription/s")
    assert rest.get(f"{topic}/subscriptions") == []
    client.subscribe(f"non-persistent://{namespace}/t", "s").close()
    rest.do("DELETE", f"{topic}/subscription/s?force=true")
    assert rest.get(f"{topic}/subscriptions") == []
