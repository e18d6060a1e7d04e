"""The admin API of two brokers: whichever is asked, the topics and namespaces of both answer."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pulsar
import pytest
from magnetar.common.naming.topic_name import TopicName

from tests.cluster.processes import BrokerProcess
from tests.cluster.whole_cluster import WholeCluster
from tests.integration.harness import Endpoint, eventually, magnetar_command, temporary_directory
from tests.integration.raw.transcript import line
from tests.integration.rest import Rest

QUARTER = 1 << 30
BUNDLES = [f"0x{at * QUARTER:08x}_0x{min((at + 1) * QUARTER, 0xFFFF_FFFF):08x}" for at in range(4)]
PARTITIONS = 8
SETTINGS = {
    "forceDeleteNamespaceAllowed": "true",
    "transactionCoordinatorEnabled": "true",
    # Nothing is killed here, and a busy machine is no reason to lose what is looked at.
    "metadataStoreSessionTimeoutMillis": "30000",
}


@dataclass
class Two:
    """Two brokers; of a namespace that is `shared` the first has the lower half of the ring."""

    brokers: list[BrokerProcess]
    clients: list[pulsar.Client] = field(default_factory=list)

    @property
    def rests(self) -> list[Rest]:
        return [Rest(broker.endpoint) for broker in self.brokers]

    def shared(self, **policies: Any) -> str:
        """A new namespace of which each broker serves a half."""
        namespace = self.rests[0].new_namespace(**policies)
        for at, bundle in enumerate(BUNDLES):
            to = id_of(self.brokers[at // 2])
            path = f"/namespaces/{namespace}/{bundle}/unload?destinationBroker={to}"
            reply = self.rests[0].call("PUT", path)
            assert reply.status in (204, 412), (path, reply)
            topic = topic_in(namespace, at)
            for broker in self.brokers:
                url = self.brokers[at // 2].endpoint.service_url
                eventually(partial(_is_at, broker, topic, url), "it is where it was sent")
        return namespace

    def client(self, at: int = 0) -> pulsar.Client:
        options = {"operation_timeout_seconds": 30, "logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)}
        client = pulsar.Client(self.brokers[at].endpoint.service_url, **options)
        self.clients.append(client)
        return client


def id_of(broker: BrokerProcess) -> str:
    return broker.endpoint.http_url.removeprefix("http://")


def topic_in(namespace: str, quarter: int, domain: str = "persistent", number: int = 0) -> str:
    """The `number`th topic whose name is in that quarter of the ring."""
    for suffix in range(1000):
        name = TopicName.parse(f"{domain}://{namespace}/t-{suffix}")
        if name.hash // QUARTER == quarter:
            if not number:
                return name.full
            number -= 1
    raise AssertionError("there are more names than that")


def path_of(topic: str, *rest: str) -> str:
    return "/" + "/".join([topic.replace("://", "/"), *rest])


@pytest.fixture(scope="module")
def cluster() -> Iterator[WholeCluster]:
    directory = temporary_directory()
    with WholeCluster.serving(directory, brokers=2, discoveries=0, broker_settings=SETTINGS) as cluster:
        yield cluster
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def two(cluster: WholeCluster) -> Iterator[Two]:
    brokers = Two(cluster.brokers)
    yield brokers
    for client in brokers.clients:
        client.close()


def raw(
    endpoint: Endpoint, method: str, path: str, body: bytes | None = None, root: str = "/admin/v2"
) -> tuple[int, Any]:
    """Status and headers of an answer that is not followed; its body among them."""
    port = int(endpoint.http_url.rpartition(":")[2])
    with closing(http.client.HTTPConnection(endpoint.host, port, timeout=20)) as made:
        made.request(method, f"{root}{path}", body, {"Content-Type": "application/json"})
        answer = made.getresponse()
        return answer.status, dict(answer.headers) | {"body": answer.read()}


def test_a_call_on_a_topic_of_the_other_broker_is_sent_on_to_it(two: Two) -> None:
    namespace = two.shared()
    first, second = two.rests
    for quarter, (wrong, right) in ((0, (second, first)), (3, (first, second))):
        topic = topic_in(namespace, quarter)
        wrong.do("PUT", path_of(topic), {"a": "b"})
        for method, path, body in (
            ("GET", path_of(topic, "stats?excludePublishers=true"), None),
            ("HEAD", path_of(topic, "stats"), None),
            ("PUT", path_of(topic, "subscription", "a%252Fb"), b'"earliest"'),
            ("POST", path_of(topic, "subscription", "a%252Fb", "skip_all"), None),
            ("PUT", path_of(topic, "properties"), b'{"c": "d"}'),
            ("DELETE", path_of(topic, "properties?key=a&authoritative=false"), None),
        ):
            status, headers = raw(wrong.endpoint, method, path, body)
            joined = "&" if "?" in path else "?"
            expected = f"{path.replace('&authoritative=false', '')}{joined}authoritative=true"
            assert (status, headers["Location"]) == (307, f"{right.endpoint.http_url}/admin/v2{expected}")
            assert raw(right.endpoint, method, expected, body)[0] in (200, 204)
            status, headers = raw(wrong.endpoint, method, expected, body)
            assert status == 503, "nobody is sent on twice"
            assert method == "HEAD" or "try again" in json.loads(headers["body"])["reason"]
        assert right.get(path_of(topic, "properties")) == {"c": "d"}
        assert wrong.get(path_of(topic, "subscriptions")) == ["a/b"]
        assert wrong.get(path_of(topic, "stats"))["ownerBroker"] == right.endpoint.http_url[len("http://") :]
    assert "not found" in first.refused(404, "GET", path_of(topic_in(namespace, 3, number=7), "stats"))


def test_redirected_request_need_not_send_its_body_first(two: Two) -> None:
    topic = topic_in(two.shared(), 3)
    endpoint = two.brokers[0].endpoint
    port = int(endpoint.http_url.rpartition(":")[2])
    with closing(http.client.HTTPConnection(endpoint.host, port, timeout=20)) as made:
        made.putrequest("PUT", f"/admin/v2{path_of(topic)}")
        made.putheader("Content-Type", "application/json")
        made.putheader("Content-Length", "1000000")
        made.endheaders()
        assert made.getresponse().status == 307


def test_coordinators_of_both_brokers_are_shown_by_each_and_asked_where_they_are(two: Two) -> None:
    root = "/admin/v3/transactions"
    first, second = (replace(rest, root=root) for rest in two.rests)
    listed = first.get("/coordinators")
    assert [each["id"] for each in listed] == list(range(16))
    assert second.get("/coordinators") == listed
    stats = first.get("/coordinatorStats")
    assert second.get("/coordinatorStats") == stats
    assert {each["state"] for each in stats.values()} == {"Ready"}
    for coordinator in (listed[0], listed[-1]):
        urls = [rest.endpoint.service_url for rest in (first, second)]
        right, wrong = (first, second) if coordinator["brokerServiceUrl"] == urls[0] else (second, first)
        path = f"/coordinatorInternalStats/{coordinator['id']}"
        status, headers = raw(wrong.endpoint, "GET", path, root=root)
        assert (status, headers["Location"]) == (
            307,
            f"{right.endpoint.http_url}{root}{path}?authoritative=true",
        )
        assert wrong.get(path) == right.get(path)


def admin(broker: BrokerProcess, *arguments: str) -> str:
    command = [*magnetar_command(), "admin", "--admin-url", broker.endpoint.http_url, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def test_commands_follow_to_the_owner_with_what_they_send(two: Two) -> None:
    topic = topic_in(two.shared(), 3)
    wrong = two.brokers[0]
    admin(wrong, "topics", "create", topic, "--metadata", "a=b")
    admin(wrong, "topics", "create-subscription", topic, "--subscription", "s")
    assert json.loads(admin(wrong, "topics", "get-properties", topic)) == {"a": "b"}
    assert json.loads(admin(wrong, "topics", "subscriptions", topic)) == ["s"]


@pytest.mark.parametrize("asked", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_topic_with_partitions_on_both_brokers_is_one_topic_for_the_api(two: Two, asked: int) -> None:
    namespace, rest = two.shared(), two.rests[asked]
    topic = f"persistent://{namespace}/parts"
    rest.do("PUT", path_of(topic, "partitions"), PARTITIONS)
    rest.do("PUT", path_of(topic, "subscription", "s"), "earliest")
    assert "already exists" in rest.refused(409, "PUT", path_of(topic, "subscription", "s"))
    assert rest.get(path_of(topic, "subscriptions")) == ["s"]
    producer = two.client().create_producer(
        topic,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        batching_enabled=False,
    )
    for number in range(2 * PARTITIONS):
        producer.send(b"%d" % number)
    producer.close()

    stats = rest.get(path_of(topic, "partitioned-stats"))
    assert len({part["ownerBroker"] for part in stats["partitions"].values()}) == 2
    assert list(stats["partitions"]) == [f"{topic}-partition-{index}" for index in range(PARTITIONS)]
    assert stats["subscriptions"]["s"]["msgBacklog"] == stats["msgInCounter"] == 2 * PARTITIONS
    internal = rest.get(path_of(topic, "partitioned-internalStats"))["partitions"]
    assert sum(part["entriesAddedCounter"] for part in internal.values()) == 2 * PARTITIONS
    assert len(rest.get(path_of(topic, "internal-info"))["partitions"]) == PARTITIONS
    status = rest.get(path_of(topic, "subscription", "s", "replicatedSubscriptionStatus"))
    assert len(status) == PARTITIONS

    def backlog() -> int:
        found = rest.get(path_of(topic, "partitioned-stats?perPartition=false"))
        return int(found["subscriptions"]["s"]["msgBacklog"])

    rest.do("POST", path_of(topic, "subscription", "s", "skip_all"))
    assert backlog() == 0
    rest.do("POST", path_of(topic, "subscription", "s", "resetcursor", "0"))
    assert backlog() == 2 * PARTITIONS
    time.sleep(1.1)
    rest.do("POST", path_of(topic, "subscription", "s", "expireMessages", "0"))
    assert backlog() == 0
    rest.do("POST", path_of(topic, "subscription", "s", "resetcursor"), {"ledgerId": -1, "entryId": -1})
    assert backlog() == 2 * PARTITIONS
    rest.do("POST", path_of(topic, "all_subscription", "expireMessages", "0"))
    assert backlog() == 0
    rest.do("PUT", path_of(topic, "subscription", "s", "properties"), {"k": "v"})
    assert rest.get(path_of(topic, "subscription", "s", "properties")) == {"k": "v"}
    rest.do("POST", path_of(topic, "trim"))
    rest.do("PUT", path_of(topic, "unload"))

    rest.do("POST", path_of(topic, "partitions"), 2 * PARTITIONS)
    for index in range(2 * PARTITIONS):
        part = f"{topic}-partition-{index}"
        assert rest.get(path_of(part, "subscription", "s", "properties")) == {"k": "v"}
    rest.do("DELETE", path_of(topic, "truncate"))
    ends = rest.call("POST", path_of(topic, "terminate", "partitions")).json
    assert list(ends) == [str(index) for index in range(2 * PARTITIONS)]
    rest.do("DELETE", path_of(topic, "subscription", "s"))
    assert "Subscription s not found" in rest.refused(404, "DELETE", path_of(topic, "subscription", "s"))
    rest.do("DELETE", path_of(topic, "partitions"))
    for each in two.rests:
        assert each.get(path_of(namespace and f"persistent://{namespace}").rstrip("/")) == []


def test_partitions_are_deleted_together_or_not_at_all(two: Two) -> None:
    namespace, rest = two.shared(), two.rests[0]
    topic = f"persistent://{namespace}/parts"
    rest.do("PUT", path_of(topic, "partitions"), PARTITIONS)
    client = two.client()
    parts = [f"{topic}-partition-{index}" for index in range(PARTITIONS)]
    used = next(part for part in parts if TopicName.parse(part).hash // QUARTER == 3)
    producer = client.create_producer(used)
    for each in two.rests:
        reason = each.refused(412, "DELETE", path_of(topic, "partitions"))
        assert used in reason
    assert rest.get(f"/persistent/{namespace}") == sorted(parts)
    consumer = client.subscribe(topic, "s")
    reason = rest.refused(412, "DELETE", path_of(topic, "subscription", "s"))
    assert "active connected consumers" in reason
    consumer.close()
    rest.do("DELETE", path_of(topic, "partitions?force=true"))
    producer.close()
    eventually(lambda: rest.get(f"/persistent/{namespace}/partitioned") == [], "it is gone")


def test_backlogs_of_a_namespace_are_cleared_and_its_subscriptions_deleted_on_both(two: Two) -> None:
    namespace = two.shared()
    client = two.client()
    topics = [topic_in(namespace, quarter) for quarter in range(4)]
    for topic in topics:
        for name in ("s", "other"):
            client.subscribe(topic, name).close()
        client.create_producer(topic).send(b"one")

    def backlogs(rest: Rest, name: str) -> list[int]:
        stats = [rest.get(path_of(topic, "stats"))["subscriptions"] for topic in topics]
        return [each[name]["msgBacklog"] for each in stats if name in each]

    first, second = two.rests
    path = f"/namespaces/{namespace}"
    first.do("POST", f"{path}/{BUNDLES[3]}/clearBacklog/s")
    assert backlogs(first, "s") == [1, 1, 1, 0]
    first.do("POST", f"{path}/clearBacklog/s")
    assert (backlogs(first, "s"), backlogs(second, "other")) == ([0] * 4, [1] * 4)
    assert "not found on any topic" in first.refused(404, "POST", f"{path}/clearBacklog/none")
    second.do("POST", f"{path}/clearBacklog")
    assert backlogs(first, "other") == [0] * 4
    second.do("POST", f"{path}/unsubscribe/s")
    assert (backlogs(first, "s"), backlogs(first, "other")) == ([], [0] * 4)


@pytest.mark.parametrize("asked", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_subscription_that_is_in_use_somewhere_is_deleted_elsewhere_and_again_where_it_was(
    two: Two, asked: int
) -> None:
    namespace, rest = two.shared(), two.rests[asked]
    client = two.client()
    topics = [topic_in(namespace, quarter) for quarter in range(4)]
    used = client.subscribe(topics[3], "s")
    for topic in topics[:3]:
        client.subscribe(topic, "s").close()
    path = f"/namespaces/{namespace}/unsubscribe/s"
    for _ in range(2):
        reason = rest.refused(412, "POST", path)
        assert f"{BUNDLES[3]}: Subscription has active connected consumers (1 of 4 bundles" in reason
        having = [rest.get(path_of(topic, "subscriptions")) for topic in topics]
        assert having == [[], [], [], ["s"]]
    used.close()
    for _ in range(2):
        rest.do("POST", path)
    assert rest.get(path_of(topics[3], "subscriptions")) == []


def test_settings_of_the_load_balancer_change_on_every_broker(two: Two) -> None:
    key, path = "loadBalancerSheddingIntervalMinutes", "/brokers/configuration"
    first, second = two.rests
    assert key in first.get(path)
    assert first.call("POST", f"{path}/{key}/60").status == 200
    for rest in two.rests:
        eventually(partial(_runs_with, rest, key, "60.0"), "it has been heard of")
    assert second.call("DELETE", f"{path}/{key}").status == 200
    for rest in two.rests:
        eventually(partial(_runs_with, rest, key, "1.0"), "it is as it was")


def test_each_broker_says_how_any_of_them_is(two: Two) -> None:
    for rest in two.rests:
        for broker in two.brokers:
            health = rest.call("GET", f"/brokers/health?topicVersion=V2&brokerId={id_of(broker)}")
            assert (health.status, health.body) == (200, b"ok")
            assert rest.get(f"/brokers/test/{id_of(broker)}/ownedNamespaces") is not None
        assert "not active" in rest.refused(404, "GET", "/brokers/health?brokerId=127.0.0.1:1")


def test_statistics_of_a_namespace_come_in_pages_over_both_brokers(two: Two) -> None:
    namespace = two.shared()
    topics = {topic_in(namespace, quarter, number=number) for quarter in range(4) for number in range(3)}
    client = two.client()
    producers = [client.create_producer(topic) for topic in topics]
    for rest in two.rests:
        path = f"/namespaces/{namespace}/topics/stats"
        seen: dict[str, Any] = {}
        while len(seen) < len(topics):
            status, headers = raw(
                rest.endpoint, "GET", f"{path}?limit=5&offset={len(seen)}", root="/admin/magnetar/v1"
            )
            page = json.loads(headers["body"])
            assert (status, page["total"]) == (200, len(topics))
            assert page["topics"], "there are more"
            seen |= page["topics"]
        assert set(seen) == topics
        assert len({stats["ownerBroker"] for stats in seen.values()}) == 2
    for producer in producers:
        producer.close()


@pytest.mark.full
def test_non_persistent_topics_of_both_brokers_are_listed_by_each(two: Two) -> None:
    namespace = two.shared()
    topics = sorted(topic_in(namespace, quarter, "non-persistent") for quarter in range(4))
    clients = [two.client(0), two.client(1)]
    producers = [clients[0].create_producer(topic) for topic in topics]
    for rest in two.rests:
        assert rest.get(f"/non-persistent/{namespace}") == topics
        (alone,) = rest.get(f"/non-persistent/{namespace}/{BUNDLES[3]}")
        assert alone == topic_in(namespace, 3, "non-persistent")
        assert "non empty" in rest.refused(409, "DELETE", f"/namespaces/{namespace}")
        with line(rest.endpoint) as c:
            for mode, listed in (("ALL", topics), ("NON_PERSISTENT", topics), ("PERSISTENT", [])):
                asking = c.request("getTopicsOfNamespace", namespace=namespace, mode=mode)
                found = c.expect("getTopicsOfNamespaceResponse", request_id=asking).command
                assert list(found.topics) == listed
            watching = c.request(
                "watchTopicList",
                namespace=namespace,
                watcher_id=1,
                topics_pattern=f"non-persistent://{namespace}/t.*",
            )
            begun = c.expect("watchTopicListSuccess", request_id=watching).command
            assert list(begun.topic) == topics
            added = topic_in(namespace, 2 - 2 * two.rests.index(rest), "non-persistent", number=5)
            producers.append(clients[0].create_producer(added))
            update = c.expect("watchTopicUpdate", watcher_id=1).command
            assert list(update.new_topics) == [added]
            topics = sorted([*topics, added])
    for producer in producers:
        producer.close()


def test_a_deleted_namespace_is_gone_on_both_brokers_with_all_that_was_loaded(two: Two) -> None:
    namespace = two.shared()
    topics = [topic_in(namespace, quarter) for quarter in range(4)]
    client = two.client()
    for topic in topics:
        before = client.create_producer(topic)
        before.send(b"before")
        before.close()
    # These are to give up soon, so nothing that has to be confirmed is sent by them.
    producers = [client.create_producer(topic, send_timeout_millis=500) for topic in topics]
    for rest in two.rests:
        assert "non empty" in rest.refused(409, "DELETE", f"/namespaces/{namespace}")
    two.rests[0].do("DELETE", f"/namespaces/{namespace}?force=true")
    for producer in producers:
        with pytest.raises(pulsar.PulsarException):
            producer.send(b"after")
        producer.close()
    for rest in two.rests:
        rest.refused(404, "GET", f"/namespaces/{namespace}")
    rest.do("PUT", f"/namespaces/{namespace}")
    for rest in two.rests:
        assert rest.get(f"/persistent/{namespace}") == []
        assert (
            rest.get(f"/brokers/test/{id_of(two.brokers[0])}/ownedNamespaces")
            .keys()
            .isdisjoint(f"{namespace}/{bundle}" for bundle in BUNDLES)
        )


@pytest.mark.parametrize("said_to", [0, pytest.param(1, marks=pytest.mark.full)])
def test_policies_that_one_broker_is_told_hold_on_the_other_within_a_moment(two: Two, said_to: int) -> None:
    namespace = two.shared()
    topic = topic_in(namespace, 3)
    client = two.client()
    held = client.create_producer(topic)
    two.rests[said_to].do("POST", path_of(topic, "maxProducers"), 1)

    def refused() -> bool:
        try:
            client.create_producer(topic).close()
        except pulsar.PulsarException:
            return True
        return False

    began = time.monotonic()
    eventually(refused, "the limit holds", 20)
    print(f"after {time.monotonic() - began:.2f} s")
    for rest in two.rests:
        eventually(partial(_says, rest, path_of(topic, "maxProducers"), 1), "both say so", 20)
    held.close()


def _is_at(broker: BrokerProcess, topic: str, url: str) -> bool:
    return broker.where(topic) == url


def _says(rest: Rest, path: str, value: Any) -> bool:
    return bool(rest.get(path) == value)


def _runs_with(rest: Rest, key: str, value: str) -> bool:
    return bool(rest.get("/brokers/configuration/runtime")[key] == value)
