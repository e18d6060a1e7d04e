"""Token authentication of a standalone, with the PyPI client and over HTTP."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import jwt
import pulsar
import pytest
from magnetar.testing import StandaloneProcess, standalone

SECRET = bytes(range(32))

PROVIDERS = "org.apache.pulsar.broker.authentication"

PASSWORD_FILE = "alice:$apr1$Zk3mPq7x$lZzb0lmp.gEn4RfEF9RVe1\n"
"""The password is correct-horse."""


def token(role: str = "role", **claims: object) -> str:
    return jwt.encode({"sub": role, **claims}, SECRET, "HS256", headers={"typ": ""})


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that hold credentials."""
    directory = tmp_path_factory.mktemp("secure")
    (directory / "secret").write_bytes(SECRET)
    (directory / "htpasswd").write_text(PASSWORD_FILE)
    (directory / "revoked").write_text("{}")
    return directory


@pytest.fixture(scope="module")
def magnetar_standalone(directory: Path) -> Iterator[StandaloneProcess]:
    """Takes the place of the plug-in's, which shows the log of a test that fails."""
    with standalone(
        authenticationEnabled=True,
        authenticationProviders=(
            f"{PROVIDERS}.AuthenticationProviderToken,{PROVIDERS}.AuthenticationProviderBasic"
        ),
        tokenSecretKey=f"file://{directory}/secret",
        basicAuthConf=str(directory / "htpasswd"),
        magnetarTokenRevocations=f"file:{directory}/revoked",
        magnetarAuthenticationFilesCheckSeconds=1,
        authenticationRefreshCheckSeconds=1,
    ) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture
def server(magnetar_standalone: StandaloneProcess) -> StandaloneProcess:
    return magnetar_standalone


@pytest.fixture
def connect(server: StandaloneProcess) -> Iterator[Callable[..., pulsar.Client]]:
    """Makes clients, which are closed at the end."""
    made: list[pulsar.Client] = []

    def act(authentication: object = None) -> pulsar.Client:
        client = pulsar.Client(
            server.service_url,
            authentication=authentication,
            operation_timeout_seconds=5,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        made.append(client)
        return client

    yield act
    for client in made:
        client.close()


def status_of(
    server: StandaloneProcess, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    request = urllib.request.Request(f"{server.admin_url}{path}", headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_clients_with_a_token_or_a_password_publish_and_consume(
    connect: Callable[..., pulsar.Client],
) -> None:
    topic = "persistent://public/default/with-credentials"
    by_token = connect(pulsar.AuthenticationToken(token()))
    by_password = connect(pulsar.AuthenticationBasic("alice", "correct-horse"))
    consumer = by_password.subscribe(topic, "s")
    by_token.create_producer(topic).send(b"hello")
    assert consumer.receive(10_000).data() == b"hello"


@pytest.mark.parametrize(
    "authentication",
    [
        pytest.param(None, id="none", marks=pytest.mark.full),
        pytest.param(
            pulsar.AuthenticationToken(jwt.encode({"sub": "role"}, bytes(32), "HS256")),
            id="signed by another key",
        ),
        pytest.param(pulsar.AuthenticationToken(token(exp=1)), id="expired", marks=pytest.mark.full),
        pytest.param(
            pulsar.AuthenticationBasic("alice", "wrong"), id="wrong password", marks=pytest.mark.full
        ),
    ],
)
def test_clients_without_an_acceptable_credential_are_refused(
    connect: Callable[..., pulsar.Client], authentication: object
) -> None:
    client = connect(authentication)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public/default/refused")


def test_http_asks_for_credentials_except_for_health_and_metrics(server: StandaloneProcess) -> None:
    path = "/admin/v2/clusters"
    assert status_of(server, path) == (401, '{"reason": "Authentication required"}')
    assert status_of(server, "/admin/v2/nothing") == (401, '{"reason": "Authentication required"}')
    assert status_of(server, path, {"Authorization": f"Bearer {token()}"}) == (200, '["standalone"]')
    assert status_of(server, path, {"Authorization": f"Bearer {token()}x"})[0] == 401
    password = base64.b64encode(b"alice:correct-horse").decode()
    assert status_of(server, path, {"Authorization": f"BASIC {password}"})[0] == 200
    assert status_of(server, "/livez")[0] == 200
    code, page = status_of(server, "/metrics")
    assert code == 200
    assert 'pulsar_authentication_failures_total{auth_method="token"' in page


@pytest.mark.full
def test_a_token_that_expires_is_renewed_without_a_reconnection(
    server: StandaloneProcess, connect: Callable[..., pulsar.Client]
) -> None:
    given: list[str] = []

    def supply() -> str:
        given.append(token("renewing", exp=int(time.time()) + 3))
        return given[-1]

    client = connect(pulsar.AuthenticationToken(supply))
    producer = client.create_producer("persistent://public/default/renewed")
    deadline = time.monotonic() + 20
    known = len(given)
    while len(given) < known + 2 and time.monotonic() < deadline:
        producer.send(b"x")
        time.sleep(0.2)
    assert len(given) >= known + 2, "the broker asked for fresh credentials"
    producer.send(b"last")
    assert "did not answer AuthChallenge" not in server.log()


def test_a_revoked_token_ends_its_connections_and_no_others(
    server: StandaloneProcess, directory: Path, connect: Callable[..., pulsar.Client]
) -> None:
    topic = "persistent://public/default/revoked"
    revoked = connect(pulsar.AuthenticationToken(token("bad", jti="stolen")))
    kept = connect(pulsar.AuthenticationToken(token("good", jti="fine")))
    revoked_producer, kept_producer = revoked.create_producer(topic), kept.create_producer(topic)
    (directory / "revoked").write_text(json.dumps({"jti": ["stolen"]}))
    deadline = time.monotonic() + 10
    while "its credential was revoked" not in server.log():
        assert time.monotonic() < deadline, server.log()
        time.sleep(0.1)
    kept_producer.send(b"still here")
    refused: list[BaseException] = []

    def send() -> None:
        try:
            revoked_producer.send(b"too late")
        except pulsar.PulsarException as error:
            refused.append(error)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(2)
    assert sending.is_alive() or refused, "a message of a revoked token was taken"


def test_credentials_are_in_no_log(server: StandaloneProcess, directory: Path) -> None:
    text = server.log()
    assert "authentication failed" in text
    assert "correct-horse" not in text
    assert token()[:40] not in text
    assert (directory / "secret").read_bytes() == SECRET
