"""Each policy acts on a topic that is in use: from the answer to its setting to that of its removal.

The topic's own comes before its namespace's, and that before what the broker says, which is no limit at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Line, line, numbered, payload_frame
from tests.integration.rest import Rest

DUPLICATE = (2**64 - 1, 2**64 - 1)
SUB = "sub"
HOUR_S = 3_600
KINDS = ("persistent", "partition", "non-persistent")


@dataclass(frozen=True, slots=True)
class Topic:
    """One that is loaded, with a producer and a consumer."""

    rest: Rest
    namespace: str
    full: str
    path: str
    """Of its policies."""

    def of_namespace(self, name: str, value: Any) -> None:
        self.rest.do("POST", f"/namespaces/{self.namespace}/{name}", value)

    def not_of_namespace(self, name: str) -> None:
        self.rest.do("DELETE", f"/namespaces/{self.namespace}/{name}")

    def of_topic(self, name: str, value: Any) -> None:
        self.rest.do("POST", f"{self.path}/{name}", value)

    def not_of_topic(self, name: str) -> None:
        self.rest.do("DELETE", f"{self.path}/{name}")


@pytest.fixture
def namespace(rest: Rest) -> str:
    return rest.new_namespace()


@pytest.fixture
def used(endpoint: Endpoint, rest: Rest, namespace: str, kind: str) -> Iterator[Topic]:
    """A topic of some kind that somebody uses all the time."""
    domain = "non-persistent" if kind == "non-persistent" else "persistent"
    path = f"/{domain}/{namespace}/t"
    full = f"{domain}://{namespace}/t"
    if kind == "partition":
        rest.do("PUT", f"{path}/partitions", 1)
        full += "-partition-0"
    with line(endpoint) as c:
        c.open_producer(full, 1, producer_name="there")
        c.subscribe(full, SUB, 1, subType="Shared")
        yield Topic(rest, namespace, full, path)


# -- what refuses those who come


def producer_refused(c: Line, topic: str) -> bool:
    request_id = c.request("producer", topic=topic, producer_id=9)
    return _refused(c, request_id, "producer_success", "close_producer", producer_id=9)


def consumer_refused(c: Line, topic: str, name: str = SUB, **fields: Any) -> bool:
    request_id = c.ask_subscribe(topic, name, 9, **{"subType": "Shared", **fields})
    return _refused(c, request_id, "success", "close_consumer", consumer_id=9)


def another_subscription_refused(c: Line, topic: str) -> bool:
    return consumer_refused(c, topic, "other", durable=False)


def durable_subscription_refused(c: Line, topic: str) -> bool:
    c.expect_quiet(0.0)
    if consumer_refused(c, topic, "made"):
        return True
    c.subscribe(topic, "made", 9)
    c.expect("success", request_id=c.request("unsubscribe", consumer_id=9))
    return False


def exclusive_consumer_refused(c: Line, topic: str) -> bool:
    return consumer_refused(c, topic, "exclusive", subType="Exclusive", durable=False)


def often_refused(c: Line, topic: str) -> bool:
    return another_subscription_refused(c, topic) or another_subscription_refused(c, topic)


def late_message_refused(c: Line, topic: str) -> bool:
    now_ms = int(time.time() * 1000)
    metadata = pb.MessageMetadata(
        producer_name="late", sequence_id=0, publish_time=now_ms, deliver_at_time=now_ms + HOUR_S * 1000
    )
    c.open_producer(topic, 9)
    c.send_bytes(payload_frame(9, 0, b"late", metadata))
    return c.receive().name == "send_error"


def second_copy_dropped(c: Line, topic: str) -> bool:
    c.open_producer(topic, 9, producer_name=f"copying-{time.monotonic_ns()}")
    c.publish(b"m", producer_id=9)
    return c.publish(b"m", producer_id=9) == [DUPLICATE]


def _refused(c: Line, request_id: int, success: str, close: str, **ids: int) -> bool:
    frame = c.receive()
    assert frame.command.request_id == request_id, frame
    if frame.name == "error":
        return True
    assert frame.name == success, frame
    c.expect("success", request_id=c.request(close, **ids))
    return False


ONE_RATE = {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": HOUR_S}
NO_RATE = {"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": HOUR_S}
AUTO = "allowAutoSubscriptionCreation"
AT_MOST_A_SECOND = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": 1000}
WHENEVER = {**AT_MOST_A_SECOND, "maxDeliveryDelayInMillis": 0}
SIZE_QUOTA = "backlogQuota?backlogQuotaType=destination_storage"
NO_BACKLOG = {"limitSize": 0, "policy": "producer_exception"}
ANY_BACKLOG = {"limitSize": 2**40, "policy": "producer_exception"}

REFUSING: list[tuple[str, str, Any, Any, Callable[[Line, str], bool], tuple[str, ...]]] = [
    ("maxProducersPerTopic", "maxProducers", 1, 0, producer_refused, KINDS),
    ("maxConsumersPerTopic", "maxConsumers", 1, 0, consumer_refused, KINDS),
    ("maxConsumersPerSubscription", "", 1, 9, consumer_refused, KINDS),
    ("maxSubscriptionsPerTopic", "", 1, 9, another_subscription_refused, KINDS),
    ("autoSubscriptionCreation", "", {AUTO: False}, {AUTO: True}, durable_subscription_refused, KINDS[:2]),
    ("subscriptionTypesEnabled", "", ["Shared"], ["Shared", "Exclusive"], exclusive_consumer_refused, KINDS),
    ("subscribeRate", "", ONE_RATE, NO_RATE, often_refused, KINDS[:2]),
    ("delayedDelivery", "", AT_MOST_A_SECOND, WHENEVER, late_message_refused, KINDS[:2]),
    ("deduplication", "deduplicationEnabled", True, False, second_copy_dropped, KINDS[:2]),
    (SIZE_QUOTA, "", NO_BACKLOG, ANY_BACKLOG, producer_refused, KINDS[:2]),
]
"""Its name in a namespace and a topic, a value that refuses, one that does not, how to see it, for what."""


@pytest.mark.parametrize(
    ("name", "of_topic", "strict", "lenient", "acts", "kind"),
    [(*case[:5], kind) for case in REFUSING for kind in case[5]],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_policy_acts_at_once_on_a_topic_in_use_and_the_topics_own_comes_first(
    endpoint: Endpoint,
    used: Topic,
    name: str,
    of_topic: str,
    strict: Any,
    lenient: Any,
    acts: Callable[[Line, str], bool],
) -> None:
    of_topic = of_topic or name

    def acting() -> bool:
        with line(endpoint) as c:
            return acts(c, used.full)

    assert not acting(), "the broker says nothing"
    used.of_namespace(name, strict)
    assert acting(), "the namespace's"
    used.of_topic(of_topic, lenient)
    assert not acting(), "the topic's before the namespace's"
    used.of_namespace(name, lenient)
    used.of_topic(of_topic, strict)
    assert acting(), "the topic's before the namespace's"
    used.not_of_topic(of_topic)
    assert not acting(), "the namespace's again"
    used.of_namespace(name, strict)
    used.not_of_namespace(name)
    assert not acting(), "the broker's again"


# -- what holds back what is delivered


def rate(messages: int) -> dict[str, Any]:
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": 0,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": HOUR_S,
    }


HOLDING: list[tuple[str, str, Any, Any]] = [
    ("dispatchRate", "dispatchRate", rate(1), rate(0)),
    ("subscriptionDispatchRate", "subscriptionDispatchRate", rate(1), rate(0)),
    ("maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer", 1, 0),
    ("maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription", 1, 0),
    ("", f"{SUB}/dispatchRate", rate(1), rate(0)),
]


@pytest.mark.parametrize(
    ("name", "of_topic", "strict", "lenient"), HOLDING, ids=[case[1].replace("/", "-") for case in HOLDING]
)
def test_consumer_limits_apply_from_setting_to_removal_of_the_policy(
    endpoint: Endpoint, rest: Rest, namespace: str, name: str, of_topic: str, strict: Any, lenient: Any
) -> None:
    topic = Topic(rest, namespace, f"persistent://{namespace}/t", f"/persistent/{namespace}/t")
    with line(endpoint) as p, line(endpoint) as c:
        p.open_producer(topic.full)
        c.subscribe(topic.full, SUB, subType="Shared")
        c.flow(1_000)
        sent = 0

        def send() -> None:
            nonlocal sent
            p.publish(*numbered(5, sent), first=sent)
            sent += 5

        def held() -> list[bytes]:
            """What came all the same; not all of it."""
            send()
            came: list[bytes] = []
            try:
                while len(came) < 5:
                    came.append(c.receive(0.2).payload)
            except TimeoutError:
                return came
            raise AssertionError("nothing is held back")

        send()
        assert len(c.expect_messages(5)) == 5
        if name:
            topic.of_namespace(name, strict)
            came = held()
            topic.of_topic(of_topic, lenient)
            c.expect_messages(5 - len(came))
            topic.not_of_topic(of_topic)
            came = held()
            topic.not_of_namespace(name)
            c.expect_messages(5 - len(came))
        topic.of_topic(of_topic, strict)
        came = held()
        topic.not_of_topic(of_topic)
        c.expect_messages(5 - len(came))
        send()
        c.expect_messages(5)


INT32, INT64 = 2**31 - 1, 2**63 - 1

LARGEST: list[tuple[str, Any]] = [
    ("retention", {"retentionTimeInMinutes": INT32, "retentionSizeInMB": INT64}),
    ("messageTTL", INT32),
    ("deduplicationSnapshotInterval", INT32),
    ("dispatchRate", {**rate(INT32), "dispatchThrottlingRateInByte": INT64, "ratePeriodInSecond": INT32}),
    ("dispatchRate", {**rate(INT32), "dispatchThrottlingRateInByte": INT64, "ratePeriodInSecond": 1}),
    ("subscriptionDispatchRate", {**rate(INT32), "relativeToPublishRate": True, "ratePeriodInSecond": INT32}),
    ("publishRate", {"publishThrottlingRateInMsg": INT32, "publishThrottlingRateInByte": INT64}),
    ("subscribeRate", {"subscribeThrottlingRatePerConsumer": INT32, "ratePeriodInSecond": INT32}),
    ("maxProducers", INT32),
    ("maxUnackedMessagesOnConsumer", INT32),
    ("maxUnackedMessagesOnSubscription", INT32),
    ("inactiveTopicPolicies", {"maxInactiveDurationSeconds": INT32, "deleteWhileInactive": True}),
    ("delayedDelivery", {"active": True, "tickTime": INT64, "maxDeliveryDelayInMillis": INT64}),
    (SIZE_QUOTA, {"limitSize": INT64, "policy": "consumer_backlog_eviction"}),
    ("backlogQuota?backlogQuotaType=message_age", {"limitTime": INT32, "policy": "producer_exception"}),
    (
        "persistence",
        {
            "bookkeeperEnsemble": 1,
            "bookkeeperWriteQuorum": 1,
            "bookkeeperAckQuorum": 1,
            "managedLedgerMaxMarkDeleteRate": 5e-324,
        },
    ),
]


@pytest.mark.parametrize(("name", "value"), LARGEST, ids=lambda each: each if isinstance(each, str) else "")
def test_the_largest_value_that_is_taken_does_no_harm(
    endpoint: Endpoint, rest: Rest, namespace: str, name: str, value: Any
) -> None:
    topic = Topic(rest, namespace, f"persistent://{namespace}/t", f"/persistent/{namespace}/t")
    with line(endpoint) as p, line(endpoint) as c:
        p.open_producer(topic.full)
        c.subscribe(topic.full, SUB, subType="Shared")
        c.flow(1_000)
        topic.of_topic(name, value)
        for first in (0, 5):
            p.publish(*numbered(5, first), first=first)
            c.ack(*[frame.position for frame in c.expect_messages(5)])
        now_ms = int(time.time() * 1000)
        late = pb.MessageMetadata(
            producer_name="p", sequence_id=10, publish_time=now_ms, deliver_at_time=now_ms + 300
        )
        p.send_bytes(payload_frame(1, 10, b"late", late))
        p.expect("send_receipt", sequence_id=10)
        assert c.expect("message").payload == b"late"
        with line(endpoint) as other:
            other.open_producer(topic.full, 2)
            other.subscribe(topic.full, SUB, 2, subType="Shared")
        assert rest.get(f"{topic.path}/stats")["subscriptions"][SUB]["msgBacklog"] == 1
        topic.not_of_topic(name)
        p.publish(b"after", first=11)
        c.expect("message")
