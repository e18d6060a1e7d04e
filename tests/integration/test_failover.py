"""Failover with the PyPI client: one consumer at a time, in order, across the loss of the active one."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pytest

from tests.integration.clients import drain, expect_nothing, publish, receive
from tests.integration.harness import Endpoint, eventually

SERVER_SETTINGS = {"activeConsumerFailoverDelayTimeMillis": "200"}

EARLIEST = pulsar.InitialPosition.Earliest
FAILOVER = pulsar.ConsumerType.Failover

NewClient = Callable[..., pulsar.Client]


@pytest.fixture
def partitioned(endpoint: Endpoint, topic: str) -> str:
    """A topic with 6 partitions."""
    path = topic.replace("://", "/")
    request = urllib.request.Request(
        f"{endpoint.http_url}/admin/v2/{path}/partitions",
        data=b"6",
        method="PUT",
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10):
        return topic


def stats_of(endpoint: Endpoint, topic: str) -> dict[str, Any]:
    path = topic.replace("://", "/")
    with urllib.request.urlopen(f"{endpoint.http_url}/admin/v2/{path}/stats", timeout=10) as answer:
        shown: dict[str, Any] = json.loads(answer.read())
    return shown


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_the_next_consumer_goes_on_in_order_where_the_active_one_stopped(
    new_client: NewClient, topic: str, endpoint: Endpoint
) -> None:
    names = ("one", "two", "three")
    clients = {name: new_client() for name in names}
    consumers = {
        name: client.subscribe(topic, "sub", FAILOVER, consumer_name=name, initial_position=EARLIEST)
        for name, client in clients.items()
    }
    publish(new_client(), topic, numbered(300))
    seen: list[bytes] = []
    for _ in range(3):
        eventually(
            lambda: "activeConsumerName" in stats_of(endpoint, topic)["subscriptions"]["sub"],
            "somebody is active",
        )
        active = stats_of(endpoint, topic)["subscriptions"]["sub"]["activeConsumerName"]
        seen += drain(consumers[active], 100)
        for name, consumer in consumers.items():
            if name != active:
                expect_nothing(consumer, 50)
        consumers[active].close()
        del consumers[active]
    assert seen == numbered(300)


def test_partitions_spread_over_the_consumers_by_name(new_client: NewClient, partitioned: str) -> None:
    consumers = {
        name: new_client().subscribe(
            partitioned, "sub", FAILOVER, consumer_name=name, initial_position=EARLIEST
        )
        for name in ("C", "A", "B")
    }
    publish(
        new_client(),
        partitioned,
        numbered(120),
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    for name, share in (("A", {0, 3}), ("B", {1, 4}), ("C", {2, 5})):
        messages = [receive(consumers[name]) for _ in range(40)]
        assert {message.message_id().partition() for message in messages} == share
        for message in messages:
            consumers[name].acknowledge(message)
    for consumer in consumers.values():
        expect_nothing(consumer, 50)
    consumers["A"].close()
    publish(
        new_client(),
        partitioned,
        numbered(120),
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    for name, share in (("B", {0, 2, 4}), ("C", {1, 3, 5})):
        assert {receive(consumers[name]).message_id().partition() for _ in range(60)} == share


class Worker(threading.Thread):
    """Consumes and acknowledges one by one, and leaves after so many, whatever else it was given."""

    def __init__(self, consumer: pulsar.Consumer, seen: list[tuple[str, int, int]], name: str) -> None:
        super().__init__(daemon=True)
        self.consumer, self.seen, self.name = consumer, seen, name
        self.stop_after: int | None = None
        self.ended = False

    def run(self) -> None:
        taken = 0
        while not self.ended:
            try:
                message = self.consumer.receive(100)
            except pulsar.Timeout:
                continue
            self.seen.append((self.name, message.message_id().partition(), int(message.data())))
            self.consumer.acknowledge(message)
            taken += 1
            if self.stop_after is not None and taken >= self.stop_after:
                break
        self.consumer.close()


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.ended = True
    for worker in started:
        worker.join(10)


def test_order_of_each_partition_is_kept_while_consumers_come_and_go(
    new_client: NewClient, partitioned: str, workers: list[Worker]
) -> None:
    """What was not acknowledged at a change comes again. Nothing comes for the first time before everything
    in front of it.
    """
    seen: list[tuple[str, int, int]] = []
    for number, name in enumerate("DBAC"):
        consumer = new_client().subscribe(
            partitioned, "sub", FAILOVER, consumer_name=name, initial_position=EARLIEST
        )
        worker = Worker(consumer, seen, name)
        worker.stop_after = 40 * (number + 1) if name != "C" else None
        workers.append(worker)
        worker.start()
    client = new_client()
    for partition in range(6):
        publish(client, f"{partitioned}-partition-{partition}", numbered(100))
    everything = {(partition, number) for partition in range(6) for number in range(100)}
    eventually(lambda: {(partition, number) for _, partition, number in list(seen)} == everything, "all came")
    for partition in range(6):
        firsts = list(dict.fromkeys(number for _, where, number in seen if where == partition))
        assert firsts == list(range(100))
    assert {name for name, _, _ in seen} == set("ABCD")


def test_a_negative_acknowledgement_brings_everything_unacknowledged_again_in_order(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "sub", FAILOVER, negative_ack_redelivery_delay_ms=100)
    publish(client, topic, numbered(10))
    messages = [receive(consumer) for _ in range(10)]
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[4])
    consumer.negative_acknowledge(messages[7])
    again = [receive(consumer) for _ in range(8)]
    assert [message.data() for message in again] == numbered(3, 1) + numbered(5, 5)
    assert {message.redelivery_count() for message in again} == {0}


def test_a_cumulative_acknowledgement_counts_for_the_next_active_consumer(
    new_client: NewClient, topic: str
) -> None:
    first_client = new_client()
    first = first_client.subscribe(topic, "sub", FAILOVER)
    publish(new_client(), topic, numbered(20))
    messages = [receive(first) for _ in range(20)]
    first.acknowledge_cumulative(messages[12])
    second = new_client().subscribe(topic, "sub", FAILOVER)
    first_client.close()
    assert drain(second, 7) == numbered(7, 13)
    expect_nothing(second)
