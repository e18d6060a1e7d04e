"""Topics move between brokers under traffic: nothing confirmed is lost or reordered, and clients follow."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pulsar
import pytest
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.wire import pulsar_pb2 as pb

from tests.cluster.moving import Follower
from tests.cluster.processes import BrokerProcess, Cluster
from tests.cluster.test_two_brokers import NAMESPACE, knows
from tests.integration.clients import receive
from tests.integration.harness import eventually, temporary_directory
from tests.integration.raw.transcript import Frame, Line, line, numbered, payload_frame
from tests.integration.rest import Reply, Rest

LONG_SESSION = {"metadataStoreSessionTimeoutMillis": "30000"}
"""So that a busy machine costs no session where nothing is killed."""


def host(broker: BrokerProcess) -> str:
    return broker.endpoint.http_url.removeprefix("http://")


def brokers_of(cluster: Cluster, count: int, **settings: str) -> list[BrokerProcess]:
    brokers = [cluster.broker({**LONG_SESSION, **settings}) for _ in range(count)]
    for broker in brokers:
        broker.launch()
    for broker in brokers:
        broker.wait_until_healthy()
    for broker in brokers:
        eventually(partial(knows, Rest(broker.endpoint), count), "all are known")
    return brokers


def bundle_of(topic: str) -> str:
    quarter = TopicName.parse(topic).hash >> 30
    return f"0x{quarter << 30:08x}_0x{min((quarter + 1) << 30, 0xFFFF_FFFF):08x}"


def unload(broker: BrokerProcess, topic: str, to: BrokerProcess | None = None) -> Reply:
    query = "" if to is None else f"?destinationBroker={host(to)}"
    return Rest(broker.endpoint).call("PUT", f"/namespaces/{NAMESPACE}/{bundle_of(topic)}/unload{query}")


def serving(brokers: list[BrokerProcess], topic: str) -> BrokerProcess:
    url = brokers[0].where(topic)
    return next(broker for broker in brokers if broker.endpoint.service_url == url)


@contextmanager
def publishing(follower: Follower) -> Iterator[None]:
    """The follower publishes numbers meanwhile, one after the other."""
    over = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not over.is_set():
                follower.send(b"%d" % len(follower.confirmed))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        follower.close()
    assert not failures, failures


def read_all(at: Line, topic: str, count: int) -> list[bytes]:
    at.subscribe(topic, "to the end", consumer_id=7)
    at.flow(count + 1_000, consumer_id=7)
    return [frame.payload for frame in at.expect_messages(count)]


@pytest.fixture(scope="module")
def two() -> Iterator[list[BrokerProcess]]:
    """Two brokers that no test stops."""
    directory = temporary_directory()
    with Cluster.running(directory) as cluster:
        yield brokers_of(cluster, 2, brokerDeduplicationEnabled="true")
    shutil.rmtree(directory, ignore_errors=True)


def owner_and_other(two: list[BrokerProcess], topic: str) -> tuple[BrokerProcess, BrokerProcess]:
    owner = serving(two, topic)
    return owner, next(broker for broker in two if broker is not owner)


def move(two: list[BrokerProcess], topic: str) -> BrokerProcess:
    """To the other broker, which is returned."""
    owner, other = owner_and_other(two, topic)
    reply = unload(owner, topic, other)
    assert reply.status == 204, reply
    return other


def told_to_go(c: Line, name: str, other: BrokerProcess) -> Frame:
    frame = c.expect(name)
    assert frame.command.assignedBrokerServiceUrl == other.endpoint.service_url
    return frame


def test_a_publisher_follows_its_topic_from_broker_to_broker_and_loses_nothing(
    two: list[BrokerProcess], topic: str
) -> None:
    follower = Follower(two[0].endpoint, topic)
    follower.send(b"0")
    with publishing(follower):
        for asked in (*two, *two, *two):
            owner, other = owner_and_other(two, topic)
            told, at = len(follower.assigned), len(follower.confirmed)
            reply = unload(asked, topic, other)
            assert reply.status == 204, reply
            eventually(partial(lambda n: len(follower.assigned) > n, told), "it is told where to go")
            eventually(partial(lambda n: len(follower.confirmed) > n + 20, at), "it goes on there")
            assert follower.assigned[-1] == other.endpoint.service_url
            assert owner.where(topic) == other.where(topic) == other.endpoint.service_url
    assert follower.looked_up == 1, "it was told every time where to go"
    assert not follower.refused, follower.refused
    with line(serving(two, topic).endpoint) as c:
        assert read_all(c, topic, len(follower.confirmed)) == follower.confirmed


def test_acknowledgements_and_redelivery_counts_move_with_a_topic(
    two: list[BrokerProcess], topic: str
) -> None:
    owner = serving(two, topic)
    with line(owner.endpoint) as c:
        c.subscribe(topic, subType="Shared")
        c.open_producer(topic)
        positions = c.publish(*numbered(5))
        c.flow(100)
        c.expect_messages(5)
        c.ack(positions[1], positions[3])
        ids = [{"ledgerId": ledger, "entryId": entry} for ledger, entry in (positions[0], positions[2])]
        for count in (1, 2):
            c.send("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=ids)
            assert [frame.command.redelivery_count for frame in c.expect_messages(2)] == [count, count]
        other = move(two, topic)
        told_to_go(c, "close_producer", other)
        told_to_go(c, "close_consumer", other)
        c.expect_quiet()
    with line(other.endpoint) as c:
        c.subscribe(topic, subType="Shared")
        c.flow(100)
        found = {frame.payload: frame.command.redelivery_count for frame in c.expect_messages(3)}
        assert set(found) == {b"0", b"2", b"4"}
        assert min(found[b"0"], found[b"2"]) >= 2 > found[b"4"]
        c.expect_quiet()


def test_delayed_messages_are_not_early_and_not_lost_when_their_topic_moves(
    two: list[BrokerProcess], topic: str
) -> None:
    with line(serving(two, topic).endpoint) as c:
        c.subscribe(topic, subType="Shared")
        c.open_producer(topic)
        due_ms = int(time.time() * 1000) + 3_000
        metadata = pb.MessageMetadata(
            producer_name="raw", sequence_id=0, publish_time=due_ms - 3_000, deliver_at_time=due_ms
        )
        c.send_bytes(payload_frame(1, 0, b"later", metadata))
        c.expect("send_receipt", sequence_id=0)
        c.publish(b"now", first=1)
    other = move(two, topic)
    with line(other.endpoint) as c:
        c.subscribe(topic, subType="Shared")
        c.flow(10)
        # Where the move took until then, both are due and come in the order of their positions.
        came_ms = {c.expect("message").payload: time.time() * 1000 for _ in range(2)}
        assert came_ms.keys() == {b"now", b"later"}
        assert came_ms[b"later"] >= due_ms


def test_message_published_before_a_move_is_a_duplicate_after_it(
    two: list[BrokerProcess], topic: str
) -> None:
    with line(serving(two, topic).endpoint) as c:
        c.open_producer(topic, producer_name="raw", user_provided_producer_name=True)
        c.publish(*numbered(10))
    other = move(two, topic)
    with line(other.endpoint) as c:
        opened = c.open_producer(topic, producer_name="raw", user_provided_producer_name=True)
        assert opened.command.last_sequence_id == 9
        again = c.publish(b"8", b"9", b"10", first=8)
        assert again[0] == again[1] == (2**64 - 1, 2**64 - 1) != again[2]
        assert read_all(c, topic, 11) == numbered(11)
        c.expect_quiet()


def test_an_exclusive_producer_takes_its_epoch_along(two: list[BrokerProcess], topic: str) -> None:
    alone: dict[str, Any] = {"producer_access_mode": "Exclusive"}
    with line(serving(two, topic).endpoint) as c:
        epoch = c.open_producer(topic, **alone).command.topic_epoch
        other = move(two, topic)
        told_to_go(c, "close_producer", other)
    with line(other.endpoint) as c:
        assert c.open_producer(topic, topic_epoch=epoch, **alone).command.topic_epoch == epoch
        newcomer = c.request("producer", topic=topic, producer_id=2, producer_access_mode="Exclusive")
        c.expect_error(newcomer, "ProducerFenced")
        fencing: dict[str, Any] = {"producer_access_mode": "ExclusiveWithFencing"}
        with line(other.endpoint) as d:
            assert d.open_producer(topic, **fencing).command.topic_epoch == epoch + 1
            back = move(two, topic)
            told_to_go(d, "close_producer", back)
    with line(back.endpoint) as c:
        stale = c.request("producer", topic=topic, producer_id=1, topic_epoch=epoch, **alone)
        c.expect_error(stale, "ProducerFenced")


def test_a_producer_that_waits_for_a_topic_is_told_to_look_it_up_again(
    two: list[BrokerProcess], topic: str
) -> None:
    with line(serving(two, topic).endpoint) as holder, line(serving(two, topic).endpoint) as c:
        holder.open_producer(topic, producer_access_mode="Exclusive")
        waiting = c.request("producer", topic=topic, producer_id=1, producer_access_mode="WaitForExclusive")
        c.expect("producer_success", request_id=waiting, producer_ready=False)
        other = move(two, topic)
        told_to_go(holder, "close_producer", other)
        c.expect_error(waiting, "ServiceNotReady")


def test_clients_of_a_non_persistent_topic_are_told_where_it_went(
    two: list[BrokerProcess], topic: str
) -> None:
    topic = topic.replace("persistent://", "non-persistent://")
    with line(serving(two, topic).endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        other = move(two, topic)
        told_to_go(c, "close_producer", other)
        told_to_go(c, "close_consumer", other)
    with line(other.endpoint) as c:
        c.subscribe(topic)
        c.flow(10)
        c.open_producer(topic)
        c.send_bytes(payload_frame(1, 0, b"there"))
        assert c.expect("message").payload == b"there"
        c.expect("send_receipt")


def test_a_client_that_knows_nothing_of_it_goes_on_as_well(two: list[BrokerProcess], topic: str) -> None:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(two[0].endpoint.service_url, logger=logger)) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        sent: list[bytes] = []
        got: list[bytes] = []
        for number in range(60):
            sent.append(b"%d" % number)
            producer.send(sent[-1])
            if number % 20 == 10:
                move(two, topic)
            while len(got) < len(sent):
                message = receive(consumer)
                consumer.acknowledge(message)
                if message.data() not in got:  # what was not acknowledged in time comes again
                    got.append(message.data())
        assert got == sent


def test_publisher_follows_the_moved_part_of_a_split_bundle(two: list[BrokerProcess], topic: str) -> None:
    rest = Rest(two[0].endpoint)
    namespace = rest.new_namespace(bundles={"numBundles": 1, "boundaries": ["0x00000000", "0xffffffff"]})
    names = [f"persistent://{namespace}/t-{number}" for number in range(8)]
    low, high = (next(name for name in names if TopicName.parse(name).hash >> 31 == half) for half in (0, 1))
    stays, goes = Follower(two[0].endpoint, low), Follower(two[0].endpoint, high)
    for follower in (stays, goes):
        follower.send(b"0")
    with publishing(stays), publishing(goes):
        reply = rest.call("PUT", f"/namespaces/{namespace}/0x00000000_0xffffffff/split?unload=true")
        assert reply.status == 204, reply
        eventually(lambda: goes.assigned != [], "one part goes")
        at = len(goes.confirmed)
        eventually(lambda: len(goes.confirmed) > at + 20, "its publisher follows")
    assert not stays.assigned
    assert stays.looked_up == goes.looked_up == 1
    assert two[0].where(low) == two[1].where(low) != two[0].where(high) == two[1].where(high)
    for follower in (stays, goes):
        with line(serving(two, follower.topic).endpoint) as c:
            assert read_all(c, follower.topic, len(follower.confirmed)) == follower.confirmed


def test_bundle_that_cannot_be_unloaded_is_refused_and_stays(two: list[BrokerProcess], topic: str) -> None:
    owner = serving(two, topic)
    assert unload(owner, topic, owner).status == 412
    path = f"/namespaces/{NAMESPACE}/{bundle_of(topic)}/unload?destinationBroker=nowhere:1"
    assert "not running" in Rest(owner.endpoint).refused(503, "PUT", path)
    assert owner.serves(topic)
