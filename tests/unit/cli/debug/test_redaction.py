"""Secrets that are removed from settings and logs, and what stays readable."""

from __future__ import annotations

import pytest
from magnetar.cli.debug.redaction import redact_text, redact_value

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtZSJ9.abc-DEF_123"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"refused {TOKEN} at 5", TOKEN),
        ("tokenSecretKey=abcdefgh", "abcdefgh"),
        ('{"password": "hunter2, really"}', "hunter2"),
        ("password='hun ter2'", "ter2"),
        ("Authorization: Bearer abcdef123456", "abcdef123456"),
        ("Authorization: Basic bWU6cHc=", "bWU6cHc="),
        ("tokenSecretKey=data:;base64,QUJDREVGRw==", "QUJDREVGRw"),
        ("etcd:https://root:hunter2@etcd:2379", "hunter2"),
        ("brokerClientAuthenticationParameters=token:abcdef", "abcdef"),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb", "MIIE"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE that was cut", "MIIE"),
        ("aws_secret_access_key: abc/def", "abc/def"),
        ("it said own-secret twice: own-secret", "own-secret"),
    ],
)
def test_a_secret_is_removed_from_a_text(text: str, secret: str) -> None:
    assert secret not in redact_text(text, ["own-secret"])


@pytest.mark.parametrize(
    "text",
    [
        "topic=persistent://a/b/c subscription=s backlog=5",
        "tokenSecretKey=file:///etc/magnetar/secret.key",
        "brokerClientTlsKeyFilePath=/etc/tls/key.pem",
        "authenticationEnabled=true",
        "http://host:8080/path?x=1",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact_text(text) == text


def test_values_of_secret_settings_are_hidden_at_any_depth() -> None:
    shown = redact_value(
        {
            "tokenSecretKey": "abc",
            "tokenSettingsFilePath": "/etc/x",
            "list": [{"clientSecret": "def", "name": "orders"}],
            "count": 5,
            "password": "",
        }
    )
    assert shown == {
        "tokenSecretKey": "(hidden)",
        "tokenSettingsFilePath": "/etc/x",
        "list": [{"clientSecret": "(hidden)", "name": "orders"}],
        "count": 5,
        "password": "",
    }
