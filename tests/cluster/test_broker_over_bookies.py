"""Brokers over bookies as real processes: a topic is served by one, and what each loss stops and does not."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from magnetar.common.metadata.open_store import open_metadata_store
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.common.security.services.service_identity import Service, ServiceIdentity

from tests.certificates import Authority
from tests.cluster.conftest import NewCluster
from tests.cluster.ledger_client import KEYS
from tests.cluster.processes import CLUSTER_NAME, BrokerProcess, Cluster
from tests.faults.traffic import Publisher, assert_promises_kept, keep, read_topic
from tests.integration.harness import eventually
from tests.integration.raw.transcript import ConnectionEnded, line, numbered, payload_frame
from tests.integration.rest import Rest

SESSION_S = 3.0
SHORT_SESSION = {"metadataStoreSessionTimeoutMillis": str(int(SESSION_S * 1000))}
QUICK_TO_MISS_A_BOOKIE = {
    "magnetarAddEntryTimeoutSeconds": "1",
    "bookkeeperClientTimeoutInSeconds": "1",
}
QUICK_TIMEOUTS = {**QUICK_TO_MISS_A_BOOKIE, "magnetarNoQuorumTimeoutSeconds": "2"}
"""For tests that wait for a refusal: where none may come, a disk may well be busy for so long."""
TAKEOVER_SECONDS_MAX = 60.0


def events(broker: BrokerProcess, event: str) -> list[dict[str, object]]:
    """The broker's log lines of an event."""
    lines = [one for one in broker.log_path.read_text().splitlines() if one.startswith("{")]
    return [one for one in map(json.loads, lines) if one.get("event") == event]


@pytest.fixture
def cluster(new_cluster: NewCluster) -> Cluster:
    return new_cluster()


@pytest.mark.full
def test_the_topics_of_a_broker_that_stops_are_all_served_by_the_other(cluster: Cluster, topic: str) -> None:
    first, second = cluster.broker(), cluster.broker()
    first.start()
    with line(first.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        positions = c.publish(*numbered(100))
        c.flow(10)
        c.expect_messages(10)
        c.ack(positions[9], cumulative=True)
    second.start()
    assert second.where(topic) == first.endpoint.service_url
    first.stop()
    eventually(lambda: second.serves(topic), "the other takes over", TAKEOVER_SECONDS_MAX)
    with line(second.endpoint) as c:
        c.subscribe(topic)
        c.flow(1_000)
        assert [m.payload for m in c.expect_messages(90)] == numbered(90, 10)
        c.open_producer(topic)
        assert c.publish(b"more")[0] > positions[-1]
    second.stop()


@pytest.mark.full
def test_the_persistence_of_a_namespace_is_how_its_new_ledgers_are_made(cluster: Cluster) -> None:
    broker = cluster.broker()
    broker.start()
    rest = Rest(broker.endpoint)
    quorums = {"bookkeeperEnsemble": 3, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}
    namespace = rest.new_namespace(persistence=quorums)
    topic, path = f"persistent://{namespace}/t", f"/persistent/{namespace}/t/internalStats"
    with line(broker.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        ((entries, _),) = c.publish(b"entry")
        (cursor,) = rest.get(path)["cursors"].values()
    assert made_with(cluster, entries, cursor["cursorLedger"]) == [(3, 2, 1), (3, 2, 1)]
    rest.do("DELETE", f"/namespaces/{namespace}/persistence")
    broker.kill()
    broker.start()
    with line(broker.endpoint) as c:
        c.open_producer(topic)
        ((entries, _),) = c.publish(b"entry")
    assert made_with(cluster, entries) == [(3, 3, 2)]
    broker.stop()


def made_with(cluster: Cluster, *ledger_ids: int) -> list[tuple[int, int, int]]:
    """Ensemble size, write and ack quorum of ledgers, from metadata."""

    async def read() -> list[tuple[int, int, int]]:
        metadata = await open_metadata_store(cluster.etcd.url)
        try:
            found = [await metadata.get(KEYS.ledger(each)) for each in ledger_ids]
        finally:
            await metadata.close()
        values = [decode(LedgerMetadata, each.value) for each in found if each is not None]
        return [(each.ensemble_size, each.write_quorum, each.ack_quorum) for each in values]

    return asyncio.run(read())


@pytest.mark.full
def test_a_broker_that_stood_still_for_too_long_confirms_and_delivers_nothing_more_and_begins_anew(
    cluster: Cluster, topic: str
) -> None:
    first, second = cluster.broker(SHORT_SESSION), cluster.broker()
    first.start()
    keep(first.endpoint, topic)
    with line(first.endpoint) as c, line(first.endpoint) as consumer:
        c.open_producer(topic)
        positions = c.publish(*numbered(10))
        consumer.subscribe(topic, "read")
        second.start()
        first.pause()
        try:
            c.send_bytes(b"".join(payload_frame(1, n, b"late %d" % n) for n in range(10, 20)))
            consumer.flow(1_000)
            eventually(lambda: second.serves(topic), "the other takes over", TAKEOVER_SECONDS_MAX)
            with line(second.endpoint) as d:
                d.open_producer(topic)
                d.publish(b"from the new owner")
        finally:
            first.resume()
        told = c.expect_closed(60.0) + consumer.expect_closed(60.0)
        assert not [frame for frame in told if frame.name in ("send_receipt", "message")]
    eventually(lambda: bool(events(first, "serving again")), "the former owner begins anew")
    eventually(lambda: first.where(topic) == second.endpoint.service_url, "it knows who serves now")
    there = read_topic(second.endpoint, topic)
    assert list(there.values()) == [*numbered(10), b"from the new owner"]
    assert list(there)[:10] == positions
    second.stop()
    eventually(lambda: first.serves(topic), "it is the owner again", TAKEOVER_SECONDS_MAX)
    assert read_topic(first.endpoint, topic) == there
    first.stop()


@pytest.mark.full
@pytest.mark.parametrize("loss", ["killed", "paused"])
def test_losing_etcd_for_longer_than_the_session_stops_neither_publishing_nor_consuming(
    cluster: Cluster, topic: str, loss: str
) -> None:
    broker = cluster.broker(SHORT_SESSION)
    broker.start()
    keep(broker.endpoint, topic)
    lose, regain = {
        "killed": (cluster.etcd.kill, cluster.etcd.start),
        "paused": (cluster.etcd.pause, cluster.etcd.resume),
    }[loss]
    with line(broker.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        c.flow(1_000_000)

        def publish_and_receive(first: int) -> None:
            c.send_bytes(b"".join(payload_frame(1, n, b"%d" % n) for n in range(first, first + 10)))
            frames = [c.receive() for _ in range(20)]
            receipts = [frame for frame in frames if frame.name == "send_receipt"]
            messages = [frame for frame in frames if frame.name == "message"]
            assert [frame.payload for frame in messages] == numbered(10, first)
            c.ack(receipts[-1].position, cumulative=True)

        publish_and_receive(0)
        sent = 10
        lose()
        try:
            until = time.monotonic() + 2 * SESSION_S
            while time.monotonic() < until:
                publish_and_receive(sent)
                sent += 10
                time.sleep(0.05)
            assert events(broker, "metadata does not answer: topics prove their ownership on the bookies")
        finally:
            regain()
        if loss == "killed":
            # An etcd that starts again gives sessions their time anew. One that stood still says that the
            # session has ended: then the broker gives everything up, and takes it again.
            eventually(lambda: bool(events(broker, "metadata answers again")), "metadata answers again")
            publish_and_receive(sent)
            sent += 10
    eventually(lambda: can_make(broker, topic + "-new"), "topics can be made again", TAKEOVER_SECONDS_MAX)
    assert list(read_topic(broker.endpoint, topic).values()) == numbered(sent)
    broker.stop()


def can_make(broker: BrokerProcess, topic: str) -> bool:
    """Whether a topic can be made, now."""
    try:
        with line(broker.endpoint) as c:
            c.open_producer(topic)
            c.publish(b"made when etcd was back")
    except (AssertionError, ConnectionEnded, OSError):
        return False
    return True


@pytest.mark.full
def test_without_etcd_and_without_a_quorum_clients_are_closed(cluster: Cluster, topic: str) -> None:
    broker = cluster.broker(SHORT_SESSION)
    broker.start()
    with line(broker.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        c.publish(*numbered(10))
        cluster.etcd.pause()
        for bookie in cluster.bookies[:2]:
            bookie.pause()
        try:
            c.expect_closed(60.0)
        finally:
            for bookie in cluster.bookies[:2]:
                bookie.resume()
            cluster.etcd.resume()
    eventually(lambda: can_make(broker, topic + "-new"), "it serves again", TAKEOVER_SECONDS_MAX)
    with line(broker.endpoint) as c:
        c.subscribe(topic)
        c.flow(100)
        assert [m.payload for m in c.expect_messages(10)] == numbered(10)
    broker.stop()


def test_losing_one_bookie_of_three_stops_neither_publishing_nor_reading(
    cluster: Cluster, topic: str
) -> None:
    broker = cluster.broker(QUICK_TO_MISS_A_BOOKIE)
    broker.start()
    keep(broker.endpoint, topic)
    publisher = Publisher(broker.endpoint, topic, "steady", in_flight=50)
    publisher.start()
    publisher.more_receipts(200)
    cluster.bookies[0].kill()
    publisher.more_receipts(1_000)
    publisher.finish()
    got = read_topic(broker.endpoint, topic)
    assert not publisher.refused
    assert_promises_kept(publisher, got)
    broker.kill_and_start()  # recovery, with one bookie gone
    assert read_topic(broker.endpoint, topic) == got
    cluster.bookies[0].start()
    broker.stop()


@pytest.mark.full
def test_too_few_bookies_are_told_to_clients_and_all_goes_on_when_they_are_back(
    cluster: Cluster, topic: str
) -> None:
    broker = cluster.broker(QUICK_TIMEOUTS)
    broker.start()
    for bookie in cluster.bookies[1:]:
        bookie.stop()
    with line(broker.endpoint) as c:
        c.open_producer(topic)
        c.send_bytes(payload_frame(1, 0, b"nowhere to go"))
        refused = c.receive(60.0)
        assert refused.name == "send_error"
        assert "needs 3 bookies" in refused.command.message
        c.expect("close_producer", producer_id=1)
        request_id = c.ask_subscribe(topic)
        assert "needs 3 bookies" in c.expect_error(request_id, "PersistenceError")
    for bookie in cluster.bookies[1:]:
        bookie.start()

    def works() -> bool:
        with line(broker.endpoint) as c:
            c.open_producer(topic)
            c.send_bytes(payload_frame(1, 0, b"hello"))
            return c.receive().name == "send_receipt"

    eventually(works, "publishing works again")
    with line(broker.endpoint) as c:
        c.subscribe(topic)
        c.flow(10)
        assert c.expect("message").payload == b"hello"
    broker.stop()


@pytest.mark.full
def test_a_broker_and_its_bookies_speak_mutual_tls_when_told_to(
    new_cluster: NewCluster, tmp_path: Path, topic: str
) -> None:
    authority = Authority(tmp_path)
    identities = (ServiceIdentity(CLUSTER_NAME, each) for each in (Service.BOOKIE, Service.BROKER))
    bookie, broker_pair = (authority.issue(each.service.value, each.uri) for each in identities)
    cluster = new_cluster(
        bookie_settings={
            "tlsCertificatePath": str(bookie.certificate),
            "tlsKeyStore": str(bookie.key),
            "tlsTrustStore": str(authority.certificate),
            "tlsClientAuthentication": "true",
        }
    )
    trusting = {"bookkeeperTLSTrustCertsFilePath": str(authority.certificate), **QUICK_TIMEOUTS}
    known = {
        "bookkeeperTLSClientAuthentication": "true",
        "bookkeeperTLSCertificateFilePath": str(broker_pair.certificate),
        "bookkeeperTLSKeyFilePath": str(broker_pair.key),
    }
    broker = cluster.broker({**trusting, **known})
    broker.start()
    with line(broker.endpoint) as c:
        c.subscribe(topic)
        c.open_producer(topic)
        c.publish(*numbered(100))
        c.flow(100)
        assert [m.payload for m in c.expect_messages(100)] == numbered(100)
    broker.stop()
    stranger = cluster.broker(trusting)
    stranger.start()
    with line(stranger.endpoint) as c:
        c.open_producer(topic + "-new")
        c.send_bytes(payload_frame(1, 0, b"from nobody they know"))
        assert c.receive(60.0).name == "send_error"
    stranger.kill()
