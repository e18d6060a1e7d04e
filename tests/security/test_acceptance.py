"""Operations that must work and operations that must be refused, with all of security on at once."""

from __future__ import annotations

from collections.abc import Callable

import pulsar
import pytest

from tests.security.conftest import SUPER_USER, Secured, bearer, password, token

REFUSED = (pulsar.AuthorizationError, pulsar.ConnectError)
"""The two names that the PyPI client has for AuthorizationError, after its lookup and before."""


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
