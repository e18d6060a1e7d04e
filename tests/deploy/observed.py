"""A whole cluster that a real Prometheus watches: clients use it and break its rules, and parts of it fail.

Queries of dashboards are to have something to show, so everything happens here that they are about. How long
it takes decides nothing: what alerts wait for is sixty times shorter, and each step waits for what has to
come of it.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pulsar
import yaml
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.wire import pulsar_pb2 as pb

from tests.cluster.processes import CLUSTER_NAME
from tests.cluster.test_moving import unload
from tests.cluster.whole_cluster import WholeCluster
from tests.deploy.observed_transactions import transact
from tests.deploy.prometheus_server import PrometheusServer
from tests.integration.harness import eventually
from tests.integration.raw.transcript import batch_payload, line, numbered, payload_frame
from tests.integration.rest import Rest
from tests.integration.small_job import offload_all

RULES: Final = Path(__file__).resolve().parents[2] / "helm" / "magnetar" / "rules" / "magnetar.yaml"
NAMESPACE: Final = "public/default"
HISTORY: Final = f"persistent://{NAMESPACE}/history"
"""Offloaded, and read back."""
GONE: Final = f"persistent://{NAMESPACE}/gone"
"""Offloaded, and deleted."""
FAILING: Final = f"persistent://{NAMESPACE}/failing"
"""Jobs give it up."""
STORED: Final = f"persistent://{NAMESPACE}/stored"
"""Read from bookies."""
BUSY: Final = tuple(f"persistent://{NAMESPACE}/busy-{number}" for number in range(4))

MESSAGES: Final = 300
PAUSE_S: Final = 0.02
STEP_SECONDS_MAX: Final = 120.0
RECEIVE_MS_MAX: Final = 60_000
RATE: Final = {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}

BROKER_SETTINGS: Final = {
    "backlogQuotaCheckIntervalInSeconds": "1",
    "defaultRetentionSizeInMB": "-1",
    "defaultRetentionTimeInMinutes": "-1",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "magnetarOffloadCheckIntervalSeconds": "1",
    "magnetarOffloadRefreshIntervalSeconds": "1",
    "magnetarOffloadSweepIntervalSeconds": "1",
    "magnetarOrphanCheckIntervalSeconds": "1",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerOffloadDeletionLagMs": "0",
    "metadataStoreSessionTimeoutMillis": "10000",
    "statsUpdateFrequencyInSecs": "2",
    "transactionCoordinatorEnabled": "true",
}
"""What happens once a minute or an hour happens at once."""
BOOKIE_SETTINGS: Final = {"gcWaitTime": "1000"}


def path_of(topic: str) -> str:
    """Of a topic, in the admin API."""
    return f"/{topic.replace('://', '/')}"


def quick_rules(directory: Path) -> Path:
    """The rules with seconds for minutes in what alerts wait for and look back at (subqueries); what they ask
    stays as it is.
    """
    groups = yaml.safe_load(RULES.read_text())
    for group in groups["groups"]:
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"\[(\d+)m:(\d+)m\]", r"[\1s:\2s]", rule["expr"])
            if waits := rule.get("for"):
                number, unit = re.fullmatch(r"(\d+)([mhd])", waits).groups()  # type: ignore[union-attr]
                rule["for"] = f"{int(number) * {'m': 1, 'h': 60, 'd': 1440}[unit]}s"
    path = directory / "rules.yaml"
    path.write_text(yaml.safe_dump(groups))
    return path


class Traffic:
    """Producers and consumers that go on until the end, whatever fails meanwhile."""

    def __init__(self, service_url: str) -> None:
        self._over = threading.Event()
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self._client = pulsar.Client(service_url, operation_timeout_seconds=60, logger=logger)
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Traffic:
        for topic in BUSY:
            self._client.subscribe(topic, "nobody-reads-this").close()
            self._begin(self._publish, self._client.create_producer(topic, block_if_queue_full=True))
            for kind in (pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared):
                consumer = self._client.subscribe(
                    topic, f"as-{kind.name}", kind, negative_ack_redelivery_delay_ms=200
                )
                self._begin(self._consume, consumer)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def _begin(self, work: Callable[[Any], None], of: Any) -> None:
        thread = threading.Thread(target=work, args=(of,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _publish(self, producer: pulsar.Producer) -> None:
        number = 0
        while not self._over.wait(PAUSE_S):
            number += 1
            later = {"deliver_after": timedelta(hours=1)} if number % 20 == 0 else {}
            with contextlib.suppress(Exception):
                producer.send_async(
                    b"%d" % number, lambda *_: None, partition_key=f"key {number % 7}", **later
                )

    def _consume(self, consumer: pulsar.Consumer) -> None:
        number = 0
        while not self._over.is_set():
            try:
                message = consumer.receive(500)
            except pulsar.Timeout:
                continue
            number += 1
            with contextlib.suppress(Exception):
                if number % 10:
                    consumer.acknowledge(message)
                else:
                    consumer.negative_acknowledge(message)


@dataclass
class Observed:
    """The cluster, its Prometheus, and which alerts fired meanwhile."""

    cluster: WholeCluster
    prometheus: PrometheusServer
    objects: Path
    began_s: float
    told: dict[str, set[str]] = field(default_factory=dict)
    """By what had happened; without those that are about how busy the machine is."""

    @property
    def rest(self) -> Rest:
        return Rest(self.cluster.brokers[0].endpoint)

    def watch(self, what: str, expected: set[str]) -> None:
        """Wait for these alerts, and note what fires then. The test says whether it is right."""
        with contextlib.suppress(AssertionError):
            eventually(lambda: expected <= self.prometheus.firing(), what, STEP_SECONDS_MAX)
        self.told[what] = self.prometheus.firing()

    def until_over(self, alerts: set[str]) -> None:
        """None of these fires any more."""
        eventually(lambda: not alerts & self.prometheus.firing(), f"{alerts} are over", STEP_SECONDS_MAX)

    def until(self, expr: str) -> None:
        """An expression has a series."""
        eventually(lambda: bool(self.prometheus.query(expr)), expr, STEP_SECONDS_MAX)


@contextlib.contextmanager
def observed(directory: Path) -> Iterator[Observed]:
    """Everything has happened when this gives what was seen; the cluster is well again and still serves."""
    with WholeCluster.serving(
        directory / "cluster",
        brokers=2,
        discoveries=1,
        broker_settings=BROKER_SETTINGS,
        bookie_settings=BOOKIE_SETTINGS,
        etcd_fsync=True,
    ) as cluster:
        targets = {
            "broker": [_address(one.endpoint.http_url) for one in cluster.brokers],
            "bookie": [_address(one.http_url) for one in cluster.bookies],
            "discovery": [_address(one.endpoint.http_url) for one in cluster.discoveries],
            "etcd": [cluster.etcd.endpoint],
        }
        rules = quick_rules(directory)
        watching = PrometheusServer.running(directory / "prometheus", targets, CLUSTER_NAME, rules)
        with watching as prometheus, Traffic(cluster.endpoint.service_url):
            objects = directory / "objects"
            objects.mkdir()
            seen = Observed(cluster, prometheus, objects, time.time())
            every = sum(map(len, targets.values()))
            eventually(lambda: prometheus.targets_up() == every, "all are scraped", STEP_SECONDS_MAX)
            store(seen)
            seen.watch("all is well", set())
            offload(seen)
            provoke(seen)
            fail(seen)
            yield seen


def _address(url: str) -> str:
    return url.removeprefix("http://")


@contextlib.contextmanager
def client_of(seen: Observed) -> Iterator[pulsar.Client]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(seen.cluster.endpoint.service_url, operation_timeout_seconds=60, logger=logger)
    try:
        yield client
    finally:
        client.close()


def store(seen: Observed) -> None:
    """Topics with closed ledgers, in no broker's memory."""
    with client_of(seen) as client:
        for topic in (HISTORY, GONE, FAILING, STORED):
            client.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest).close()
            producer = client.create_producer(topic)
            for number in range(MESSAGES):
                producer.send_async(b"%d" % number, lambda *_: None)
            producer.flush()
            producer.close()
            seen.rest.do("PUT", f"{path_of(topic)}/unload")


def compact(seen: Observed) -> None:
    """A topic has a compacted view that left messages out."""
    topic = f"persistent://{NAMESPACE}/compacted"
    with client_of(seen) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(20):
            producer.send(b"%d" % number, partition_key=f"key {number % 3}")
    seen.rest.do("PUT", f"{path_of(topic)}/compaction")
    seen.until("pulsar_compaction_removed_event_count")


def read(seen: Observed, topic: str) -> None:
    """A topic from its first message to its last."""
    with client_of(seen) as client:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        for _ in range(MESSAGES):
            reader.read_next(RECEIVE_MS_MAX)
        reader.close()


def offload(seen: Observed) -> None:
    """One topic leaves the bookies and is read, one is deleted, one fails."""
    address = seen.cluster.brokers[0].jobs_address
    for topic in (HISTORY, GONE):
        seen.rest.get(f"{path_of(topic)}/stats")  # has it loaded: its owner lets bookies go
        assert offload_all(address, topic, seen.objects.as_uri())
    with OffloadChannel(address) as channel:
        (ledger, *_) = channel.want(FAILING, location=seen.objects.as_uri())
        attempt = b"f" * 16
        channel.begin(FAILING, ledger.creation_id, ledger.ledger_id, attempt)
        channel.fail(FAILING, ledger.creation_id, ledger.ledger_id, attempt, "as it is meant to")
    seen.until("sum(magnetar_cold_ledgers_left_bookies_total) >= 2")
    read(seen, HISTORY)
    seen.rest.do("DELETE", f"{path_of(GONE)}?force=true")
    seen.until("brk_ledgeroffloader_delete_offload_ops_total")


def provoke(seen: Observed) -> None:
    """Clients do what they should not, and some are held back."""
    broker, discovery = seen.cluster.brokers[0], seen.cluster.discoveries[0]
    for endpoint in (broker.endpoint, discovery.endpoint):
        with socket.create_connection(
            (endpoint.host, endpoint.port), timeout=RECEIVE_MS_MAX / 1e3
        ) as garbage:
            garbage.sendall(b"\xff" * 64)
            while garbage.recv(4096):
                pass
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(f"{broker.endpoint.http_url}/admin/v2/no/such/thing", timeout=60)
    topic = f"persistent://{NAMESPACE}/refused"
    owner = seen.cluster.owner_of(topic)
    with line(owner.endpoint) as c:
        c.open_producer(topic)
        metadata = pb.MessageMetadata(
            producer_name="raw", sequence_id=0, publish_time=1, num_messages_in_batch=-1
        )
        c.send_bytes(payload_frame(1, 0, batch_payload(numbered(3)), metadata, num_messages=3))
        c.expect("send_error")
        c.expect("close_producer")
        c.request("subscribe", topic="nonsense://t", subscription="s", subType="Shared", consumer_id=1)
        c.expect("error")
        c.request("lookupTopic", topic="nonsense://t")
        c.expect("lookupTopicResponse")
    hold_back(seen)
    compact(seen)
    blocked = "magnetar_transaction_blocked_seconds"
    transact(
        seen.cluster, f"persistent://{NAMESPACE}/transactions", lambda: seen.until(f"rate({blocked}[1m])")
    )
    seen.rest.do("PUT", f"/namespaces/{NAMESPACE}/unload")


def hold_back(seen: Observed) -> None:
    """A namespace whose publish rate is low, and topics whose dispatch rates are."""
    namespace = "public/slow"
    seen.rest.do("PUT", f"/namespaces/{namespace}", {})
    publish_rate = {"publishThrottlingRateInMsg": 20, "publishThrottlingRateInByte": -1}
    seen.rest.do("POST", f"/namespaces/{namespace}/publishRate", publish_rate)
    limits: Mapping[str, Mapping[str, int]] = {
        "by-messages": {"dispatchThrottlingRateInMsg": 10},
        "by-bytes": {"dispatchThrottlingRateInByte": 100},
    }
    for name, limit in limits.items():
        topic = f"persistent://{namespace}/{name}"
        with client_of(seen) as client:
            consumer = client.subscribe(topic, "slow")
            seen.rest.do("POST", f"{path_of(topic)}/dispatchRate", {**RATE, **limit})
            producer = client.create_producer(topic, batching_enabled=False)
            for number in range(50):
                producer.send_async(b"%10d" % number, lambda *_: None)
            producer.flush()
            kind = "msg" if "Msg" in next(iter(limit)) else "bytes"
            seen.until(f'pulsar_subscription_dispatch_throttled_{kind}_events{{topic="{topic}"}}')
            seen.until(f'pulsar_publish_rate_limit_times{{topic="{topic}"}}')
            consumer.close()


BOOKIE_GONE: Final = {"MagnetarBookieDown", "MagnetarTooFewWritableBookies"}
BROKER_GONE: Final = {"MagnetarBrokerDown"}
METADATA_GONE: Final = {"MagnetarMetadataUnavailable", "MagnetarEtcdMemberDown"}


def fail(seen: Observed) -> None:
    """A bookie, a broker and then etcd are away for a while."""
    bookie, etcd = seen.cluster.bookies[0], seen.cluster.etcd
    bookie.kill()
    read(seen, STORED)
    seen.watch("a bookie was killed", BOOKIE_GONE)
    bookie.start()
    seen.until_over(BOOKIE_GONE)

    owner = seen.cluster.owner_of(BUSY[0])
    (broker,) = (one for one in seen.cluster.brokers if one is not owner)
    broker.kill()
    unload(owner, BUSY[0], broker)  # its session has not ended, so it is called
    seen.watch("a broker was killed", BROKER_GONE)
    broker.start()
    seen.until_over(BROKER_GONE)

    etcd.stop()
    seen.watch("etcd was stopped", METADATA_GONE)
    etcd.start()
    seen.cluster.mend()
    seen.until_over({*METADATA_GONE, "MagnetarDiscoveryMetadataStale", "MagnetarBrokerNotRegistered"})
