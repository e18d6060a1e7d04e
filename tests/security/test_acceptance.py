"""Operations that must work and operations that must be refused, with all of security on at once.

docs/testing.md has the list of what an installation with everything on must do, with the test of each line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pulsar
import pytest
from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import eventually
from tests.integration.raw.transcript import Line
from tests.security.conftest import SUPER_USER, Secured, bearer, password, started, token

REFUSED = pulsar.AuthorizationError

TOPIC_B = "persistent://b/n/t"


def certificate(secured: Secured, name: str) -> pulsar.Authentication:
    return pulsar.AuthenticationTLS(
        f"{secured.directory}/{name}.cert.pem", f"{secured.directory}/{name}.key.pem"
    )


def exchange(client: pulsar.Client, topic: str) -> None:
    """Publish and consume one message."""
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"hello")
    message = consumer.receive(10_000)
    assert message.data() == b"hello"
    consumer.acknowledge(message)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("method", ["token", "basic"])
def test_a_granted_role_publishes_and_consumes(
    connect: Callable[..., pulsar.Client], method: str, tls: bool
) -> None:
    by_token = pulsar.AuthenticationToken(lambda: token("bob"))
    by_password = pulsar.AuthenticationBasic("alice", "correct-horse")
    client = connect(by_token if method == "token" else by_password, tls=tls)
    exchange(client, f"persistent://b/n/works-{method}-{tls}")


@pytest.mark.parametrize("name", ["client-super", "client-v1", "broker"])
def test_a_certificate_is_a_role(secured: Secured, connect: Callable[..., pulsar.Client], name: str) -> None:
    exchange(connect(certificate(secured, name), tls=True), f"persistent://b/n/certificate-{name}")


def test_without_credentials_tenant_a_works(connect: Callable[..., pulsar.Client], secured: Secured) -> None:
    exchange(connect(), "persistent://a/n/open")
    assert secured.call("/admin/v2/namespaces/a/n2", method="PUT", body={})[0] == 204


@pytest.mark.parametrize("role", ["", "a-role-without-grants"])
def test_others_are_refused_on_tenant_b(connect: Callable[..., pulsar.Client], role: str) -> None:
    client = connect(pulsar.AuthenticationToken(token(role)) if role else None)
    with pytest.raises(REFUSED):
        client.create_producer("persistent://b/n/refused")
    with pytest.raises(REFUSED):
        client.subscribe("persistent://b/n/refused", "s")


def test_http_refuses_the_same_on_tenant_b(secured: Secured) -> None:
    topic = "/admin/v2/persistent/b/n/refused/stats"
    assert secured.call(topic)[0] == 401
    assert secured.call(topic, bearer("a-role-without-grants"))[0] == 401
    assert secured.call(topic, password("mallory"))[0] == 401
    assert secured.call(topic, password("alice", "wrong"))[0] == 401
    assert secured.call(topic, password("alice"))[0] == 404
    assert secured.call(topic, bearer("bob"))[0] == 404


def test_the_super_user_administers_and_others_do_not(secured: Secured) -> None:
    for path in (
        "/admin/v2/brokers/standalone",
        "/admin/v2/brokers/configuration/values",
        "/admin/v2/tenants",
    ):
        assert secured.call(path, bearer(SUPER_USER))[0] == 200, path
        assert secured.call(path)[0] == 401, path
        assert secured.call(path, bearer("bob"))[0] == 401, path
    assert secured.call("/admin/v2/clusters")[0] == 200


def test_a_grant_holds_for_the_next_connection(
    secured: Secured, connect: Callable[..., pulsar.Client]
) -> None:
    with pytest.raises(REFUSED):
        connect(pulsar.AuthenticationToken(token("late"))).create_producer("persistent://b/n/granted")
    secured.do("POST", "/admin/v2/namespaces/b/n/permissions/late", ["produce", "consume"])
    exchange(connect(pulsar.AuthenticationToken(token("late"))), "persistent://b/n/granted")


# The wire, command by command, because clients have several names for one error.


def refusal(secured: Secured, request: str, **connect: object) -> tuple[str, str]:
    """The error of a Connect or of the request about a topic of tenant B behind it, and where it came."""
    with closing(Line(secured.server.endpoint)) as line:
        line.send("connect", client_version="c", protocol_version=20, **connect)
        first = line.receive()
        if first.name != "connected":
            return pb.ServerError.Name(first.command.error), "connect"
        line.request(request, topic=TOPIC_B)
        answer = line.receive()
        return pb.ServerError.Name(answer.command.error), answer.name


@pytest.mark.parametrize("request_name", ["partitionMetadata", "lookupTopic"])
@pytest.mark.parametrize(
    "connect",
    [
        {},
        {"auth_method_name": "none"},
        {"auth_method_name": "kerberos", "auth_data": b"x"},
        {"auth_method": pb.AuthMethodAthens, "auth_data": b"x"},
        {"auth_data": b"x"},
        {"auth_method_name": "token", "auth_data": token("a-role-without-grants").encode()},
    ],
    ids=["nothing", "none", "unknown method", "old method", "no method", "another role"],
)
def test_without_a_right_the_first_request_is_an_authorization_error(
    secured: Secured, request_name: str, connect: dict[str, Any]
) -> None:
    """Clients depend on it: an unknown method is not an AuthenticationError."""
    forms = {"partitionMetadata": "partitionMetadataResponse", "lookupTopic": "lookupTopicResponse"}
    assert refusal(secured, request_name, **connect) == ("AuthorizationError", forms[request_name])


@pytest.mark.parametrize(
    "connect",
    [
        {"auth_method_name": "token", "auth_data": b"not a token"},
        {"auth_method_name": "token"},
        {"auth_method_name": "basic", "auth_data": b"alice:wrong"},
        {"auth_method_name": "tls"},
    ],
    ids=["token", "no token", "basic", "tls without a certificate"],
)
def test_a_refused_credential_is_an_authentication_error(secured: Secured, connect: dict[str, Any]) -> None:
    assert refusal(secured, "lookupTopic", **connect) == ("AuthenticationError", "connect")


# HTTPS


@pytest.mark.parametrize(
    ("tls", "headers", "certificate", "status"),
    [
        (False, bearer("bob"), "", 404),
        (True, bearer("bob"), "", 404),
        (False, password("alice"), "", 404),
        (True, password("alice"), "", 404),
        (True, {}, "bob", 404),
        (True, {}, "client-v1", 404),
        (True, {"X-Pulsar-Auth-Method-Name": "tls"}, "bob", 404),
        (True, {}, "ungranted", 401),
        (True, bearer("bob"), "ungranted", 404),
        (True, password("alice"), "ungranted", 404),
        (True, password("alice", "wrong"), "bob", 401),
        (True, bearer("ungranted"), "bob", 401),
        (True, {"X-Pulsar-Auth-Method-Name": "kerberos"}, "bob", 401),
        (False, {"X-Original-Principal": "bob"}, "", 401),
    ],
)
def test_each_method_works_at_its_http_ports(
    secured: Secured, tls: bool, headers: dict[str, str], certificate: str, status: int
) -> None:
    """404: the role may know that the topic does not exist."""
    path = "/admin/v2/persistent/b/n/nowhere/stats"
    assert secured.call(path, headers, tls=tls, certificate=certificate)[0] == status


def test_what_needs_no_credentials_is_served_at_both_http_ports(secured: Secured) -> None:
    for tls in (False, True):
        for path in ("/livez", "/readyz", "/health", "/metrics", "/status.html"):
            assert secured.call(path, tls=tls)[0] == 200, path


# Clients


def basic_beside_a_certificate(secured: Secured, user: str, secret: str, certificate: str) -> pulsar.Client:
    """A client that shows a certificate in the handshake and authenticates by a password."""
    return pulsar.Client(
        secured.tls_url,
        authentication=pulsar.AuthenticationBasic(user, secret),
        operation_timeout_seconds=5,
        tls_trust_certs_file_path=f"{secured.directory}/ca.pem",
        tls_certificate_file_path=f"{secured.directory}/{certificate}.cert.pem",
        tls_private_key_file_path=f"{secured.directory}/{certificate}.key.pem",
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


@pytest.mark.full
def test_a_password_beside_a_client_certificate_gives_the_role_of_the_password(secured: Secured) -> None:
    with closing(basic_beside_a_certificate(secured, "alice", "correct-horse", "ungranted")) as client:
        exchange(client, "persistent://b/n/beside-a-certificate")
        stats = json.loads(
            secured.call("/admin/v2/persistent/b/n/beside-a-certificate/stats", bearer(SUPER_USER))[1]
        )
        assert stats["subscriptions"]["s"]["consumers"]
    with (
        closing(basic_beside_a_certificate(secured, "alice", "wrong", "client-super")) as client,
        pytest.raises(pulsar.PulsarException),
    ):
        client.create_producer("persistent://b/n/beside-a-certificate")


def test_credentials_from_suppliers_and_any_server_certificate(secured: Secured) -> None:
    asked: list[int] = []

    def supply() -> str:
        asked.append(1)
        return token("bob")

    for url, options in (
        (secured.tls_url.replace("localhost", "127.0.0.1"), {"tls_allow_insecure_connection": True}),
        (secured.https_url, {"tls_trust_certs_file_path": f"{secured.directory}/ca.pem"}),
    ):
        with closing(
            pulsar.Client(
                url,
                authentication=pulsar.AuthenticationToken(supply),
                operation_timeout_seconds=5,
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
                **options,
            )
        ) as client:
            exchange(client, f"persistent://b/n/supplied-{url.partition(':')[0].replace('+', '-')}")
    assert len(asked) >= 2


class Issuer(BaseHTTPRequestHandler):
    """Grants a token of the broker's own secret, as a flow of OAuth2 does."""

    def do_GET(self) -> None:
        self._answer({"token_endpoint": f"http://{self.headers['Host']}/token"})

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        granted = b"a-secret" in asked
        found = {"access_token": token("bob"), "token_type": "Bearer", "expires_in": 3600}
        self._answer(found if granted else {"error": "invalid_client"}, 200 if granted else 401)

    def _answer(self, value: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are not shown."""


def test_a_bearer_token_of_an_oauth2_flow_is_a_token_as_any_other(
    secured: Secured, connect: Callable[..., pulsar.Client], tmp_path: Path
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Issuer) as issuer:
        serving = Thread(target=issuer.serve_forever)
        serving.start()
        try:
            key = {"type": "client_credentials", "client_id": "bob", "client_secret": "a-secret"}
            (tmp_path / "key.json").write_text(json.dumps(key))
            parameters = {
                "issuer_url": f"http://127.0.0.1:{issuer.server_port}",
                "private_key": f"file://{tmp_path}/key.json",
                "audience": "anything",
            }
            client = connect(pulsar.AuthenticationOauth2(json.dumps(parameters)))
            exchange(client, "persistent://b/n/by-oauth2")
        finally:
            issuer.shutdown()
            serving.join()


def test_a_super_user_reads_the_version_of_a_client_that_logged_in_by_token(
    secured: Secured, connect: Callable[..., pulsar.Client]
) -> None:
    client = connect(pulsar.AuthenticationToken(token("bob")))
    consumer = client.subscribe("persistent://b/n/versions", "s")
    producer = client.create_producer("persistent://b/n/versions")
    stats = json.loads(secured.call("/admin/v2/persistent/b/n/versions/stats", bearer(SUPER_USER))[1])
    (publisher,) = stats["publishers"]
    (subscribed,) = stats["subscriptions"]["s"]["consumers"]
    assert publisher["clientVersion"].startswith("Pulsar-CPP")
    assert subscribed["clientVersion"] == publisher["clientVersion"]
    producer.close()
    consumer.close()


# The super user


def test_the_super_user_makes_clusters_tenants_namespaces_and_grants(
    secured: Secured, connect: Callable[..., pulsar.Client]
) -> None:
    secured.do("PUT", "/admin/v2/clusters/elsewhere", {"serviceUrl": "http://elsewhere:8080"})
    secured.do("PUT", "/admin/v2/tenants/made", {"adminRoles": [], "allowedClusters": ["standalone"]})
    secured.do("PUT", "/admin/v2/namespaces/made/n", {})
    secured.do("POST", "/admin/v2/namespaces/made/n/permissions/carol", ["produce", "consume"])
    exchange(connect(pulsar.AuthenticationToken(token("carol"))), "persistent://made/n/t")
    secured.do("DELETE", "/admin/v2/clusters/elsewhere")
    for method, path, body in (
        ("PUT", "/admin/v2/clusters/third", {"serviceUrl": "http://third:8080"}),
        ("PUT", "/admin/v2/tenants/third", {"adminRoles": ["bob"], "allowedClusters": ["standalone"]}),
    ):
        for headers in ({}, bearer("bob"), password("alice")):
            assert secured.call(path, headers, method, body)[0] == 401, (path, headers)


def test_super_users_are_changed_while_the_broker_runs(
    secured: Secured, connect: Callable[..., pulsar.Client]
) -> None:
    setting = "/admin/v2/brokers/configuration/superUserRoles"
    users = f"broker,{SUPER_USER},client-super,proxy,deputy"
    tenants = "/admin/v2/tenants"
    assert secured.call(tenants, bearer("deputy"))[0] == 401
    for headers in ({}, bearer("bob"), bearer("deputy")):
        assert secured.call(f"{setting}/{users}", headers, "POST")[0] == 401
        assert secured.call("/admin/v2/brokers/configuration", headers)[0] == 401
    secured.do("POST", f"{setting}/{users}")
    try:
        assert secured.call(tenants, bearer("deputy"))[0] == 200
        producer = connect(pulsar.AuthenticationToken(token("deputy"))).create_producer(
            "persistent://b/n/of-a-deputy", send_timeout_millis=2_000
        )
        producer.send(b"x")
    finally:
        secured.do("DELETE", setting)
    assert secured.call(tenants, bearer("deputy"))[0] == 401

    def publishers() -> list[object]:
        stats = secured.call("/admin/v2/persistent/b/n/of-a-deputy/stats", bearer(SUPER_USER))[1]
        return list(json.loads(stats)["publishers"])

    eventually(lambda: not publishers(), "the deputy's producer is closed")
    assert secured.call(tenants, bearer(SUPER_USER))[0] == 200


def test_a_revoked_grant_closes_the_producer_and_keeps_it_out(
    secured: Secured, connect: Callable[..., pulsar.Client]
) -> None:
    permissions = "/admin/v2/namespaces/b/n/permissions/leaving"
    secured.do("POST", permissions, ["produce"])
    topic = "persistent://b/n/left"
    producer = connect(pulsar.AuthenticationToken(token("leaving"))).create_producer(
        topic, send_timeout_millis=2_000
    )
    producer.send(b"x")
    secured.do("DELETE", permissions)

    def publishers() -> list[object]:
        stats = secured.call("/admin/v2/persistent/b/n/left/stats", bearer(SUPER_USER))[1]
        return list(json.loads(stats)["publishers"])

    began = time.monotonic()
    eventually(lambda: not publishers(), "the producer is closed")
    assert time.monotonic() - began < 10, "2 s is the bound of an idle machine"
    with pytest.raises(REFUSED):
        connect(pulsar.AuthenticationToken(token("leaving"))).create_producer(topic)


# Encryption


def test_a_namespace_that_requires_encryption_refuses_plain_producers_of_any_role(
    secured: Secured, connect: Callable[..., pulsar.Client]
) -> None:
    secured.do("PUT", "/admin/v2/namespaces/b/secrets", {})
    secured.do("POST", "/admin/v2/namespaces/b/secrets/permissions/bob", ["produce", "consume"])
    path = "/admin/v2/namespaces/b/secrets/encryptionRequired"
    assert secured.call(path, bearer("bob"), "POST", True)[0] == 403
    secured.do("POST", path, True)
    for role in ("bob", SUPER_USER):
        with closing(Line(secured.server.endpoint)) as line:
            line.connect(auth_method_name="token", auth_data=token(role).encode())
            request = line.request("producer", topic="persistent://b/secrets/t", producer_id=1)
            assert "ncryption" in line.expect_error(request, "MetadataError")
            line.request("producer", topic="persistent://b/secrets/t", producer_id=2, encrypted=True)
            line.expect("producer_success")


# Another form of the same set-up


@pytest.mark.full
def test_it_starts_with_a_common_name_alone_and_without_credentials_of_its_own(tmp_path: Path) -> None:
    """A certificate without alternative names, an empty plug-in, and the password file by the environment."""
    changed = {
        "tlsCertificateFilePath": f"{tmp_path}/broker-cn.cert.pem",
        "tlsKeyFilePath": f"{tmp_path}/broker-cn.key.pem",
        "brokerClientAuthenticationPlugin": "",
        "brokerClientAuthenticationParameters": "",
        "basicAuthConf": "",
    }
    with started(tmp_path, changed, {"MAGNETAR_BASIC_AUTH_CONF": f"{tmp_path}/htpasswd"}) as secured:
        with closing(
            pulsar.Client(
                secured.tls_url,
                authentication=pulsar.AuthenticationBasic("alice", "correct-horse"),
                operation_timeout_seconds=5,
                tls_trust_certs_file_path=f"{secured.directory}/ca.pem",
                tls_validate_hostname=False,
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            )
        ) as client:
            exchange(client, "persistent://b/n/t")
        assert secured.call("/admin/v2/persistent/b/n/nowhere/stats", password("alice"))[0] == 404
