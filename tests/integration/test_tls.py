"""TLS for clients as they see it: the PyPI client, curl and openssl against a standalone with four ports."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pulsar
import pytest
from magnetar.common.security.certificates import Authority, Leaf
from magnetar.testing.free_ports import free_ports

from tests.integration.harness import (
    StandaloneServer,
    eventually,
    external_endpoint,
    magnetar_command,
    temporary_directory,
)

HANDSHAKE_TIMEOUT_S = 2


class Certificates:
    """Files of a server and of its clients, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority("clients")
        self.strangers = Authority("strangers")
        self.trust(self.authority)
        self.serve(self.authority)
        self.put("me", self.authority.issue("me"))
        self.put("stranger", self.strangers.issue("me"))
        self.put("late", self.authority.issue("me", lifetime=timedelta(minutes=-5)))
        self.put("old", self.authority.issue_v1("me"))
        (directory / "ca.pem").write_bytes(self.authority.certificate)

    def trust(self, *authorities: Authority) -> None:
        (self.directory / "trust.pem").write_bytes(b"".join(each.certificate for each in authorities))

    def serve(self, authority: Authority, lifetime: timedelta = timedelta(days=30)) -> None:
        leaf = authority.issue("broker", dns=["localhost"], lifetime=lifetime)
        self.put("server", leaf)

    def put(self, name: str, leaf: Leaf) -> None:
        (self.directory / f"{name}.pem").write_bytes(leaf.certificate)
        (self.directory / f"{name}.key").write_bytes(leaf.key)

    def path(self, name: str) -> str:
        return str(self.directory / name)


class TlsServer(StandaloneServer):
    """A standalone with TLS ports beside the plain ones."""

    def __init__(self, directory: Path, certificates: Certificates, **settings: str) -> None:
        self.certificates = certificates
        self.port, self.web_port = free_ports(2)
        super().__init__(
            directory,
            {
                "advertisedAddress": "localhost",
                "brokerServicePortTls": str(self.port),
                "webServicePortTls": str(self.web_port),
                "tlsCertificateFilePath": certificates.path("server.pem"),
                "tlsKeyFilePath": certificates.path("server.key"),
                "tlsTrustCertsFilePath": certificates.path("trust.pem"),
                "magnetarTlsHandshakeTimeoutMs": str(HANDSHAKE_TIMEOUT_S * 1000),
                **settings,
            },
        )

    @property
    def url(self) -> str:
        return f"pulsar+ssl://localhost:{self.port}"

    def client(self, name: str = "", *, host: str = "localhost") -> pulsar.Client:
        """A client that verifies names, with the certificate of that name or without one."""
        path = self.certificates.path
        return pulsar.Client(
            f"pulsar+ssl://{host}:{self.port}",
            authentication=pulsar.AuthenticationTLS(path(f"{name}.pem"), path(f"{name}.key"))
            if name
            else None,
            tls_trust_certs_file_path=path("ca.pem"),
            tls_validate_hostname=True,
            operation_timeout_seconds=5,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )

    def curl(self, path: str, name: str = "", *arguments: str) -> subprocess.CompletedProcess[str]:
        shown = [
            "--cert",
            self.certificates.path(f"{name}.pem"),
            "--key",
            self.certificates.path(f"{name}.key"),
        ]
        return subprocess.run(
            [
                *("curl", "-sS", "-m", "20", "--cacert", self.certificates.path("ca.pem")),
                *(shown if name else []),
                *arguments,
                f"https://localhost:{self.web_port}{path}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )

    def connect(self, name: str = "") -> ssl.SSLSocket:
        """A bare connection to the TLS port of the binary protocol. Raises OSError."""
        context = ssl.create_default_context(cafile=self.certificates.path("ca.pem"))
        if name:
            context.load_cert_chain(
                self.certificates.path(f"{name}.pem"), self.certificates.path(f"{name}.key")
            )
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        return context.wrap_socket(plain, server_hostname="localhost")

    def shown(self) -> str:
        """The serial number of the certificate that the server shows."""
        with self.connect() as connection:
            return str((connection.getpeercert() or {})["serialNumber"])

    def handshakes(self, result: str) -> float:
        name = f'magnetar_tls_handshakes_total{{cluster="standalone",result="{result}"}} '
        return self._sample(name)

    def reloads(self, result: str) -> float:
        return self._sample(f'magnetar_tls_reloads_total{{cluster="standalone",result="{result}"}} ')

    def _sample(self, prefix: str) -> float:
        page = subprocess.run(
            ["curl", "-sS", f"{self.endpoint.http_url}/metrics"], capture_output=True, text=True, check=True
        ).stdout
        [line] = [line for line in page.splitlines() if line.startswith(prefix)]
        return float(line.removeprefix(prefix))


@pytest.fixture(scope="module")
def certificates() -> Iterator[Certificates]:
    if external_endpoint() is not None:
        pytest.skip("needs a server of its own: its certificates are made here")
    if shutil.which("curl") is None or shutil.which("openssl") is None:
        pytest.skip("there is no curl, or no openssl command")
    directory = temporary_directory()
    yield Certificates(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def server(certificates: Certificates) -> Iterator[TlsServer]:
    """A server where client certificates are optional."""
    directory = temporary_directory()
    server = TlsServer(directory, certificates)
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def exchange(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"secret")
    assert consumer.receive(10_000).data() == b"secret"


def silent_after(connection: socket.socket) -> bytes:
    """Returns the first bytes, b"" at the end of the connection; a reset is an end, too."""
    try:
        return connection.recv(100)
    except (ConnectionResetError, ssl.SSLError, BrokenPipeError):
        return b""


@pytest.mark.parametrize("name", ["", "me", "old"])
def test_a_client_with_and_without_certificate_publishes_and_consumes(server: TlsServer, name: str) -> None:
    with closing(server.client(name)) as client:
        exchange(client, f"over-tls-{name}")


def test_a_lookup_over_https_leads_to_the_tls_port(server: TlsServer) -> None:
    found = json.loads(server.curl("/lookup/v2/topic/persistent/public/default/looked-up").stdout)
    assert found["brokerUrlTls"] == found["brokerUrlSsl"] == server.url
    assert found["httpUrlTls"] == f"https://localhost:{server.web_port}"
    assert found["brokerUrl"] == f"pulsar://localhost:{server.endpoint.port}"
    path = server.certificates.path("ca.pem")
    with closing(
        pulsar.Client(
            f"https://localhost:{server.web_port}",
            tls_trust_certs_file_path=path,
            tls_validate_hostname=True,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
    ) as client:
        exchange(client, "looked-up")


def test_a_client_that_checks_names_refuses_an_address_that_the_certificate_lacks(server: TlsServer) -> None:
    before = server.handshakes("ok")
    with closing(server.client(host="127.0.0.1")) as client, pytest.raises(pulsar.PulsarException):
        client.create_producer("by-address")
    assert server.handshakes("ok") == before


def test_https_serves_the_admin_api_and_plain_http_stays(server: TlsServer) -> None:
    assert json.loads(server.curl("/admin/v2/clusters").stdout) == ["standalone"]
    tls = subprocess.run(
        [
            *magnetar_command(),
            *("admin", "--admin-url", f"https://localhost:{server.web_port}"),
            *("--tls-trust-cert-path", server.certificates.path("ca.pem"), "--json", "tenants", "list"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "public" in tls.stdout


def test_our_own_client_shows_its_certificate(server: TlsServer) -> None:
    options = ["--url", server.url, "--tls-trust-cert-path", server.certificates.path("ca.pem")]
    for name, code in (("me", 0), ("stranger", 3)):
        shown = ["--tls-certificate", server.certificates.path(f"{name}.pem")]
        shown += ["--tls-key", server.certificates.path(f"{name}.key")]
        done = subprocess.run(
            [*magnetar_command(), "produce", "ours", "-m", "hello", *options, *shown],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr


@pytest.mark.parametrize("name", ["stranger", pytest.param("late", marks=pytest.mark.full)])
def test_a_certificate_that_is_not_trusted_is_refused_although_none_is_needed(
    server: TlsServer, name: str
) -> None:
    result = {"stranger": "untrusted", "late": "expired"}[name]
    before = server.handshakes(result)
    with closing(server.client(name)) as client, pytest.raises(pulsar.PulsarException):
        client.create_producer("untrusted")
    assert server.handshakes(result) > before
    assert server.curl("/admin/v2/clusters", name).returncode != 0


def test_plain_text_on_a_tls_port_and_tls_on_a_plain_one_end_at_once(server: TlsServer) -> None:
    before = server.handshakes("plaintext")
    for port, said in ((server.port, b"\0\0\0\x10\0\0\0\x0c"), (server.web_port, b"GET / HTTP/1.1\r\n\r\n")):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(said)
            assert silent_after(connection) == b""
    assert server.handshakes("plaintext") == before + 2
    context = ssl.create_default_context(cafile=server.certificates.path("ca.pem"))
    web_port = int(server.endpoint.http_url.rpartition(":")[2])
    for port in (server.endpoint.port, web_port):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(plain, server_hostname="localhost")
    assert "this looks like TLS" in server.log_tail()


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00"])
def test_a_peer_that_is_silent_is_closed_and_holds_up_no_other_one(server: TlsServer, said: bytes) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(20)]
    began = time.monotonic()
    for each in silent:
        each.sendall(said)
    server.shown()
    assert time.monotonic() - began < HANDSHAKE_TIMEOUT_S
    for each in silent:
        with each:
            assert silent_after(each) == b""
    assert time.monotonic() - began < HANDSHAKE_TIMEOUT_S + 10


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssl_sees_a_modern_version_and_no_session_to_resume(server: TlsServer, version: str) -> None:
    with subprocess.Popen(
        ["openssl", "s_client", "-connect", f"localhost:{server.port}", version, "-reconnect"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as client:
        told, _ = client.communicate("Q\n", timeout=30)
    assert f"New, TLSv1.{version[-1]}" in told
    assert "Reused" not in told
    assert "TLS session ticket:" not in told


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_old_versions_are_refused(server: TlsServer, version: str) -> None:
    done = subprocess.run(
        [
            *("openssl", "s_client", "-connect", f"localhost:{server.port}", version),
            *("-cipher", "ALL:@SECLEVEL=0"),
        ],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0


def test_certificates_and_trust_change_for_new_connections_alone(server: TlsServer) -> None:
    certificates = server.certificates
    old = server.shown()
    with closing(server.client("me")) as client:
        producer, consumer = client.create_producer("long"), client.subscribe("long", "s")
        try:
            certificates.serve(certificates.authority)
            certificates.trust(certificates.strangers)
            os.kill(server.pid, signal.SIGHUP)
            eventually(lambda: server.reloads("ok") >= 1, "the files were loaded")
            assert server.shown() != old
            assert server.curl("/admin/v2/clusters", "stranger").returncode == 0
            # The authority of this one was removed, and no session brings it back in.
            assert server.curl("/admin/v2/clusters", "me").returncode != 0
            producer.send(b"still here")
            assert consumer.receive(10_000).data() == b"still here"
        finally:
            certificates.trust(certificates.authority)
            os.kill(server.pid, signal.SIGHUP)
            eventually(lambda: server.reloads("ok") >= 2, "the former files were loaded")


def test_a_half_written_pair_leaves_the_former_one_in_use(server: TlsServer) -> None:
    old, failed, ok = server.shown(), server.reloads("failed"), server.reloads("ok")
    leaf = server.certificates.authority.issue("broker", dns=["localhost"])
    Path(server.certificates.path("server.pem")).write_bytes(leaf.certificate)
    os.kill(server.pid, signal.SIGHUP)
    eventually(lambda: server.reloads("failed") > failed, "the pair was refused")
    assert server.shown() == old
    Path(server.certificates.path("server.key")).write_bytes(leaf.key)
    os.kill(server.pid, signal.SIGHUP)
    eventually(lambda: server.reloads("ok") > ok, "the pair was loaded")
    assert server.shown() != old


@pytest.mark.full
def test_required_certificates_and_no_plain_port_at_all(certificates: Certificates, tmp_path: Path) -> None:
    server = TlsServer(
        tmp_path,
        certificates,
        tlsRequireTrustedClientCertOnConnect="true",
        tlsEnabled="true",
        brokerServicePort="",
        webServicePort="",
    )
    server.launch()
    try:
        eventually(lambda: "magnetar ready" in server.log_tail(), "it serves")
        with closing(server.client("me")) as client:
            exchange(client, "mutual")
        for name in ("", "stranger"):
            with closing(server.client(name)) as client, pytest.raises(pulsar.PulsarException):
                client.create_producer("mutual")
            assert server.curl("/admin/v2/clusters", name).returncode != 0
        found = json.loads(server.curl("/lookup/v2/topic/persistent/public/default/mutual", "me").stdout)
        assert (found["brokerUrl"], found["brokerUrlTls"]) == ("", server.url)
        assert json.loads(server.curl("/admin/v2/brokers", "me").stdout) == [f"localhost:{server.web_port}"]
        for key in ("brokerServicePort", "webServicePort"):
            port = int((server.endpoint.service_url if "broker" in key else server.endpoint.http_url)[-5:])
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
        server.stop()
    finally:
        server.kill()


def test_an_expired_certificate_is_told_and_refused_by_clients(
    certificates: Certificates, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    expired = Certificates(own)
    expired.serve(expired.authority, timedelta(hours=-1))
    server = TlsServer(tmp_path, expired)
    try:
        server.start()
        assert "a certificate has expired" in server.log_tail()
        with closing(server.client()) as client, pytest.raises(pulsar.PulsarException):
            client.create_producer("expired")
        eventually(lambda: server.handshakes("refused_by_client") >= 1, "the refusal was counted")
        server.stop()
    finally:
        server.kill()


@pytest.mark.full
def test_what_dev_certs_writes_starts_a_server_and_opens_it(tmp_path: Path) -> None:
    subprocess.run([*magnetar_command(), "dev-certs", tmp_path / "certs", "--tls-only"], check=True)
    server = StandaloneServer(tmp_path)
    ports = free_ports(2)
    server.settings |= {"brokerServicePortTls": str(ports[0]), "webServicePortTls": str(ports[1])}
    server.arguments += ["--config", str(tmp_path / "certs" / "standalone.conf")]
    try:
        server.start()
        authority = tmp_path / "certs" / "clients-ca.cert.pem"
        for host in ("localhost", "127.0.0.1"):
            done = subprocess.run(
                [
                    *(
                        *magnetar_command(),
                        "produce",
                        "t",
                        "-m",
                        "x",
                        "--url",
                        f"pulsar+ssl://{host}:{ports[0]}",
                    ),
                    *("--tls-trust-cert-path", str(authority)),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        server.stop()
    finally:
        server.kill()
