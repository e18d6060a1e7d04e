"""Transactions whose coordinator and topics are with several brokers, which move and die."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.processes import BrokerProcess
from tests.cluster.whole_cluster import WholeCluster, broker_id
from tests.integration.harness import eventually, launched, page_at, temporary_directory
from tests.integration.raw.transaction_line import COORDINATORS, Ids, ask, begin, end, error_of, send_in
from tests.integration.raw.transcript import Line, line, payloads
from tests.integration.rest import Rest

SETTINGS = {"transactionCoordinatorEnabled": "true"}

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def shared_pair(request: pytest.FixtureRequest) -> Iterator[WholeCluster]:
    """Two brokers over three bookies, for all tests of the module."""
    directory = temporary_directory()
    failed_before = request.session.testsfailed
    with WholeCluster.serving(directory, brokers=2, discoveries=0, broker_settings=SETTINGS) as cluster:
        yield cluster
    if request.session.testsfailed > failed_before:
        print(f"kept for a look: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def pair(shared_pair: WholeCluster) -> WholeCluster:
    """All of it serves when a test begins."""
    shared_pair.mend()
    launched.update({one.log_path: one for one in shared_pair.processes})
    return shared_pair


def partition(coordinator: int) -> str:
    return f"{COORDINATORS}-partition-{coordinator}"


@contextmanager
def at_owner(cluster: WholeCluster, topic: str) -> Iterator[Line]:
    """A line to the broker that serves a topic."""
    with line(cluster.owner_of(topic).endpoint) as c:
        yield c


def connect(c: Line, coordinator: int) -> str:
    """Connects to a coordinator; returns the name of the error, "" without."""
    request_id = c.request("tcClientConnectRequest", tc_id=coordinator)
    return error_of(c.expect("tcClientConnectResponse", request_id=request_id).command)


def topics_of_two_brokers(cluster: WholeCluster, topic: str) -> tuple[str, str]:
    """Two topics that different brokers serve."""
    first = cluster.owner_of(topic)
    for number in range(100):
        other = f"{topic}-{number}"
        if cluster.owner_of(other) is not first:
            return topic, other
    raise AssertionError("one broker serves a hundred topics")


def publish(cluster: WholeCluster, coordinating: Line, txn: Ids, topics: tuple[str, ...]) -> None:
    """Publishes one message to each topic in the transaction."""
    assert error_of(ask(coordinating, "addPartitionToTxn", partitions=list(topics), **txn)) == ""
    for topic in topics:
        with at_owner(cluster, topic) as c:
            c.open_producer(topic)
            send_in(c, txn, b"in", 0)


def delivered(cluster: WholeCluster, topic: str, count: int) -> list[bytes]:
    """The messages of a topic from the first one on, and nothing behind them."""
    with at_owner(cluster, topic) as c:
        c.subscribe(topic, f"s-{count}")
        c.flow(10)
        found = payloads(c.expect_messages(count))
        c.expect_quiet()
        return found


def move(cluster: WholeCluster, topic: str) -> BrokerProcess:
    """Has the bundle of a topic moved to another broker; returns that broker."""
    owner = cluster.owner_of(topic)
    other = next(each for each in cluster.brokers if each is not owner)
    path = topic.replace("://", "/")
    status, bundle = page_at(f"{owner.endpoint.http_url}/lookup/v2/topic/{path}/bundle")
    assert status == 200, bundle
    bundle = bundle.strip().strip('"')
    reply = Rest(owner.endpoint).call(
        "PUT", f"/namespaces/pulsar/system/{bundle}/unload?destinationBroker={broker_id(other)}"
    )
    assert reply.status == 204, reply
    eventually(lambda: cluster.owner_of(topic) is other, f"{topic} is with {other.name}")
    return other


@pytest.mark.parametrize("action", ["COMMIT", "ABORT"])
def test_a_transaction_ends_in_the_topics_of_all_brokers(pair: WholeCluster, topic: str, action: str) -> None:
    topics = topics_of_two_brokers(pair, topic)
    with at_owner(pair, partition(0)) as coordinating:
        assert connect(coordinating, 0) == ""
        txn = begin(coordinating)
        publish(pair, coordinating, txn, topics)
        assert end(coordinating, txn, action) == ""
    for each in topics:
        assert delivered(pair, each, int(action == "COMMIT")) == [b"in"] * (action == "COMMIT")


def test_every_coordinator_is_with_the_broker_of_its_partition_and_with_no_other(
    pair: WholeCluster,
) -> None:
    for coordinator in range(16):
        owner = pair.owner_of(partition(coordinator))
        for broker in pair.brokers:
            with line(broker.endpoint) as c:
                expected = "" if broker is owner else "ServiceNotReady"
                assert connect(c, coordinator) == expected


def test_a_moved_coordinator_goes_on_at_its_next_broker(pair: WholeCluster, topic: str) -> None:
    with at_owner(pair, partition(1)) as before:
        txn = begin(before, coordinator=1)
        publish(pair, before, txn, (topic,))
        ended = begin(before, coordinator=1)
        assert end(before, ended, "ABORT") == ""
        move(pair, partition(1))
        assert end(before, txn, "COMMIT") == "TransactionCoordinatorNotFound"
    with at_owner(pair, partition(1)) as after:
        assert end(after, ended, "ABORT") == ""
        assert end(after, ended, "COMMIT") == "InvalidTxnStatus"
        assert end(after, txn, "COMMIT") == ""
        following = begin(after, coordinator=1)
    assert following["txnid_least_bits"] > ended["txnid_least_bits"]
    assert delivered(pair, topic, 1) == [b"in"]


def test_a_coordinator_and_a_topic_that_die_together_lose_nothing(pair: WholeCluster, topic: str) -> None:
    coordinator = 2
    owner = pair.owner_of(partition(coordinator))
    topics = [f"{topic}-{number}" for number in range(20)]
    there = tuple(each for each in topics if pair.owner_of(each) is owner)[:2]
    with line(owner.endpoint) as coordinating:
        committed = begin(coordinating, coordinator=coordinator)
        opened = begin(coordinating, coordinator=coordinator)
        publish(pair, coordinating, committed, there)
        assert end(coordinating, committed, "COMMIT") == ""
        for each in there:
            assert error_of(ask(coordinating, "addPartitionToTxn", partitions=[each], **opened)) == ""
            with at_owner(pair, each) as c:
                c.open_producer(each)
                send_in(c, opened, b"open", 1)
    owner.kill()
    eventually(lambda: pair.owner_of(partition(coordinator)) is not owner, "another broker has it")
    with at_owner(pair, partition(coordinator)) as c:
        assert end(c, committed, "COMMIT") == ""
        assert end(c, opened, "ABORT") == ""
    for each in there:
        assert delivered(pair, each, 1) == [b"in"]
