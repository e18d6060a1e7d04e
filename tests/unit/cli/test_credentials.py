from __future__ import annotations

from pathlib import Path

import click
import pytest
from magnetar.cli.credentials import NoCredentials, credentials_of

PULSAR = "org.apache.pulsar.client.impl.auth.Authentication"


@pytest.mark.parametrize(
    ("plugin", "parameters", "method", "secret"),
    [
        ("", "token:abc", "token", b"abc"),
        ("token", "abc", "token", b"abc"),
        (f"{PULSAR}Token", "token:abc", "token", b"abc"),
        ("basic", "me:a:b", "basic", b"me:a:b"),
        (f"{PULSAR}Basic", '{"userId":"me","password":"s:t"}', "basic", b"me:s:t"),
        ("", "", "", b""),
    ],
)
def test_secrets_in_pulsars_forms(plugin: str, parameters: str, method: str, secret: bytes) -> None:
    found = credentials_of("", parameters, plugin, "", "")
    assert (found.method, found.supply()) == (method, secret)


@pytest.mark.parametrize(
    "parameters", ["tlsCertFile:/c,tlsKeyFile:/k", '{"tlsCertFile":"/c","tlsKeyFile":"/k"}']
)
@pytest.mark.parametrize("plugin", ["tls", f"{PULSAR}Tls"])
def test_a_certificate_is_named_by_the_parameters(plugin: str, parameters: str) -> None:
    found = credentials_of("", parameters, plugin, "/other", "/other")
    assert (found.method, found.supply()) == ("tls", b"")
    assert (found.certificate_file, found.key_file) == ("/c", "/k")


def test_a_certificate_is_named_by_its_own_options() -> None:
    found = credentials_of("", "", "tls", "/c", "/k")
    assert (found.certificate_file, found.key_file) == ("/c", "/k")


@pytest.mark.parametrize("plugin", ["oauth2", f"{PULSAR[:-14]}oauth2.AuthenticationOAuth2"])
def test_oauth2_is_a_token_that_is_fetched_when_it_is_needed(plugin: str) -> None:
    parameters = '{"issuerUrl":"http://127.0.0.1:1","privateKey":"file:///no/such","audience":"a"}'
    found = credentials_of("", parameters, plugin, "", "")
    assert found.method == "token"
    with pytest.raises(OSError, match="No such file"):
        found.supply()
    with pytest.raises(NoCredentials, match="No such file"):
        found.http_headers()


@pytest.mark.parametrize(
    ("plugin", "parameters", "headers"),
    [
        ("token", "abc", {"Authorization": "Bearer abc"}),
        ("basic", "me:a:b", {"Authorization": "Basic bWU6YTpi"}),
        ("tls", "tlsCertFile:/c,tlsKeyFile:/k", {}),
        (f"{PULSAR}Disabled", "", {}),
        ("", "", {}),
    ],
)
def test_headers_of_http(plugin: str, parameters: str, headers: dict[str, str]) -> None:
    assert credentials_of("", parameters, plugin, "", "").http_headers() == headers


def test_a_token_with_a_line_break_is_not_sent() -> None:
    with pytest.raises(click.UsageError, match="invalid characters"):
        credentials_of("two\nlines", "", "", "", "").http_headers()


@pytest.mark.parametrize("prefix", ["file:", "file://"])
def test_a_tokens_file_is_read_anew(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    found = credentials_of(f"{prefix}{path}", "", "", "", "")
    assert found.supply() == b"first"
    path.write_text("second\n")
    assert found.supply() == b"second"


@pytest.mark.parametrize(
    ("token", "parameters", "plugin", "told"),
    [
        ("", "", "kerberos", "unknown authentication plugin"),
        ("abc", "", "basic", "--token does not go"),
        ("", "", "tls", "tlsCertFile"),
        ("", "", "token", "token:TEXT"),
        ("", "secret", "basic", "userId"),
        ("", "{secret", "basic", "not valid JSON"),
        ("file:/no/such", "", "", "No such file"),
        ("", "secret", "oauth2", "the oauth2 plugin needs the parameters"),
        ("", '{"privateKey":"data:,secret"}', f"{PULSAR[:-14]}oauth2.AuthenticationOAuth2", "issuerUrl"),
    ],
)
def test_what_cannot_be_used_is_told_without_secrets(
    token: str, parameters: str, plugin: str, told: str
) -> None:
    with pytest.raises(click.UsageError, match=told) as caught:
        credentials_of(token, parameters, plugin, "", "")
    assert "secret" not in caught.value.message
