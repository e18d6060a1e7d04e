"""Clients that discovery answers itself: their roles, and proxies, which are refused."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from magnetar.common.errors import AuthenticationFailed, Unauthorized
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.common.security.identity import Identity
from magnetar.common.security.principal import Principal
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.discovery.handlers.authentication import authenticate, has_expired

from tests.unit.common.security.authentication.test_authenticator import made

ADDRESS = "10.0.0.1:5000"
OFF = AuthorizationConfig()
PROXIES = AuthorizationConfig(enabled=True, proxy_roles=("role of Token",))


def principal(
    *,
    anonymous: str = "",
    certificate: bytes | None = None,
    authorization: AuthorizationConfig = OFF,
    **sent: Any,
) -> Principal:
    connect = pb.CommandConnect(client_version="c", **sent)
    identity, found = asyncio.run(authenticate(made(anonymous), authorization, connect, certificate, ADDRESS))
    assert identity.role == found.role
    return found


@pytest.mark.parametrize(
    ("sent", "role", "method"),
    [
        ({"auth_method_name": "token", "auth_data": b"good"}, "role of Token", "token"),
        ({"auth_method_name": "basic", "auth_data": b"u:p"}, "role of Basic", "basic"),
        ({"auth_method_name": "tls", "auth_data": b"other"}, "role of Tls", "tls"),
        ({"auth_method_name": "none"}, "anyone", "none"),
        ({}, "anyone", "none"),
        ({"auth_method_name": "sasl", "auth_data": b"good"}, "anyone", "none"),
        ({"auth_data": b"good"}, "anyone", "none"),
    ],
)
def test_the_method_decides_which_credential_counts(sent: dict[str, Any], role: str, method: str) -> None:
    found = principal(anonymous="anyone", certificate=b"good", **sent)
    assert found == Principal(role, None, method, ADDRESS)


@pytest.mark.parametrize(
    ("sent", "certificate"),
    [
        ({"auth_method_name": "token", "auth_data": b"bad"}, b"good"),
        ({"auth_method_name": "token"}, b"good"),
        ({"auth_method_name": "basic", "auth_data": b"good"}, None),
        ({"auth_method_name": "tls", "auth_data": b"good"}, None),
    ],
)
def test_a_refused_credential_is_never_anonymous(sent: dict[str, Any], certificate: bytes | None) -> None:
    with pytest.raises(AuthenticationFailed):
        principal(anonymous="anyone", certificate=certificate, **sent)


@pytest.mark.parametrize("sent", [{}, {"auth_method_name": "sasl"}])
def test_without_an_anonymous_role_a_credential_is_required(sent: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationFailed):
        principal(**sent)


FORGED: dict[str, Any] = {
    "original_principal": "root",
    "original_auth_data": "good",
    "original_auth_method": "token",
    "proxy_version": "1",
}


def test_a_client_cannot_speak_for_another_role() -> None:
    found = principal(auth_method_name="basic", auth_data=b"u:p", authorization=PROXIES, **FORGED)
    assert (found.role, found.original) == ("role of Basic", None)


@pytest.mark.parametrize("said", [{}, FORGED])
def test_a_proxy_role_is_refused_because_its_client_is_not_known(said: dict[str, Any]) -> None:
    with pytest.raises(Unauthorized, match=r"^Invalid roles\.$"):
        principal(auth_method_name="token", auth_data=b"good", authorization=PROXIES, **said)
    without = AuthorizationConfig(proxy_roles=("role of Token",))
    assert principal(auth_method_name="token", auth_data=b"good", authorization=without).role


def test_a_credential_expires_at_its_time() -> None:
    now = time.time()
    assert not has_expired(Identity("a", "basic"))
    assert not has_expired(Identity("a", "token", now + 60))
    assert has_expired(Identity("a", "token", now))
