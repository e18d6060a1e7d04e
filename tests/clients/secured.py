"""A service with everything that clients authenticate by, and the files of `security_catalogue.py`."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jwt
from magnetar.common.security.authentication.apr1 import apr1
from magnetar.common.security.certificates import Authority
from magnetar.testing.free_ports import free_ports

from bench.brokers import ApachePulsar
from tests.clients.catalogue import Scenario
from tests.clients.programs import Program
from tests.clients.second_address import also_at
from tests.clients.security_catalogue import AUDIENCE, SECURITY_SCENARIOS, USER
from tests.clients.token_issuer import TokenIssuer, serving
from tests.clients.verdicts import Outcome, Verdict
from tests.integration.harness import StandaloneServer, eventually

CLIENT_ID: Final = "reporting"
ADMIN: Final = "admin"
ROLES: Final = ("alice", USER, "carol", CLIENT_ID)
SUPPLIED_LIFETIME_S: Final = 3
SUPPLIED_EVERY_S: Final = 1.0
PROGRAM_SECONDS_MAX: Final = 300.0
_PROVIDERS: Final = "org.apache.pulsar.broker.authentication"


class Credentials:
    """Files of a service and its clients, in one directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        authority = Authority("clients", rsa_bits=2048)
        (directory / "ca.pem").write_bytes(authority.certificate)
        authority.issue("broker", dns=["localhost"], rsa_bits=2048).write(directory, "broker")
        authority.issue("issuer", dns=["localhost"], rsa_bits=2048).write(directory, "issuer")
        authority.issue("carol", rsa_bits=2048).write(directory, "carol")
        self._secret = secrets.token_bytes(32)
        (directory / "secret.key").write_bytes(self._secret)
        for role in ("alice", "mallory", ADMIN):
            self._put(f"{role}.token", self.token(role))
        self._put("forged.token", jwt.encode({"sub": "alice"}, secrets.token_bytes(32), "HS256"))
        password = secrets.token_hex(8)
        self._put("bob.password", password)
        self._put("htpasswd", f"{USER}:{apr1(password.encode(), 'Zk3mPq7x')}\n")
        self.client_secret = secrets.token_hex(8)
        self.supply()

    def token(self, role: str, lifetime_s: float | None = None) -> str:
        """A token of the service's key; without `lifetime_s` it does not expire."""
        claims = {"sub": role} if lifetime_s is None else {"sub": role, "exp": time.time() + lifetime_s}
        return jwt.encode(claims, self._secret, "HS256")

    def supply(self) -> None:
        """Replace the token that suppliers give."""
        partial = self.directory / "supplied.token.part"
        partial.write_text(self.token("alice", SUPPLIED_LIFETIME_S))
        partial.rename(self.directory / "supplied.token")

    def describe_issuer(self, issuer: TokenIssuer) -> None:
        """Write `oauth2.json`, and the trust that Java reads."""
        described = {
            "type": "client_credentials",
            "client_id": CLIENT_ID,
            "client_secret": self.client_secret,
            "client_email": "reporting@example.org",
            "issuer_url": issuer.url,
        }
        self._put("oauth2.json", json.dumps(described))
        options = ["-importcert", "-noprompt", "-alias", "clients", "-file", str(self.directory / "ca.pem")]
        store = ["-keystore", str(self.directory / "ca.p12"), "-storetype", "PKCS12"]
        with contextlib.suppress(FileNotFoundError):  # without Java there is no Java program either
            subprocess.run(
                ["keytool", *options, *store, "-storepass", "changeit"], check=True, capture_output=True
            )

    def settings(self, issuer: TokenIssuer) -> dict[str, str]:
        """Settings of the service, valid for both Magnetar and Apache Pulsar."""
        path = self.directory
        names = ("Tls", "Token", "oidc.AuthenticationProviderOpenID", "Basic")
        classes = (name if "." in name else f"AuthenticationProvider{name}" for name in names)
        return {
            "advertisedAddress": "localhost",
            "tlsCertificateFilePath": str(path / "broker.cert.pem"),
            "tlsKeyFilePath": str(path / "broker.key.pem"),
            "tlsTrustCertsFilePath": str(path / "ca.pem"),
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": ",".join(f"{_PROVIDERS}.{name}" for name in classes),
            "authenticationRefreshCheckSeconds": "1",
            "superUserRoles": ADMIN,
            "tokenSecretKey": f"file://{path / 'secret.key'}",
            "basicAuthConf": f"file://{path / 'htpasswd'}",
            "openIDAllowedTokenIssuers": issuer.url,
            "openIDAllowedAudiences": AUDIENCE,
            "openIDTokenIssuerTrustCertsFilePath": str(path / "ca.pem"),
            "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{(path / 'admin.token').read_text()}",
        }

    def _put(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)


@dataclass(frozen=True, slots=True)
class SecuredService:
    """A running service, its ports and its files."""

    credentials: Credentials
    issuer: TokenIssuer
    tls_port: int
    plain_port: int
    web_tls_port: int
    http_url: str

    def admin(self, method: str, path: str, body: object = None) -> None:
        """A call of the administrator that has to succeed."""
        request = urllib.request.Request(
            f"{self.http_url}/admin/v2{path}",
            None if body is None else json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {(self.credentials.directory / 'admin.token').read_text()}",
                "Content-Type": "application/json",
            },
            method=method,
        )
        with urllib.request.urlopen(request, timeout=20) as response:
            assert response.status in {200, 204}, response.status

    def has_default_namespace(self) -> bool:
        """Whether the admin API serves, and the namespace of the catalogue exists."""
        try:
            self.admin("GET", "/namespaces/public/default")
        except OSError:  # URLError and HTTPError are kinds of it
            return False
        return True

    def grant(self) -> None:
        """Give the catalogue's roles their rights."""
        for role in ROLES:
            self.admin("POST", f"/namespaces/public/default/permissions/{role}", ["produce", "consume"])


@contextlib.contextmanager
def secured_standalone(directory: Path, extra: Mapping[str, str] | None = None) -> Iterator[SecuredService]:
    """`magnetar standalone` with TLS, four providers, and grants; killed at the end."""
    credentials = Credentials(directory / "credentials")
    tls, web_tls = free_ports(2)
    with issuing(credentials) as issuer:
        ports = {"brokerServicePortTls": str(tls), "webServicePortTls": str(web_tls)}
        server = StandaloneServer(directory, {**credentials.settings(issuer), **ports, **(extra or {})})
        server.health_url = f"{server.endpoint.http_url}/readyz"  # needs no credentials
        try:
            server.start()
            service = SecuredService(
                credentials, issuer, tls, server.endpoint.port, web_tls, server.endpoint.http_url
            )
            service.grant()
            yield service
        finally:
            server.kill()


@contextlib.contextmanager
def secured_apache_pulsar(directory: Path, jars: Path) -> Iterator[SecuredService]:
    """Apache Pulsar's standalone on the same files and settings."""
    credentials = Credentials(directory / "credentials")
    tls, web_tls = free_ports(2)
    with issuing(credentials) as issuer:
        ports = {"brokerServicePortTls": str(tls), "webServicePortTls": str(web_tls)}
        broker = ApachePulsar(jars, credentials.settings(issuer) | ports)
        try:
            broker.launch()
            endpoint = broker.endpoint
            service = SecuredService(credentials, issuer, tls, endpoint.port, web_tls, endpoint.http_url)
            eventually(service.has_default_namespace, "Apache Pulsar serves public/default", 240.0)
            service.grant()
            yield service
        finally:
            broker.stop()


@contextlib.contextmanager
def issuing(credentials: Credentials) -> Iterator[TokenIssuer]:
    """The issuer of the OAuth2 scenario, with its files written."""
    path = credentials.directory
    with serving(
        CLIENT_ID,
        credentials.client_secret,
        AUDIENCE,
        path / "issuer.cert.pem",
        path / "issuer.key.pem",
    ) as issuer:
        credentials.describe_issuer(issuer)
        yield issuer


@contextlib.contextmanager
def supplying(credentials: Credentials) -> Iterator[None]:
    """Replace the supplied token every second until the block ends."""
    ended = threading.Event()

    def supply() -> None:
        while not ended.wait(SUPPLIED_EVERY_S):
            credentials.supply()

    thread = threading.Thread(target=supply, name="token supplier")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run(
    program: Program, service: SecuredService, scenarios: Sequence[Scenario] = SECURITY_SCENARIOS
) -> list[Verdict]:
    """The verdicts of one program; a scenario without one failed."""
    prefix = f"secured-{uuid.uuid4().hex[:8]}"
    names = [scenario.name for scenario in scenarios]
    command = [*program.command, str(service.credentials.directory), str(service.tls_port)]
    command += [str(service.plain_port), service.issuer.url, prefix, *names]
    with supplying(service.credentials), also_at(service.tls_port):
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS_MAX,
            check=False,
            cwd=program.directory,
            env=_environment(service.credentials.directory),
        )
    found = {
        words[1]: Verdict(program.name, words[1], Outcome(words[0]), " ".join(words[2:]))
        for words in (line.split("\t") for line in done.stdout.splitlines())
        if words[0] in list(Outcome)
    }
    missing = f"no verdict: {done.stderr[-2_000:]}"
    return [found.get(name, Verdict(program.name, name, Outcome.FAIL, missing)) for name in names]


def _environment(directory: Path) -> dict[str, str]:
    """Have Go's own HTTP client, which OAuth2 uses without the settings of TLS, trust the issuer."""
    return {**os.environ, "SSL_CERT_FILE": str(directory / "ca.pem")}
