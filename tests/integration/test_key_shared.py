"""Key_Shared with real clients: keys stay with one consumer, in order, while consumers come and go."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pulsar
import pytest

from tests.integration.clients import drain, drain_all, expect_nothing, receive
from tests.integration.harness import Endpoint, eventually

KEY_SHARED = pulsar.ConsumerType.KeyShared
EARLIEST = pulsar.InitialPosition.Earliest
KEYS = 40

NewClient = Callable[..., pulsar.Client]


def sticky(*ranges: tuple[int, int]) -> pulsar.ConsumerKeySharedPolicy:
    return pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=list(ranges))


def payload(key: int, number: int) -> bytes:
    return b"%d:%d" % (key, number)


def publish_rounds(producer: pulsar.Producer, first: int, rounds: int) -> None:
    """In each round one message of each key, numbered by round."""
    for number in range(first, first + rounds):
        for key in range(KEYS):
            producer.send_async(payload(key, number), None, partition_key=f"key-{key}")
    producer.flush()


class Worker:
    """Receives and acknowledges on a thread of its own, until told to stop; `seen` is in order."""

    def __init__(self, consumer: pulsar.Consumer, log: list[tuple[str, int, int]], name: str) -> None:
        self._consumer, self._log, self._name = consumer, log, name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                message = self._consumer.receive(50)
            except pulsar.Timeout:
                continue
            key, number = map(int, message.data().split(b":"))
            # Written down before it is acknowledged: nobody else may have the key's next one by then.
            self._log.append((self._name, key, number))
            self._consumer.acknowledge(message)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_keys_stay_in_order_while_three_consumers_join_and_leave(new_client: NewClient, topic: str) -> None:
    log: list[tuple[str, int, int]] = []
    workers: dict[str, tuple[pulsar.Client, Worker]] = {}

    def join(name: str) -> None:
        client = new_client()
        consumer = client.subscribe(
            topic, "sub", KEY_SHARED, consumer_name=name, receiver_queue_size=20, initial_position=EARLIEST
        )
        workers[name] = (client, Worker(consumer, log, name))

    def leave(name: str) -> None:
        client, worker = workers.pop(name)
        worker.stop()
        client.close()

    producer = new_client().create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    join("one")
    publish_rounds(producer, 0, 10)
    join("two")
    publish_rounds(producer, 10, 10)
    join("three")
    publish_rounds(producer, 20, 10)
    leave("one")
    publish_rounds(producer, 30, 10)
    leave("two")
    publish_rounds(producer, 40, 10)
    eventually(lambda: len({(key, number) for _, key, number in log}) == KEYS * 50, "everything came")
    leave("three")
    by_key: dict[int, list[int]] = defaultdict(list)
    for _, key, number in log:
        if number not in by_key[key]:
            # What a leaver had in its queue comes again, and so does what follows it.
            by_key[key].append(number)
    assert all(numbers == list(range(50)) for numbers in by_key.values())
    assert {name for name, _, _ in log} == {"one", "two", "three"}


def test_new_consumer_waits_only_for_keys_with_pending_messages(new_client: NewClient, topic: str) -> None:
    old = new_client().subscribe(topic, "sub", KEY_SHARED, consumer_name="old")
    producer = new_client().create_producer(topic, batching_enabled=False)
    for key in range(KEYS):
        producer.send(payload(key, 0), partition_key=f"key-{key}")
    held = [receive(old) for _ in range(KEYS)]
    new = new_client().subscribe(topic, "sub", KEY_SHARED, consumer_name="new")
    for number in (1, 2):
        for key in range(2 * KEYS):
            producer.send(payload(key, number), partition_key=f"key-{key}")
    at_once = {int(receive(new).data().split(b":")[0])}  # keys that nobody holds flow
    while True:
        try:
            at_once.add(int(new.receive(500).data().split(b":")[0]))
        except pulsar.Timeout:
            break
    assert all(key >= KEYS for key in at_once), "keys that the old consumer holds wait"
    for message in held:
        old.acknowledge(message)
    waited = [tuple(map(int, receive(new).data().split(b":"))) for _ in range(2)]
    assert all(key < KEYS for key, _ in waited)


def test_sticky_consumers_get_just_their_ranges(new_client: NewClient, topic: str) -> None:
    producer = new_client().create_producer(topic, batching_enabled=False)
    lower = new_client().subscribe(
        topic, "sub", KEY_SHARED, initial_position=EARLIEST, key_shared_policy=sticky((0, 6066))
    )
    exact = new_client().subscribe(topic, "sub", KEY_SHARED, key_shared_policy=sticky((6067, 6067)))
    producer.send(b"the vector of the contract", partition_key="Order-3459134")
    assert drain(exact, 1) == [b"the vector of the contract"]
    expect_nothing(lower)
    with pytest.raises(pulsar.ConsumerAssignError):
        new_client().subscribe(topic, "sub", KEY_SHARED, key_shared_policy=sticky((6000, 7000)))
    with pytest.raises(pulsar.ConsumerBusy):
        new_client().subscribe(topic, "sub", KEY_SHARED)


def test_unassigned_keys_wait_for_a_consumer(new_client: NewClient, topic: str) -> None:
    producer = new_client().create_producer(topic, batching_enabled=False)
    lower = new_client().subscribe(
        topic, "sub", KEY_SHARED, initial_position=EARLIEST, key_shared_policy=sticky((0, 6066))
    )
    producer.send(b"unclaimed", partition_key="Order-3459134")
    expect_nothing(lower)
    upper = new_client().subscribe(topic, "sub", KEY_SHARED, key_shared_policy=sticky((6067, 65535)))
    assert drain(upper, 1) == [b"unclaimed"]


def test_batches_by_key_keep_each_key_with_one_consumer(new_client: NewClient, topic: str) -> None:
    consumers = [
        new_client().subscribe(topic, "sub", KEY_SHARED, consumer_name=f"c{number}") for number in range(3)
    ]
    producer = new_client().create_producer(
        topic,
        batching_enabled=True,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_publish_delay_ms=20,
        block_if_queue_full=True,
    )
    publish_rounds(producer, 0, 20)
    owners: dict[int, int] = {}
    numbers: dict[int, list[int]] = defaultdict(list)
    deadline = time.monotonic() + 30
    while sum(map(len, numbers.values())) < KEYS * 20 and time.monotonic() < deadline:
        for index, consumer in enumerate(consumers):
            for key, number in (map(int, each.split(b":")) for each in drain_all(consumer, quiet_ms=50)):
                assert owners.setdefault(key, index) == index
                numbers[key].append(number)
    assert numbers == {key: list(range(20)) for key in range(KEYS)}
    assert len(set(owners.values())) == 3


def test_the_ordering_key_comes_before_the_key(new_client: NewClient, topic: str) -> None:
    exact = new_client().subscribe(topic, "sub", KEY_SHARED, key_shared_policy=sticky((6067, 6067)))
    producer = new_client().create_producer(topic, batching_enabled=False)
    producer.send(b"not this", partition_key="Order-3459134", ordering_key="something else")
    producer.send(b"this", partition_key="something else", ordering_key="Order-3459134")
    assert drain(exact, 1) == [b"this"]
    expect_nothing(exact)


def first_of(
    one: pulsar.Consumer, other: pulsar.Consumer
) -> tuple[pulsar.Message, pulsar.Consumer, pulsar.Consumer]:
    """The first message that comes to either, who got it, and who did not."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for owner, idle in ((one, other), (other, one)):
            try:
                return owner.receive(200), owner, idle
            except pulsar.Timeout:
                continue
    raise AssertionError("neither consumer got a message")


REQUESTS_MAX = 3
"""Of ten negative acknowledgements in a row: the client looks at them a few times a second."""


def test_negative_acknowledgements_keep_the_order_of_a_key(new_client: NewClient, topic: str) -> None:
    consumer = new_client().subscribe(topic, "sub", KEY_SHARED, negative_ack_redelivery_delay_ms=200)
    other = new_client().subscribe(topic, "sub", KEY_SHARED, negative_ack_redelivery_delay_ms=200)
    producer = new_client().create_producer(topic, batching_enabled=False)
    for number in range(10):
        producer.send(b"%d" % number, partition_key="k")
    first, owner, idle = first_of(consumer, other)
    held = [first, *(receive(owner) for _ in range(9))]
    for message in reversed(held):
        owner.negative_acknowledge(message)
    again = [receive(owner) for _ in range(10)]
    # The client asks in its own time: the later ones first, in another request, when that comes between them.
    groups: list[list[int]] = []
    for number in (int(message.data()) for message in again):
        if not groups or number != groups[-1][-1] + 1:
            groups.append([])
        groups[-1].append(number)
    assert len(groups) <= REQUESTS_MAX
    assert [number for group in reversed(groups) for number in group] == list(range(10))
    assert all(message.redelivery_count() == 1 for message in again)
    expect_nothing(idle)


def test_chunks_of_one_message_stay_together(new_client: NewClient, topic: str) -> None:
    consumers = [new_client().subscribe(topic, "sub", KEY_SHARED) for _ in range(2)]
    options: dict[str, Any] = {"batching_enabled": False, "chunking_enabled": True}
    producer = new_client().create_producer(topic, **options)
    big = b"x" * (6 * 1024 * 1024)
    for number in range(4):
        producer.send(b"%d" % number + big)
    seen: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(seen) < 4 and time.monotonic() < deadline:
        for consumer in consumers:
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            assert len(message.data()) == len(big) + 1
            seen.append(message.data()[:1])
            consumer.acknowledge(message)
    assert sorted(seen) == [b"0", b"1", b"2", b"3"]


def test_non_persistent_topics_divide_keys_too(new_client: NewClient, volatile_topic: str) -> None:
    topic = volatile_topic
    lower = new_client().subscribe(topic, "sub", KEY_SHARED, key_shared_policy=sticky((0, 6066)))
    exact = new_client().subscribe(topic, "sub", KEY_SHARED, key_shared_policy=sticky((6067, 6067)))
    producer = new_client().create_producer(topic, batching_enabled=False)
    producer.send(b"claimed", partition_key="Order-3459134")
    assert receive(exact).data() == b"claimed"
    expect_nothing(lower)


def test_statistics_say_who_has_which_keys_and_what_drains(
    new_client: NewClient, endpoint: Endpoint, topic: str
) -> None:
    old = new_client().subscribe(topic, "sub", KEY_SHARED, consumer_name="old")
    producer = new_client().create_producer(topic, batching_enabled=False)
    for key in range(KEYS):
        producer.send(payload(key, 0), partition_key=f"key-{key}")
    held = [receive(old) for _ in range(KEYS)]
    new_client().subscribe(topic, "sub", KEY_SHARED, consumer_name="new")
    path = topic.replace("://", "/")

    def subscription() -> dict[str, Any]:
        with urllib.request.urlopen(f"{endpoint.http_url}/admin/v2/{path}/stats", timeout=10) as answer:
            stats: dict[str, Any] = json.load(answer)["subscriptions"]["sub"]
            return stats

    stats = subscription()
    assert stats["keySharedMode"] == "AUTO_SPLIT"
    ranges = sorted(each for consumer in stats["consumers"] for each in consumer["keyHashRangeArrays"])
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 65_535
    assert all(before[1] + 1 == after[0] for before, after in pairwise(ranges)), "without gap or overlap"
    draining = {each["consumerName"]: each["drainingHashes"] for each in stats["consumers"]}
    assert 0 < len(draining["old"]) == stats["drainingHashesCount"] < KEYS
    assert draining["new"] == []
    for message in held:
        old.acknowledge(message)
    eventually(lambda: subscription()["drainingHashesCount"] == 0, "everything drained")
    assert subscription()["drainingHashesClearedTotal"] == stats["drainingHashesCount"]
