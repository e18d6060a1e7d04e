"""Providers are asked in order; who is anonymous, and what a failure looks like."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from magnetar.common.errors import AuthenticationFailed
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.authentication.metrics import FAILURES, SUCCESSES
from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.identity import Credential, Identity
from structlog.testing import capture_logs

from tests.unit.common.security.authentication.signing import run


class Provider:
    """Accepts one secret of its method."""

    def __init__(self, name: str, method: str, secret: bytes = b"good") -> None:
        self.name, self.method, self.secret = name, method, secret
        self.asked = 0
        self.changed = False

    async def authenticate(self, credential: Credential, address: str) -> Identity:
        self.asked += 1
        if (credential.certificate if self.method == "tls" else credential.data) != self.secret:
            raise Refusal("signature", "a detail for the log")
        return Identity(f"role of {self.name}", self.method, None, "", self.name)

    def is_valid(self, identity: Identity) -> bool:
        return not self.changed

    async def reload(self) -> bool:
        return self.changed

    async def close(self) -> None:
        """Nothing is held."""


def made(anonymous: str = "", delay_s: float = 0, *providers: Provider) -> Authenticator:
    given = providers or (
        Provider("Tls", "tls"),
        Provider("Token", "token"),
        Provider("Basic", "basic", b"u:p"),
    )
    return Authenticator(given, anonymous_role=anonymous, monotonic=lambda: 0.0, failure_delay_s=delay_s)


def role(asked: Authenticator, credential: Credential | None, **more: Any) -> str:
    return run(asked.authenticate(credential, "h", **more)).role


def http(asked: Authenticator, headers: dict[str, str], certificate: bytes | None = None) -> str | None:
    """The role; None when it is refused."""
    try:
        return run(asked.authenticate_http(headers, certificate, "h")).role
    except AuthenticationFailed:
        return None


BASIC = {"Authorization": "Basic " + base64.b64encode(b"u:p").decode()}
TOKEN = {"Authorization": "Bearer good"}


def test_several_providers_of_a_method_are_asked_in_turn_and_a_former_one_first() -> None:
    first, second = Provider("First", "token", b"1"), Provider("Second", "token", b"2")
    asked = made("", 0, first, second)
    assert role(asked, Credential("token", b"2")) == "role of Second"
    assert (first.asked, second.asked) == (1, 1)
    assert role(asked, Credential("token", b"2"), asked_first="Second") == "role of Second"
    assert (first.asked, second.asked) == (1, 2)


def test_failures_say_nothing_and_are_logged_and_counted_with_their_reason() -> None:
    asked = made()
    before = FAILURES.labels("Token", "token", "signature")._value.get()
    with capture_logs() as logs, pytest.raises(AuthenticationFailed, match=r"^Failed to authenticate$"):
        role(asked, Credential("token", b"a secret"))
    assert FAILURES.labels("Token", "token", "signature")._value.get() == before + 1
    assert [(each["event"], each["reason"]) for each in logs] == [
        ("authentication failed", "Token: a detail for the log")
    ]
    assert "a secret" not in str(logs)


def test_successes_are_counted() -> None:
    before = SUCCESSES.labels("Token", "token")._value.get()
    role(made(), Credential("token", b"good"))
    assert SUCCESSES.labels("Token", "token")._value.get() == before + 1


def test_names_of_methods_that_clients_invent_make_no_metrics() -> None:
    for method in ("invented-1", "invented-2"):
        with pytest.raises(AuthenticationFailed):
            role(made(), Credential(method, b""))
    samples = [sample for metric in FAILURES.collect() for sample in metric.samples]
    assert not any("invented" in sample.labels["auth_method"] for sample in samples)


def test_only_wrong_passwords_are_answered_late(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asked = made("", 1.0)
    for method in ("token", "basic", "tls"):
        with pytest.raises(AuthenticationFailed):
            role(asked, Credential(method, b"wrong"))
    assert slept == [1.0]


def test_the_wire_without_a_provider_is_anonymous_and_a_refused_credential_is_not() -> None:
    assert role(made("anyone"), None) == "anyone"
    assert role(made("anyone"), Credential("kerberos", b"x")) == "anyone"
    with pytest.raises(AuthenticationFailed):
        role(made("anyone"), Credential("token", b"wrong"))
    with pytest.raises(AuthenticationFailed):
        role(made(), None)


@pytest.mark.parametrize(
    ("headers", "certificate", "found", "found_with_anonymous"),
    [
        ({}, None, None, "anyone"),
        (TOKEN, None, "role of Token", "role of Token"),
        (BASIC, None, "role of Basic", "role of Basic"),
        (
            {"Authorization": BASIC["Authorization"].replace("Basic", "bASIC")},
            None,
            "role of Basic",
            "role of Basic",
        ),
        ({}, b"good", "role of Tls", "role of Tls"),
        ({}, b"bad", None, "anyone"),
        ({"Authorization": "Bearer bad"}, None, None, None),
        ({"Authorization": "bearer good"}, None, None, None),
        ({"Authorization": "Basic %%%"}, None, None, None),
        ({"Authorization": "Negotiate x"}, None, None, None),
        ({"Authorization": ""}, None, None, None),
        (BASIC, b"good", "role of Basic", "role of Basic"),
        ({"Authorization": "Bearer bad"}, b"good", None, None),
        ({"X-Pulsar-Auth-Method-Name": "token", **TOKEN}, b"good", "role of Token", "role of Token"),
        ({"X-Pulsar-Auth-Method-Name": "tls", **TOKEN}, b"good", "role of Tls", "role of Tls"),
        ({"X-Pulsar-Auth-Method-Name": "basic", **TOKEN}, None, None, None),
        ({"X-Pulsar-Auth-Method-Name": "token"}, None, None, None),
        ({"X-Pulsar-Auth-Method-Name": "sasl", **TOKEN}, None, None, None),
        ({"X-Pulsar-Auth-Method-Name": "none"}, None, None, None),
    ],
)
def test_http_credentials(
    headers: dict[str, str], certificate: bytes | None, found: str | None, found_with_anonymous: str | None
) -> None:
    assert http(made(), headers, certificate) == found
    assert http(made("anyone"), headers, certificate) == found_with_anonymous


def test_a_change_is_told_and_what_it_revoked_is_invalid() -> None:
    provider = Provider("Token", "token")
    asked = made("anyone", 0, provider)
    told: list[str] = []
    asked.on_change(lambda: told.append("changed"))
    identity = run(asked.authenticate(Credential("token", b"good"), "h"))
    anonymous = run(asked.authenticate(None, "h"))
    run(asked.reload())
    assert (told, asked.still_valid(identity)) == ([], True)
    provider.changed = True
    run(asked.reload())
    assert (told, asked.still_valid(identity), asked.still_valid(anonymous)) == (["changed"], False, True)
