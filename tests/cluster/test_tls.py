"""TLS in a cluster: clients, redirects and calls between brokers stay encrypted wherever a topic goes."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pulsar
import pytest
from magnetar.common.security.certificates import Authority
from magnetar.testing.free_ports import free_ports

from tests.cluster.conftest import NewCluster
from tests.cluster.processes import BrokerProcess
from tests.integration.harness import eventually
from tests.integration.rest import Rest

NAMESPACE = "public/default"


@pytest.fixture
def trusted(tmp_path: Path) -> Path:
    """The authority of the brokers, whose certificate and key lie beside it."""
    authority = Authority("brokers")
    authority.issue("broker", dns=["localhost"]).write(tmp_path, "broker")
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    return tmp_path / "ca.pem"


def with_tls(trusted: Path) -> tuple[dict[str, str], str, str]:
    """Settings of a broker with TLS ports, and where these are."""
    port, web_port = free_ports(2)
    settings = {
        "advertisedAddress": "localhost",
        "brokerServicePortTls": str(port),
        "webServicePortTls": str(web_port),
        "tlsCertificateFilePath": str(trusted.parent / "broker.cert.pem"),
        "tlsKeyFilePath": str(trusted.parent / "broker.key.pem"),
        "tlsTrustCertsFilePath": str(trusted),
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": str(trusted),
    }
    return settings, f"pulsar+ssl://localhost:{port}", f"https://localhost:{web_port}"


def curl(trusted: Path, url: str, *arguments: str) -> str:
    command = ["curl", "-sS", "-m", "60", "--cacert", str(trusted), *arguments, url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.full
def test_a_topic_that_moves_takes_its_clients_along_over_tls(
    new_cluster: NewCluster, trusted: Path, topic: str
) -> None:
    cluster = new_cluster()
    brokers: list[tuple[BrokerProcess, str, str]] = []
    for _ in range(2):
        settings, url, web_url = with_tls(trusted)
        broker = cluster.broker(settings)
        broker.start()
        brokers.append((broker, url, web_url))
    path = topic.replace("://", "/")

    def owner_at(web_url: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(curl(trusted, f"{web_url}/lookup/v2/topic/{path}"))
        return found

    with closing(
        pulsar.Client(
            brokers[0][1],
            tls_trust_certs_file_path=str(trusted),
            tls_validate_hostname=True,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
    ) as client:
        consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
        producer.send(b"before")
        found = owner_at(brokers[0][2])
        assert owner_at(brokers[1][2]) == found
        owner, other = brokers if found["brokerUrlTls"] == brokers[0][1] else brokers[::-1]
        assert (found["brokerUrlTls"], found["httpUrlTls"]) == owner[1:]
        # A call with TLS about a topic of the other broker is sent on to that broker's HTTPS.
        head = curl(trusted, f"{other[2]}/admin/v2/{path}/stats", "-o", "/dev/null", "-D", "-")
        assert f"location: {owner[2]}/admin/v2/{path}/stats" in head.lower()
        bundle = curl(trusted, f"{owner[2]}/lookup/v2/topic/{path}/bundle")
        query = f"destinationBroker={other[0].endpoint.http_url.replace('http://127.0.0.1', 'localhost')}"
        reply = Rest(owner[0].endpoint).call("PUT", f"/namespaces/{NAMESPACE}/{bundle}/unload?{query}")
        assert reply.status == 204, reply
        producer.send(b"after")
        for payload in (b"before", b"after"):
            message = consumer.receive(30_000)
            assert message.data() == payload
            consumer.acknowledge(message)
        eventually(lambda: owner_at(brokers[0][2])["brokerUrlTls"] == other[1], "the other one owns it")
        # Both brokers are asked about a partitioned topic, by each other over HTTPS.
        parts = f"persistent/{NAMESPACE}/{path.rpartition('/')[2]}-parts"
        Rest(owner[0].endpoint).call("PUT", f"/{parts}/partitions", 8)
        for each in range(8):
            client.create_producer(f"{parts.replace('/', '://', 1)}-partition-{each}").send(b"x")
        stats = json.loads(curl(trusted, f"{owner[2]}/admin/v2/{parts}/partitioned-stats"))
        assert len(stats["partitions"]) == 8
        assert stats["msgInCounter"] == 8
    for broker, _, _ in brokers:
        broker.stop()
