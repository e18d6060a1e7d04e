"""Tokens of OAuth2's client credentials flow, from an issuer that is made up."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from magnetar.client.authentication.oauth2 import NoToken, OAuth2Parameters, OAuth2Tokens

METADATA = "/.well-known/openid-configuration"
KEY = {"client_id": "reporting", "client_secret": "hush"}


class Issuer(ThreadingHTTPServer):
    """Answers what `pages` says for a path, and keeps the forms that were posted."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.forms: list[dict[str, list[str]]] = []
        self.pages: dict[str, tuple[int, object, dict[str, str]]] = {}
        self.serve("/token", {"access_token": "first", "expires_in": 100})
        self.serve(METADATA, {"token_endpoint": f"{self.url}/token"})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def serve(self, path: str, value: object, status: int = 200, **headers: str) -> None:
        self.pages[path] = status, value, headers


class Handler(BaseHTTPRequestHandler):
    def do(self) -> None:
        issuer = self.server
        assert isinstance(issuer, Issuer)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.command == "POST":
            issuer.forms.append(parse_qs(body))
        status, value, headers = issuer.pages[self.path]
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    server = Issuer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass
class Supplier:
    """Tokens of an issuer by a clock that tests set."""

    issuer: Issuer
    key: str
    more: dict[str, str] = field(default_factory=dict)
    now_s: float = 1_000.0

    def __post_init__(self) -> None:
        given = {"issuerUrl": self.issuer.url, "privateKey": self.key, **self.more}
        self.supply = OAuth2Tokens(OAuth2Parameters.parse(given), lambda: self.now_s).supply


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.json"
    path.write_text(json.dumps({"type": "client_credentials", **KEY}))
    return path


def test_a_token_is_asked_for_with_the_client_and_its_audience(issuer: Issuer, key: Path) -> None:
    supplier = Supplier(issuer, f"file://{key}", {"audience": "urn:a", "scope": "one two", "type": ""})
    assert supplier.supply() == b"first"
    (form,) = issuer.forms
    assert form == {
        "grant_type": ["client_credentials"],
        "client_id": ["reporting"],
        "client_secret": ["hush"],
        "audience": ["urn:a"],
        "scope": ["one two"],
    }


@pytest.mark.parametrize("media", ["application/json;base64", "application/json;charset=utf-8;base64"])
def test_the_key_may_be_in_the_url(issuer: Issuer, media: str) -> None:
    content = base64.b64encode(json.dumps(KEY).encode()).decode()
    assert Supplier(issuer, f"data:{media},{content}").supply() == b"first"


def test_a_token_is_kept_until_a_tenth_of_its_lifetime_is_left(issuer: Issuer, key: Path) -> None:
    supplier = Supplier(issuer, f"file://{key}")
    assert supplier.supply() == b"first"
    issuer.serve("/token", {"access_token": "second", "expires_in": "100"})
    supplier.now_s += 89
    assert supplier.supply() == b"first"
    supplier.now_s += 2
    assert supplier.supply() == b"second"
    assert len(issuer.forms) == 2


def test_the_former_token_serves_until_it_expires_while_the_issuer_fails(issuer: Issuer, key: Path) -> None:
    supplier = Supplier(issuer, f"file://{key}")
    supplier.supply()
    issuer.serve("/token", {"error": "temporarily_unavailable"}, 503)
    supplier.now_s += 99
    assert supplier.supply() == b"first"
    supplier.now_s += 1
    with pytest.raises(NoToken, match="temporarily_unavailable"):
        supplier.supply()


def test_a_token_without_a_lifetime_is_fetched_again_soon(issuer: Issuer, key: Path) -> None:
    issuer.serve("/token", {"access_token": "untold"})
    supplier = Supplier(issuer, f"file://{key}")
    supplier.supply()
    supplier.supply()
    assert len(issuer.forms) == 1
    supplier.now_s += 60
    supplier.supply()
    assert len(issuer.forms) == 2


def test_a_replaced_key_counts_for_the_next_token(issuer: Issuer, key: Path) -> None:
    supplier = Supplier(issuer, f"file:{key}")
    supplier.supply()
    key.write_text(json.dumps({**KEY, "client_secret": "other"}))
    supplier.now_s += 100
    supplier.supply()
    assert [form["client_secret"] for form in issuer.forms] == [["hush"], ["other"]]


def test_metadata_may_be_at_another_path_and_behind_a_slash(issuer: Issuer, key: Path) -> None:
    issuer.pages["/realm/elsewhere"] = issuer.pages.pop(METADATA)
    given = {"issuerUrl": f"{issuer.url}/realm/", "wellKnownMetadataPath": "/elsewhere"}
    assert Supplier(issuer, f"file://{key}", given).supply() == b"first"


@pytest.mark.parametrize(
    ("path", "page", "told"),
    [
        (
            "/token",
            ({"error": "invalid_client", "error_description": "no"}, 401),
            "invalid_client: no .HTTP 401.",
        ),
        ("/token", (b"<html>", 500), "HTTP 500; check client_id"),
        ("/token", (b"<html>",), "did not answer with a JSON object"),
        ("/token", ({"access_token": "two\nlines"},), "usable access_token"),
        ("/token", ({},), "usable access_token"),
        (METADATA, ({}, 404), "HTTP 404; check issuerUrl"),
        (METADATA, ([],), "did not answer with a JSON object"),
        (METADATA, ({"token_endpoint": "file:///etc/passwd"},), "names no token_endpoint"),
    ],
)
def test_answers_that_are_of_no_use_are_told(
    issuer: Issuer, key: Path, path: str, page: tuple[object, ...], told: str
) -> None:
    issuer.serve(path, *page)  # type: ignore[arg-type]
    with pytest.raises(NoToken, match=told) as caught:
        Supplier(issuer, f"file://{key}").supply()
    assert "hush" not in str(caught.value)


def test_a_redirect_does_not_get_the_secret(issuer: Issuer, key: Path) -> None:
    with_token = issuer.pages["/token"]
    issuer.pages["/elsewhere"] = with_token
    issuer.serve("/token", {}, 307, Location=f"{issuer.url}/elsewhere")
    with pytest.raises(NoToken, match="redirects to"):
        Supplier(issuer, f"file://{key}").supply()
    assert len(issuer.forms) == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is not a credentials file"),
        ("[]", "is not a credentials file"),
        ('{"client_id": "a"}', "is not a credentials file"),
        ('{"client_id": "a", "client_secret": 5}', "is not a credentials file"),
        (None, "No such file"),
    ],
)
def test_a_key_that_cannot_be_used_is_told(issuer: Issuer, key: Path, content: str | None, told: str) -> None:
    key.unlink() if content is None else key.write_text(content)
    with pytest.raises(NoToken, match=told):
        Supplier(issuer, f"file://{key}").supply()
    assert issuer.forms == []


def test_an_issuer_that_does_not_answer_is_named(issuer: Issuer, key: Path) -> None:
    with pytest.raises(NoToken, match=r"127.0.0.1:1/\.well-known/.* does not answer: .*; check issuerUrl"):
        Supplier(issuer, f"file://{key}", {"issuerUrl": "http://127.0.0.1:1"}).supply()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "issuerUrl is missing"),
        ({"issuerUrl": "https://h"}, "privateKey is missing"),
        ({"issuerUrl": "h:80", "privateKey": "file:///k"}, "is not a URL"),
        ({"issuerUrl": "https://h", "privateKey": "https://h/secret"}, "privateKey must be file:"),
        ({"issuerUrl": "https://h", "privateKey": "file:///k", "type": "device"}, "type 'device'"),
        ({"issuerUrl": "https://h", "privateKey": "file:///k", "audiense": "a"}, "'audiense'"),
        ({"issuerUrl": "https://h", "privateKey": "file:///k", "tlsCertFile": "c"}, "given together"),
    ],
)
def test_parameters_that_cannot_be_used_are_told_without_the_key(given: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        OAuth2Parameters.parse(given)
    assert "secret" not in str(caught.value)


def test_names_of_the_cpp_library_are_taken() -> None:
    found = OAuth2Parameters.parse(
        {"issuer_url": "https://h", "private_key": "data:,hush", "audience": "a", "readTimeout": "PT1S"}
    )
    assert (found.issuer_url, found.audience) == ("https://h", "a")
    assert "hush" not in repr(found)
