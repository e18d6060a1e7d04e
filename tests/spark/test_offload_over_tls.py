"""Offload jobs and Spark over mutual TLS: to the control ports of brokers, and to bookies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import magnetar.spark
import pytest
from magnetar.common.offload.offload_pb2 import COMPLETE
from magnetar.common.security.certificates import Authority
from magnetar.spark.ledgers.ledger_source import ServiceAddress
from magnetar.spark.ledgers.service_channel import open_channel
from magnetar.spark.offload.command import FAILED as REFUSED
from magnetar.spark.offload.command import NO_BROKER
from pyspark.sql import SparkSession

from tests.cluster.processes import CLUSTER_NAME, Cluster
from tests.integration.rest import Rest
from tests.spark.offload_runs import run_in_session, told
from tests.spark.servers import SETTINGS, close_ledgers, publish, pulsar_client

MESSAGES = 400


class Certificates:
    """One authority of services, and files of what it signs."""

    def __init__(self, directory: Path, name: str = "services") -> None:
        self._authority = Authority(name)
        self._directory = directory / name
        self._directory.mkdir(parents=True)
        self.trust = self._directory / "ca.pem"
        self.trust.write_bytes(self._authority.certificate)

    def issue(self, name: str, *uris: str) -> tuple[str, str]:
        leaf = self._authority.issue(name, ips=["127.0.0.1"], dns=["localhost"], uris=uris)
        certificate, key = leaf.write(self._directory, name)
        return str(certificate), str(key)


@dataclass(frozen=True, slots=True)
class SecureCluster:
    """A cluster whose links between services are mutual TLS."""

    cluster: Cluster
    certificates: Certificates
    job: tuple[str, str]

    def broker_settings(self) -> dict[str, str]:
        trust = str(self.certificates.trust)
        certificate, key = self.certificates.issue(
            f"broker-{len(self.cluster.brokers)}", f"spiffe://{CLUSTER_NAME}/broker"
        )
        return {
            **SETTINGS,
            "magnetarControlTlsCertificateFilePath": certificate,
            "magnetarControlTlsKeyFilePath": key,
            "magnetarControlTlsTrustCertsFilePath": trust,
            "bookkeeperTLSClientAuthentication": "true",
            "bookkeeperTLSTrustCertsFilePath": trust,
            "bookkeeperTLSCertificateFilePath": certificate,
            "bookkeeperTLSKeyFilePath": key,
        }

    def options(self, pair: tuple[str, str], trust: Path | None = None) -> list[str]:
        """Options of a job that shows this certificate."""
        return [
            *("--service-trust-certs", str(trust or self.certificates.trust)),
            *("--service-certificate", pair[0], "--service-key", pair[1]),
        ]

    def service(self, address: str) -> ServiceAddress:
        certificate, key = self.job
        return ServiceAddress(address, str(self.certificates.trust), certificate, key)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[SecureCluster]:
    certificates = Certificates(tmp_path)
    certificate, key = certificates.issue("bookie", f"spiffe://{CLUSTER_NAME}/bookie")
    settings = {
        "tlsCertificatePath": certificate,
        "tlsKeyStore": key,
        "tlsTrustStore": str(certificates.trust),
        "tlsClientAuthentication": "true",
    }
    with Cluster.running(tmp_path / "cluster", bookie_settings=settings) as cluster:
        job = certificates.issue("job", f"spiffe://{CLUSTER_NAME}/job")
        yield SecureCluster(cluster, certificates, job)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_job_offloads_and_spark_reads_with_the_certificate_of_a_job_alone(
    secure: SecureCluster,
    spark: SparkSession,
    topic: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    sent = [f"message {number:05}".encode() for number in range(MESSAGES)]
    magnetar.spark.register(spark)
    brokers = [secure.cluster.broker(secure.broker_settings()) for _ in range(2)]
    for broker in brokers:
        broker.start()
    owner = brokers[0]
    with pulsar_client(owner.endpoint) as client:
        publish(client, topic, sent[:200], batch=10)
        close_ledgers(Rest(owner.endpoint), topic)
        publish(client, topic, sent[200:300], batch=10)
        close_ledgers(Rest(owner.endpoint), topic)
        publish(client, topic, sent[300:], batch=10)
    # Also at the broker that does not own the topic: it names the owner, which is called with TLS, too.
    addresses = [f"grpcs://{broker.jobs_address}" for broker in brokers]
    job = secure.options(secure.job)

    # Refused: another service's certificate, a client's, a foreign one, and none.
    discovery = secure.certificates.issue("discovery", f"spiffe://{CLUSTER_NAME}/discovery")
    clients_own = secure.certificates.issue("client")
    for pair in (discovery, clients_own):
        run = ("status", "--topic", topic, "--service", addresses[0], *secure.options(pair))
        assert "Unauthorized" in told(capfd, *run, code=REFUSED).stderr
    foreign = Certificates(tmp_path, "foreign").issue("job", f"spiffe://{CLUSTER_NAME}/job")
    for service, options in (
        (addresses[0], secure.options(foreign)),
        (brokers[0].jobs_address, job),
    ):
        run = ("status", "--topic", topic, "--service", service, *options)
        assert "UNAVAILABLE" in told(capfd, *run, code=NO_BROKER).stderr

    location = (tmp_path / "cold").as_uri()
    ran = run_in_session(spark, capfd, addresses[1], *job, "--topic", topic, "--want", "--location", location)
    assert sum(record["rows"] for record in ran.records) == 300, ran.records
    told(capfd, "status", "--topic", topic, "--service", addresses[1], *job)
    for address in addresses:
        with open_channel(secure.service(address)) as channel:
            states = [each.offload.state for each in channel.describe(topic).ledgers]
            assert states == [COMPLETE, COMPLETE, states[2]]
            assert states[2] != COMPLETE
    certificate, key = secure.job
    given = {
        "offload.address": addresses[1],
        "offload.trust.certs": str(secure.certificates.trust),
        "offload.certificate": certificate,
        "offload.key": key,
        "topic": topic,
        "task.bytes": "1000",
    }
    rows = (
        spark.read.format("magnetar")
        .options(**given)
        .load()
        .orderBy("ledger_id", "entry_id", "batch_index")
        .collect()
    )
    assert [bytes(row.payload) for row in rows] == sent
    # The open ledger is closed now, and not offloaded: executors read it from bookies.
    close_ledgers(Rest(owner.endpoint), topic)
    assert spark.read.format("magnetar").options(**given).load().count() == MESSAGES
    told(capfd, "sweep", "--location", location, "--dry-run", "--service", addresses[0], *job)
