"""One standalone with all of security on: four ports, three providers, an anonymous role, authorization."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import jwt
import pulsar
import pytest
from magnetar.common.security.certificates import Authority
from magnetar.testing.free_ports import free_ports

from tests.integration.harness import StandaloneServer

SECRET = bytes(range(32))
PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
PASSWORD_FILE = "alice:$apr1$Zk3mPq7x$lZzb0lmp.gEn4RfEF9RVe1\n"
"""The password is correct-horse."""
SUPER_USER = "root"
PROXY, WEAK_PROXY = "proxy", "weak-proxy"
"""Roles that act for others: one with every right, and one without any."""


def token(role: str) -> str:
    return jwt.encode({"sub": role}, SECRET, "HS256", headers={"typ": ""})


def bearer(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(role)}"}


def password(user: str, secret: str = "correct-horse") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()}


@dataclass(frozen=True, slots=True)
class Secured:
    """The server, its addresses, and the directory with the files of its clients."""

    server: StandaloneServer
    directory: Path
    tls_url: str
    https_url: str

    @property
    def http_url(self) -> str:
        return self.server.endpoint.http_url

    def call(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        body: object = None,
        *,
        tls: bool = False,
        certificate: str = "",
    ) -> tuple[int, str]:
        """Status and text of one call, over plain HTTP or with TLS; `certificate` names the client's."""
        data = None if body is None else json.dumps(body).encode()
        sent = {**(headers or {}), **({} if data is None else {"Content-Type": "application/json"})}
        url = self.https_url if tls else self.http_url
        request = urllib.request.Request(f"{url}{path}", data, sent, method=method)
        context = self.context(certificate) if tls else None
        try:
            with urllib.request.urlopen(request, timeout=20, context=context) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def context(self, certificate: str = "") -> ssl.SSLContext:
        """A client's context that checks the server's name."""
        context = ssl.create_default_context(cafile=f"{self.directory}/ca.pem")
        if certificate:
            context.load_cert_chain(
                *(f"{self.directory}/{certificate}.{kind}.pem" for kind in ("cert", "key"))
            )
        return context

    def do(self, method: str, path: str, body: object = None) -> None:
        """A call of the super user that has to succeed."""
        status, text = self.call(path, bearer(SUPER_USER), method, body)
        assert status < 300, f"{method} {path}: {status} {text}"


@contextmanager
def started(
    directory: Path,
    changed: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    authority_bits: int = 0,
    leaf_bits: int = 0,
) -> Iterator[Secured]:
    """A standalone with all of security on, whose files are in the directory.

    `changed` are other settings; an empty one is left out. Bits are of RSA keys, which cost seconds to make;
    0 stands for ECDSA.
    """
    authority = Authority("clients", rsa_bits=authority_bits)
    (directory / "ca.pem").write_bytes(authority.certificate)
    authority.issue("broker", dns=["localhost"], rsa_bits=leaf_bits).write(directory, "broker")
    authority.issue("broker").write(directory, "broker-cn")
    authority.issue("client-super", rsa_bits=leaf_bits).write(directory, "client-super")
    for role in ("bob", "ungranted"):
        authority.issue(role).write(directory, role)
    authority.issue_v1("client-super").write(directory, "client-v1")
    (directory / "secret").write_bytes(SECRET)
    (directory / "htpasswd").write_text(PASSWORD_FILE)
    tls_port, https_port = free_ports(2)
    own = {"tlsCertFile": f"{directory}/broker.cert.pem", "tlsKeyFile": f"{directory}/broker.key.pem"}
    settings = {
        "advertisedAddress": "localhost",
        "brokerServicePortTls": str(tls_port),
        "webServicePortTls": str(https_port),
        "tlsEnabled": "true",
        "tlsAllowInsecureConnection": "false",
        "tlsCertificateFilePath": own["tlsCertFile"],
        "tlsKeyFilePath": own["tlsKeyFile"],
        "tlsTrustCertsFilePath": f"{directory}/ca.pem",
        "authenticationEnabled": "true",
        "authenticationProviders": f"{PROVIDERS}Tls,{PROVIDERS}Token,{PROVIDERS}Basic",
        "anonymousUserRole": "anonymous",
        "authorizationEnabled": "true",
        "superUserRoles": f"broker,{SUPER_USER},client-super,{PROXY}",
        "proxyRoles": f"{PROXY},{WEAK_PROXY}",
        "tokenSecretKey": f"file://{directory}/secret",
        "basicAuthConf": f"{directory}/htpasswd",
        "brokerClientTlsEnabled": "true",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationTls",
        "brokerClientAuthenticationParameters": json.dumps(own),
        "brokerClientTrustCertsFilePath": f"{directory}/ca.pem",
        "transactionCoordinatorEnabled": "true",
        **(changed or {}),
    }
    given = {name: value for name, value in settings.items() if value}
    server = StandaloneServer(directory, given, environment)
    # As soon as this answers, everything else works; the anonymous role may ask it.
    server.health_url = f"{server.endpoint.http_url}/admin/v2/clusters"
    secured = Secured(
        server, directory, f"pulsar+ssl://localhost:{tls_port}", f"https://localhost:{https_port}"
    )
    try:
        server.start()
        for tenant, admins in (("a", ["anonymous"]), ("b", []), ("m", ["admin"]), ("other", ["stranger"])):
            body = {"adminRoles": admins, "allowedClusters": ["standalone"]}
            secured.do("PUT", f"/admin/v2/tenants/{tenant}", body)
            secured.do("PUT", f"/admin/v2/namespaces/{tenant}/n", {})
        for namespace, role, actions in (
            ("a/n", "anonymous", ["produce", "consume"]),
            ("b/n", "bob", ["produce", "consume"]),
            ("b/n", "alice", ["produce", "consume"]),
            ("m/n", "consumer", ["consume"]),
            ("m/n", "producer", ["produce"]),
        ):
            secured.do("POST", f"/admin/v2/namespaces/{namespace}/permissions/{role}", actions)
        yield secured
        server.stop()
    finally:
        server.kill()


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with started(tmp_path_factory.mktemp("secured"), authority_bits=4096, leaf_bits=2048) as made:
        yield made


@pytest.fixture
def expendable(tmp_path: Path) -> Iterator[Secured]:
    """One of a test's own, which may be changed at will."""
    with started(tmp_path) as made:
        yield made


@pytest.fixture
def connect(secured: Secured) -> Iterator[Callable[..., pulsar.Client]]:
    """Makes clients, which are closed at the end; `tls` for those of the TLS port, which check its name."""
    made: list[pulsar.Client] = []

    def act(authentication: object = None, *, tls: bool = False) -> pulsar.Client:
        plain = f"pulsar://localhost:{urlsplit(secured.server.endpoint.service_url).port}"
        client = pulsar.Client(
            secured.tls_url if tls else plain,
            authentication=authentication,
            operation_timeout_seconds=5,
            tls_trust_certs_file_path=f"{secured.directory}/ca.pem",
            tls_validate_hostname=True,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        made.append(client)
        return client

    yield act
    for client in made:
        client.close()
