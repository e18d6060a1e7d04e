"""A whole cluster with certificates and tokens, entered through discovery by the PyPI client."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from magnetar.testing.free_ports import free_ports

from tests.cluster.conftest import NewCluster
from tests.cluster.discovery_process import DiscoveryProcess
from tests.cluster.processes import CLUSTER_NAME, Cluster
from tests.integration.harness import magnetar_command

PROVIDERS = ",".join(
    f"org.apache.pulsar.broker.authentication.AuthenticationProvider{each}" for each in ("Tls", "Token")
)

pytestmark = pytest.mark.full


class Secured:
    """Files of `magnetar dev-certs`, the processes that use them, and clients of discovery."""

    def __init__(self, directory: Path, new_cluster: NewCluster) -> None:
        self.certs = directory / "certs"
        command = [*magnetar_command(), "dev-certs", str(self.certs), "--cluster", CLUSTER_NAME]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        self._issue_for_discovery()
        self.cluster: Cluster = new_cluster(bookie_settings=self._bookie())
        tls_port, https_port = free_ports(2)
        broker = self.cluster.broker(
            {
                **self._common(),
                **self._control("broker"),
                "brokerServicePortTls": str(tls_port),
                "webServicePortTls": str(https_port),
                "superUserRoles": "admin,service",
                "proxyRoles": "discovery",
                "bookkeeperTLSClientAuthentication": "true",
                "bookkeeperTLSTrustCertsFilePath": self.file("services-ca.cert.pem"),
                "bookkeeperTLSCertificateFilePath": self.file("service-broker.cert.pem"),
                "bookkeeperTLSKeyFilePath": self.file("service-broker.key.pem"),
            }
        )
        broker.health_url = f"{broker.endpoint.http_url}/health"
        broker.start()
        self.broker = broker
        (self.port,) = free_ports(1)
        self.discovery = DiscoveryProcess(
            directory,
            "discovery",
            self.cluster.etcd.url,
            {
                **self._common(),
                **self._control("discovery"),
                "servicePortTls": str(self.port),
                "superUserRoles": "admin",
                "magnetarProxyThroughServiceUrl": "true",
                "tlsEnabledWithBroker": "true",
                "brokerClientTrustCertsFilePath": self.file("clients-ca.cert.pem"),
                "brokerClientCertificateFilePath": self.file("discovery.cert.pem"),
                "brokerClientKeyFilePath": self.file("discovery.key.pem"),
                "brokerClientAuthenticationPlugin": "token",
                "brokerClientAuthenticationParameters": f"file://{self.file('service.jwt')}",
            },
        )
        self.discovery.start()

    def file(self, name: str) -> str:
        return str(self.certs / name)

    def client(self, authentication: pulsar.Authentication | None) -> pulsar.Client:
        return pulsar.Client(
            f"pulsar+ssl://localhost:{self.port}",
            authentication=authentication,
            tls_trust_certs_file_path=self.file("clients-ca.cert.pem"),
            tls_validate_hostname=True,
            operation_timeout_seconds=15,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )

    def token(self, role: str) -> pulsar.AuthenticationToken:
        return pulsar.AuthenticationToken((self.certs / f"{role}.jwt").read_text().strip())

    def certificate(self, role: str) -> pulsar.AuthenticationTLS:
        return pulsar.AuthenticationTLS(self.file(f"{role}.cert.pem"), self.file(f"{role}.key.pem"))

    def grant(self, role: str) -> None:
        """Grant the role everything in public/default, by a super user's token."""
        command = [*magnetar_command(), "admin", "--admin-url", self.broker.endpoint.http_url]
        command += ["--token", f"file:{self.file('admin.jwt')}", "namespaces", "grant-permission"]
        command += ["public/default", "--role", role, "--actions", "produce,consume"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr

    def _issue_for_discovery(self) -> None:
        """A token for what discovery asks brokers itself: a role in proxyRoles may not speak for itself."""
        secret = f"file://{self.file('token-secret.key')}"
        command = [*magnetar_command(), "tokens", "create", "--secret-key", secret, "--subject", "service"]
        done = subprocess.run(command, check=True, capture_output=True, timeout=60)
        (self.certs / "service.jwt").write_bytes(done.stdout)

    def _common(self) -> dict[str, str]:
        return {
            "tlsCertificateFilePath": self.file("broker.cert.pem"),
            "tlsKeyFilePath": self.file("broker.key.pem"),
            "tlsTrustCertsFilePath": self.file("clients-ca.cert.pem"),
            "authenticationEnabled": "true",
            "authenticationProviders": PROVIDERS,
            "tokenSecretKey": f"file://{self.file('token-secret.key')}",
            "authorizationEnabled": "true",
            "advertisedAddress": "localhost",
        }

    def _control(self, service: str) -> dict[str, str]:
        return {
            "magnetarControlTlsCertificateFilePath": self.file(f"service-{service}.cert.pem"),
            "magnetarControlTlsKeyFilePath": self.file(f"service-{service}.key.pem"),
            "magnetarControlTlsTrustCertsFilePath": self.file("services-ca.cert.pem"),
        }

    def _bookie(self) -> dict[str, str]:
        return {
            "tlsCertificatePath": self.file("service-bookie.cert.pem"),
            "tlsKeyStore": self.file("service-bookie.key.pem"),
            "tlsTrustStore": self.file("services-ca.cert.pem"),
            "tlsClientAuthentication": "true",
        }


@pytest.fixture
def secured(tmp_path: Path, new_cluster: NewCluster) -> Iterator[Secured]:
    made = Secured(tmp_path, new_cluster)
    yield made
    made.discovery.kill()


def exchanged(client: pulsar.Client, topic: str) -> bytes:
    """A message that went through the cluster and back."""
    try:
        consumer = client.subscribe(topic, "s")
        client.create_producer(topic).send(topic.encode())
        received = consumer.receive(20_000)
        return bytes(received.data())
    finally:
        client.close()


def test_credentials_are_carried_to_the_broker_and_checked_for_lookups(secured: Secured) -> None:
    secured.grant("client")
    assert exchanged(secured.client(secured.token("client")), "by-token") == b"by-token"
    # Method tls: the broker gets discovery's certificate and the client's role; both need the right.
    with pytest.raises(pulsar.PulsarException, match=r"AuthorizationError|NotAuthorized"):
        exchanged(secured.client(secured.certificate("client")), "by-certificate-too-early")
    secured.grant("discovery")
    assert exchanged(secured.client(secured.certificate("client")), "by-certificate") == b"by-certificate"
    # A role without a grant, wrong credentials, and none.
    with pytest.raises(pulsar.PulsarException, match=r"AuthorizationError|NotAuthorized"):
        secured.client(secured.certificate("broker")).subscribe("t", "s")
    with pytest.raises(pulsar.PulsarException):
        secured.client(pulsar.AuthenticationToken("e30.e30.x")).subscribe("t", "s")
    with pytest.raises(pulsar.PulsarException):
        secured.client(None).subscribe("t", "s")
