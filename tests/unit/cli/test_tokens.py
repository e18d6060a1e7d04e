"""`magnetar tokens`: keys and tokens that brokers, and Pulsar's own commands, understand."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import jwt
import pytest
from click.testing import CliRunner, Result
from magnetar.cli.main import main


def tokens(*arguments: str | Path, code: int = 0, given: str | None = None) -> Result:
    done = CliRunner().invoke(main, ["tokens", *map(str, arguments)], input=given)
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    tokens("create-secret-key", "--output", tmp_path / "secret")
    return tmp_path / "secret"


def test_secrets_have_the_length_of_their_algorithm_and_are_private(tmp_path: Path, secret: Path) -> None:
    assert len(secret.read_bytes()) == 32
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    encoded = tokens("create-secret-key", "-a", "HS512", "-b").stdout
    assert len(base64.b64decode(encoded)) == 64
    assert len(tokens("create-secret-key").stdout_bytes) == 32


def test_a_token_has_the_subject_alone_and_its_header_the_algorithm_alone(secret: Path) -> None:
    token = tokens("create", "-sk", f"file://{secret}", "--subject", "alice").stdout.strip()
    assert jwt.get_unverified_header(token) == {"alg": "HS256"}
    assert jwt.decode(token, secret.read_bytes(), ["HS256"]) == {"sub": "alice"}
    assert tokens("show", token).stdout == '{"alg":"HS256"}\n---\n{"sub":"alice"}\n'
    assert tokens("validate", "-sk", secret, token).stdout == '{"sub":"alice"}\n'


@pytest.mark.parametrize("algorithm", ["RS256", "PS512", "ES256", "ES384", "ES512"])
def test_a_pair_of_keys_signs_and_validates(tmp_path: Path, algorithm: str) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    tokens("create-key-pair", "-a", algorithm, "--output-private-key", private, "--output-public-key", public)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    token = tokens("create", "-pk", private, "-a", algorithm, "-s", "bob", "--headers", "kid=one,x=y").stdout
    assert jwt.get_unverified_header(token.strip()) == {"alg": algorithm, "kid": "one", "x": "y"}
    said = tokens("validate", "-pk", public, "-a", algorithm, "--stdin", given=token)
    assert json.loads(said.stdout) == {"sub": "bob"}


def test_expiry_times_are_durations(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.cli.tokens.time.time", lambda: 1_000_000.5)
    for text, seconds in (
        ("90", 90),
        ("10s", 10),
        ("2m", 120),
        ("1h", 3_600),
        ("3d", 259_200),
        ("1y", 31_536_000),
    ):
        token = tokens("create", "-sk", secret, "-s", "a", "-e", text).stdout.strip()
        claims = jwt.decode(token, options={"verify_signature": False})
        assert claims["exp"] == 1_000_000 + seconds
    assert "is not a duration" in tokens("create", "-sk", secret, "-s", "a", "-e", "soon", code=2).stderr


def test_tokens_that_brokers_refuse_are_refused(secret: Path, tmp_path: Path) -> None:
    expired = jwt.encode({"sub": "a", "exp": 1}, secret.read_bytes(), "HS256")
    assert "the token expired" in tokens("validate", "-sk", secret, expired, code=1).stderr
    foreign = jwt.encode({"sub": "a"}, bytes(32), "HS256")
    assert "the signature does not match" in tokens("validate", "-sk", secret, foreign, code=1).stderr
    (tmp_path / "short").write_bytes(b"short")
    assert "at least 32" in tokens("create", "-sk", tmp_path / "short", "-s", "a", code=1).stderr
    assert "not a token" in tokens("show", "nonsense", code=1).stderr


def test_a_token_comes_from_an_argument_a_file_or_the_environment(
    secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tokens("create", "-sk", secret, "-s", "a").stdout
    (tmp_path / "token").write_text(token)
    shown = tokens("show", token.strip()).stdout
    assert tokens("show", "-f", tmp_path / "token").stdout == shown
    assert "give the token" in tokens("show", code=2).stderr
    monkeypatch.setenv("TOKEN", token)
    assert tokens("show").stdout == shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "-s", "a"),
        ("create", "-s", "a", "-sk", "x", "-pk", "y"),
        ("validate", "t"),
        ("create", "-s", "a", "-sk", "data:;base64," + "A" * 43, "-a", "RS256"),
        ("create", "-s", "a", "-sk", "data:;base64," + "A" * 43, "-hs", "alg=none"),
        ("create", "-s", "a", "-sk", "data:;base64," + "A" * 43, "-hs", "kid"),
    ],
)
def test_contradicting_options_are_refused(arguments: tuple[str, ...]) -> None:
    tokens(*arguments, code=2)
