"""Certificates between services, then their authority, are replaced on disk while a cluster serves."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import pulsar
import pytest
from magnetar.common.security.certificates import Authority

from tests.cluster.processes import CLUSTER_NAME, BrokerProcess, Cluster
from tests.integration.harness import eventually
from tests.integration.rest import Rest

LOOK_EVERY_S = 1
PAUSE_S = 0.01
PATIENCE_S = 60.0
SUBSCRIPTION = "all"
SERVICES = ("broker", "bookie")


class ServiceCertificates:
    """One certificate a kind of service, and what all of them trust."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority("services")
        self.trust(self.authority)
        self.issue(self.authority)

    def issue(self, authority: Authority) -> None:
        for service in SERVICES:
            uri = f"spiffe://{CLUSTER_NAME}/{service}"
            leaf = authority.issue(f"magnetar-{service}", ips=["127.0.0.1"], dns=["localhost"], uris=[uri])
            with tempfile.TemporaryDirectory(dir=self.directory) as partial:
                for path in leaf.write(Path(partial), service):
                    path.replace(self.directory / path.name)

    def trust(self, *authorities: Authority) -> None:
        bundle = b"".join(each.certificate for each in authorities)
        (self.directory / "trust.pem").write_bytes(bundle)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def of_a_bookie(self) -> dict[str, str]:
        return {
            "tlsCertificatePath": self.path("bookie.cert.pem"),
            "tlsKeyStore": self.path("bookie.key.pem"),
            "tlsTrustStore": self.path("trust.pem"),
            "tlsClientAuthentication": "true",
            "tlsCertFilesRefreshDurationSeconds": str(LOOK_EVERY_S),
        }

    def of_a_broker(self) -> dict[str, str]:
        return {
            "magnetarControlTlsCertificateFilePath": self.path("broker.cert.pem"),
            "magnetarControlTlsKeyFilePath": self.path("broker.key.pem"),
            "magnetarControlTlsTrustCertsFilePath": self.path("trust.pem"),
            "magnetarServiceTlsRefreshSeconds": str(LOOK_EVERY_S),
            "bookkeeperTLSClientAuthentication": "true",
            "bookkeeperTLSTrustCertsFilePath": self.path("trust.pem"),
            "bookkeeperTLSCertificateFilePath": self.path("broker.cert.pem"),
            "bookkeeperTLSKeyFilePath": self.path("broker.key.pem"),
            "bookkeeperTlsCertFilesRefreshDurationSeconds": str(LOOK_EVERY_S),
            "metadataStoreSessionTimeoutMillis": "30000",
            "managedLedgerMaxEntriesPerLedger": "500",  # new ledgers on new connections, again and again
            "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        }

    def serial_at(self, address: str) -> str:
        """The serial number that a new connection of a broker sees. Raises OSError."""
        context = ssl.create_default_context(cafile=self.path("trust.pem"))
        context.load_cert_chain(self.path("broker.cert.pem"), self.path("broker.key.pem"))
        context.set_alpn_protocols(["h2"])
        host, _, port = address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            return str((connection.getpeercert() or {})["serialNumber"])


class Publisher:
    """Publishes one message after the other in a thread; a failed one ends it."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._client = pulsar.Client(
            broker.endpoint.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        self._client.subscribe(topic, SUBSCRIPTION).close()  # keeps every message
        self._producer = self._client.create_producer(topic, send_timeout_millis=30_000)
        self._ended = threading.Event()
        self.sent = 0
        self.failure = ""
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def _publish(self) -> None:
        while not self._ended.wait(PAUSE_S):
            try:
                self._producer.send(b"%d" % self.sent)
            except pulsar.PulsarException as error:
                self.failure = f"message {self.sent}: {error}"
                return
            self.sent += 1

    def goes_on(self) -> None:
        """Fails unless messages are confirmed from now on."""
        before = self.sent
        eventually(
            lambda: bool(self.failure) or self.sent > before + 100, "messages are confirmed", PATIENCE_S
        )
        assert not self.failure

    def end(self) -> None:
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join()
        self._client.close()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_certificates_of_services_and_their_authority_change_without_a_failed_publish(
    tmp_path: Path, topic: str
) -> None:
    files = tmp_path / "certificates"
    files.mkdir()
    certificates = ServiceCertificates(files)
    cluster = Cluster(tmp_path, bookie_settings=certificates.of_a_bookie())
    publishers: list[Publisher] = []
    try:
        cluster.start()
        brokers = [cluster.broker(certificates.of_a_broker()) for _ in range(2)]
        for broker in brokers:
            broker.start()
        addresses = [bookie.address for bookie in cluster.bookies]
        addresses += [broker.jobs_address for broker in brokers]
        publishers += [Publisher(broker, f"{topic}-{broker.name}") for broker in brokers]

        def work() -> None:
            for publisher in publishers:
                publisher.goes_on()

        def changed(before: dict[str, str]) -> None:
            def all_new() -> bool:
                return all(certificates.serial_at(each) != before[each] for each in addresses)

            eventually(all_new, "every server shows its new certificate", PATIENCE_S)

        def shown() -> dict[str, str]:
            return {address: certificates.serial_at(address) for address in addresses}

        work()
        before = shown()
        certificates.issue(certificates.authority)
        changed(before)
        work()

        new = Authority("services of tomorrow")
        certificates.trust(certificates.authority, new)
        time.sleep(3 * LOOK_EVERY_S)  # what a service trusts is not to be seen from outside
        before = shown()
        certificates.issue(new)
        changed(before)
        work()
        certificates.trust(new)
        time.sleep(3 * LOOK_EVERY_S)
        work()
        # Links that are made now know the new authority alone: a bookie comes back, a topic moves.
        cluster.bookies[0].restart()
        work()
        owned = publishers[0]
        path = f"{topic}-{brokers[0].name}".replace("://", "/")
        owner = next(each for each in brokers if each.serves(f"{topic}-{brokers[0].name}"))
        reply = Rest(owner.endpoint).call("PUT", f"/{path}/unload")
        assert reply.status == 204, reply
        owned.goes_on()
        for publisher in publishers:
            publisher.end()
        assert [publisher.failure for publisher in publishers] == ["", ""]
        _all_arrived(publishers, brokers, topic)
    finally:
        for publisher in publishers:
            publisher.end()
        cluster.kill()


def _all_arrived(publishers: list[Publisher], brokers: list[BrokerProcess], topic: str) -> None:
    """Check that every confirmed message is there, in order."""
    for publisher, broker in zip(publishers, brokers, strict=True):
        with closing(
            pulsar.Client(broker.endpoint.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        ) as client:
            consumer = client.subscribe(f"{topic}-{broker.name}", SUBSCRIPTION)
            number = 0
            while number < publisher.sent:
                found = int(consumer.receive(20_000).data())
                assert found <= number  # what was sent again when the topic moved comes again
                number += found == number
