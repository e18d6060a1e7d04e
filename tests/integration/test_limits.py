"""What happens by time and by size, with policies set over HTTP."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pulsar
import pytest

from tests.integration.clients import drain, expect_nothing, publish, receive
from tests.integration.counters import counter
from tests.integration.harness import Endpoint, eventually
from tests.integration.raw.transcript import line, numbered

SERVER_SETTINGS = {
    "magnetarMessageExpiryCheckIntervalInSeconds": "1",
    "backlogQuotaCheckIntervalInSeconds": "1",
    "retentionCheckIntervalInSeconds": "1",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "brokerDeleteInactiveTopicsFrequencySeconds": "1",
    "managedLedgerMaxEntriesPerLedger": "10",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}

pytestmark = pytest.mark.usefixtures("server")
"""They need a server with these settings."""

KILOBYTE = bytes(1_000)
BEYOND_THE_QUOTA = [*numbered(11), 12 * KILOBYTE]
"""Twelve messages, the last of them too much: whenever the server looks, the others got through."""
EXPIRED = "pulsar_subscription_total_msg_expired"


def admin(endpoint: Endpoint, method: str, path: str, body: Any = None) -> Any:
    """One call of the admin API; fails when it is refused."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{endpoint.http_url}/admin/v2/{path}", data, method=method)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=10) as response:
        answer = response.read()
    return json.loads(answer) if answer else None


def path_of(topic: str) -> str:
    return topic.replace("://", "/")


def make_with(endpoint: Endpoint, topic: str, policy: str, body: Any = None, **query: Any) -> None:
    """Make a topic that has this policy."""
    admin(endpoint, "PUT", path_of(topic))
    parameters = f"?{urllib.parse.urlencode(query)}" if query else ""
    admin(endpoint, "POST", f"{path_of(topic)}/{policy}{parameters}", body)


def topics(endpoint: Endpoint) -> list[str]:
    return list(admin(endpoint, "GET", "persistent/public/default"))


def test_unacknowledged_messages_expire_with_and_without_consumers(
    client: pulsar.Client, endpoint: Endpoint, topic: str
) -> None:
    make_with(endpoint, topic, "messageTTL", messageTTL=1)
    client.subscribe(topic, "absent").close()
    holder = client.subscribe(topic, "holder", consumer_type=pulsar.ConsumerType.Shared)
    publish(client, topic, numbered(10))
    held = [receive(holder) for _ in range(10)]
    eventually(lambda: counter(endpoint, EXPIRED, topic=topic) == 20, "ten messages of each expire")
    holder.negative_acknowledge(held[0])
    back = client.subscribe(topic, "absent")
    expect_nothing(back)
    expect_nothing(holder)
    publish(client, topic, [b"new"])
    assert drain(back, 1) == drain(holder, 1) == [b"new"]


@pytest.mark.full
def test_delayed_messages_expire_before_their_time(
    client: pulsar.Client, endpoint: Endpoint, topic: str
) -> None:
    make_with(endpoint, topic, "messageTTL", messageTTL=1)
    consumer = client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    sent_at = time.monotonic()
    producer.send(b"never", deliver_after=timedelta(seconds=6))
    eventually(lambda: counter(endpoint, EXPIRED, topic=topic) == 1, "the delayed message expires")
    expect_nothing(consumer, quiet_ms=int(max(0.0, sent_at + 6.5 - time.monotonic()) * 1_000))
    producer.send(b"now")
    assert drain(consumer, 1) == [b"now"]


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_request_hold", "ProducerBlockedQuotaExceededError"),
        ("producer_exception", "ProducerBlockedQuotaExceededException"),
    ],
)
@pytest.mark.parametrize("kind", ["destination_storage", "message_age"])
def test_producers_are_disconnected_and_refused_while_a_backlog_is_beyond_its_quota(
    endpoint: Endpoint, topic: str, policy: str, error: str, kind: str
) -> None:
    quota = {"limitSize": 10_000, "limitTime": 1, "policy": policy}
    make_with(endpoint, topic, "backlogQuota", quota, backlogQuotaType=kind)
    with line(endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        c.publish(*BEYOND_THE_QUOTA)
        c.expect("close_producer", producer_id=1)
        refused = c.request("producer", topic=topic, producer_id=2)
        assert "quota" in c.expect_error(refused, error)
        c.flow(100)
        c.ack(c.expect_messages(12)[-1].position, cumulative=True)
        c.open_producer(topic, producer_id=3)
        c.publish(*numbered(3), producer_id=3)


def test_a_client_that_is_held_sends_by_itself_when_the_backlog_is_gone(
    client: pulsar.Client, endpoint: Endpoint, topic: str
) -> None:
    quota = {"limitSize": 10_000, "policy": "producer_request_hold"}
    make_with(endpoint, topic, "backlogQuota", quota, backlogQuotaType="destination_storage")
    consumer = client.subscribe(topic, "sub")
    producer = client.create_producer(topic, batching_enabled=False)
    for payload in BEYOND_THE_QUOTA:
        producer.send(payload)
    eventually(lambda: not counter(endpoint, "pulsar_producers_count", topic=topic), "it is disconnected")
    sent: Future[pulsar.Result] = Future()
    producer.send_async(b"held", lambda result, _: sent.set_result(result))
    drain(consumer, 12)
    assert sent.result(30) == pulsar.Result.Ok
    assert drain(consumer, 1) == [b"held"]


def test_a_client_that_is_to_fail_does(client: pulsar.Client, endpoint: Endpoint, topic: str) -> None:
    quota = {"limitSize": 10_000, "policy": "producer_exception"}
    make_with(endpoint, topic, "backlogQuota", quota, backlogQuotaType="destination_storage")
    client.subscribe(topic, "sub").close()
    publish(client, topic, BEYOND_THE_QUOTA)
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        client.create_producer(topic)


def test_the_slowest_subscription_skips_and_producers_notice_nothing(endpoint: Endpoint, topic: str) -> None:
    quota = {"limitSize": 10_000, "policy": "consumer_backlog_eviction"}
    make_with(endpoint, topic, "backlogQuota", quota, backlogQuotaType="destination_storage")
    with line(endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        c.publish(*[KILOBYTE] * 50)
        eventually(
            lambda: counter(endpoint, "pulsar_subscription_back_log", topic=topic) < 10,
            "the backlog is skipped",
        )
        assert counter(endpoint, "pulsar_storage_backlog_size", topic=topic) <= 9_000
        c.publish(b"still there", first=50)


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
@pytest.mark.parametrize("policy", ["dispatchRate", "subscriptionDispatchRate"])
def test_a_dispatch_rate_delays_and_drops_nothing(
    client: pulsar.Client, endpoint: Endpoint, topic: str, kind: pulsar.ConsumerType, policy: str
) -> None:
    rate = {"dispatchThrottlingRateInMsg": 20, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
    make_with(endpoint, topic, policy, rate)
    client.subscribe(topic, "sub", consumer_type=kind).close()
    payloads = numbered(50)
    publish(client, topic, payloads)
    started = time.monotonic()
    consumer = client.subscribe(topic, "sub", consumer_type=kind)
    assert drain(consumer, 50) == payloads
    assert time.monotonic() - started > 1.3, "20 at once, the others at 20 a second"


def test_removed_dispatch_rate_limits_no_consumer(
    client: pulsar.Client, endpoint: Endpoint, topic: str
) -> None:
    rate = {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 600}
    make_with(endpoint, topic, "dispatchRate", rate)
    consumer = client.subscribe(topic, "sub")
    publish(client, topic, numbered(50))
    receive(consumer)
    expect_nothing(consumer)
    admin(endpoint, "DELETE", f"{path_of(topic)}/dispatchRate")
    assert drain(consumer, 49) == numbered(49, first=1)


def test_a_consumer_may_subscribe_so_often_in_a_period(endpoint: Endpoint, topic: str) -> None:
    rate = {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 600}
    make_with(endpoint, topic, "subscribeRate", rate)
    for _ in range(2):
        with line(endpoint) as c:
            c.subscribe(topic, consumer_id=7, consumer_name="often")
    with line(endpoint) as c:
        request_id = c.request(
            "subscribe",
            topic=topic,
            subscription="sub",
            subType="Exclusive",
            consumer_id=7,
            consumer_name="often",
        )
        assert "subscribe rate" in c.expect_error(request_id, "NotAllowedError")
        c.subscribe(topic, consumer_id=8, consumer_name="often")


def test_acknowledged_messages_are_retained_until_the_policy_is_removed(
    client: pulsar.Client, endpoint: Endpoint, topic: str
) -> None:
    forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    make_with(endpoint, topic, "retention", forever)
    consumer = client.subscribe(topic, "sub")
    for first in range(0, 40, 10):
        publish(client, topic, numbered(10, first=first))
    drain(consumer, 40)
    stored = counter(endpoint, "pulsar_storage_size", topic=topic)
    time.sleep(1.5)  # a look for ledgers to let go has come and gone
    assert counter(endpoint, "pulsar_storage_size", topic=topic) == stored
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [reader.read_next(30_000).data() for _ in range(40)] == numbered(40)
    admin(endpoint, "DELETE", f"{path_of(topic)}/retention")
    eventually(lambda: counter(endpoint, "pulsar_storage_size", topic=topic) < stored, "its ledgers go")


def test_inactive_topic_is_deleted_and_active_topics_stay(
    client: pulsar.Client, endpoint: Endpoint, topic: str
) -> None:
    soon = {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 1,
        "deleteWhileInactive": True,
    }
    subscribed, produced = f"{topic}-subscribed", f"{topic}-produced"
    for name in (topic, subscribed, produced):
        admin(endpoint, "PUT", path_of(name))
    client.subscribe(subscribed, "sub").close()
    producer = client.create_producer(produced)
    publish(client, subscribed, [b"kept"])
    publish(client, topic, [b"lost"])
    for name in (subscribed, produced, topic):
        admin(endpoint, "POST", f"{path_of(name)}/inactiveTopicPolicies", soon)
    eventually(lambda: topic not in topics(endpoint), "the topic that nobody uses is deleted")
    assert {subscribed, produced} <= set(topics(endpoint))
    producer.send(b"still there")
    assert drain(client.subscribe(subscribed, "sub"), 1) == [b"kept"]
    publish(client, topic, [b"a new topic of that name"])
