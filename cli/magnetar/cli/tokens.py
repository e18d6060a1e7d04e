"""`magnetar tokens`: makes keys and signed tokens for clients, and checks tokens, as `pulsar tokens` does."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

SECRET_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Length of a new secret by algorithm."""

CURVES: Final = {"ES256": "SECP256R1", "ES384": "SECP384R1", "ES512": "SECP521R1"}

RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

RSA_BITS: Final = 2048

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}

_DURATION: Final = re.compile(r"([0-9]{1,12})([smhdwy]?)")

_PRIVATE_MODE: Final = 0o600

_asymmetric: Final = click.Choice([*RSA_ALGORITHMS, *CURVES])


@click.group()
def tokens() -> None:
    """Make keys and tokens for authentication, and check tokens."""


@tokens.command("create-secret-key")
@click.option(
    "-a",
    "--signature-algorithm",
    "algorithm",
    type=click.Choice(list(SECRET_BYTES)),
    default="HS256",
    show_default=True,
    help="Algorithm that the secret is for; it decides its length.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; standard output otherwise.",
)
@click.option("-b", "--base64", "as_base64", is_flag=True, help="Write base64 in place of the raw bytes.")
def create_secret_key(algorithm: str, output: Path | None, as_base64: bool) -> None:
    """Make a shared secret, for tokenSecretKey of brokers and --secret-key of `magnetar tokens create`."""
    key = secrets.token_bytes(SECRET_BYTES[algorithm])
    content = base64.b64encode(key) if as_base64 else key
    if output is None:
        sys.stdout.buffer.write(content)
    else:
        _write(output, content, _PRIVATE_MODE)


@tokens.command("create-key-pair")
@click.option(
    "-a",
    "--signature-algorithm",
    "algorithm",
    type=_asymmetric,
    default="RS256",
    show_default=True,
    help="Algorithm that the keys are for.",
)
@click.option(
    "--output-private-key",
    "private_path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the private key (PKCS #8, DER).",
)
@click.option(
    "--output-public-key",
    "public_path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for the public key (SubjectPublicKeyInfo, DER).",
)
def create_key_pair(algorithm: str, private_path: Path, public_path: Path) -> None:
    """Make a private key that signs tokens, and the public key for tokenPublicKey of brokers."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    if algorithm in CURVES:
        key = ec.generate_private_key(getattr(ec, CURVES[algorithm])())
    else:
        key = rsa.generate_private_key(public_exponent=65_537, key_size=RSA_BITS)
    _write(private_path, key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), _PRIVATE_MODE)
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    _write(public_path, public, 0o644)


@tokens.command("create")
@click.option("-s", "--subject", required=True, help="Role of the clients that present the token.")
@click.option(
    "-e",
    "--expiry-time",
    "expiry",
    metavar="DURATION",
    help="Validity of the token: 30s, 10m, 1h, 3d, 2w, 10y. Default: it does not expire.",
)
@click.option(
    "-sk",
    "--secret-key",
    metavar="KEY",
    help="Shared secret: file:PATH, a path, data:;base64,TEXT, or base64.",
)
@click.option("-pk", "--private-key", metavar="KEY", help="Private key (DER or PEM), given likewise.")
@click.option(
    "-a",
    "--signature-algorithm",
    "algorithm",
    type=click.Choice([*SECRET_BYTES, *RSA_ALGORITHMS, *CURVES]),
    help="Algorithm. Default: HS256 for a secret, RS256 for an RSA key, the curve's for an EC key.",
)
@click.option(
    "-hs",
    "--headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="Additional header of the token, such as kid=key1; several are separated by commas.",
)
def create(
    subject: str,
    expiry: str | None,
    secret_key: str | None,
    private_key: str | None,
    algorithm: str | None,
    headers: tuple[str, ...],
) -> None:
    """Make a signed token and print it."""
    import jwt

    if bool(secret_key) == bool(private_key):
        raise click.UsageError("give either --secret-key or --private-key")
    key, possible = _signing_key(secret_key, private_key)
    chosen = algorithm or possible[0]
    if chosen not in possible:
        raise click.UsageError(f"this key cannot sign with {chosen}; it can with {', '.join(possible)}")
    claims: dict[str, Any] = {"sub": subject}
    if expiry is not None:
        claims["exp"] = int(time.time()) + _seconds(expiry)
    # Without "typ", as Pulsar makes them.
    click.echo(jwt.encode(claims, key, chosen, headers={"typ": "", **_headers(headers)}))


_token_argument = click.argument("token", required=False)
_stdin_option = click.option(
    "-i", "--stdin", "from_stdin", is_flag=True, help="Read the token from standard input."
)
_file_option = click.option(
    "-f",
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that holds the token.",
)


@tokens.command("show")
@_token_argument
@_stdin_option
@_file_option
def show(token: str | None, from_stdin: bool, token_file: Path | None) -> None:
    """Print header and claims of a token, which is not checked. It is also read from TOKEN."""
    from magnetar.common.security.authentication.provider import Refusal
    from magnetar.common.security.authentication.signed_token import header_of, unverified_claims

    text = _token(token, from_stdin, token_file)
    try:
        header, claims = header_of(text), unverified_claims(text)
    except Refusal as refusal:
        raise click.ClickException(str(refusal)) from refusal
    click.echo(f"{_json(header)}\n---\n{_json(claims)}")


@tokens.command("validate")
@_token_argument
@_stdin_option
@_file_option
@click.option(
    "-sk",
    "--secret-key",
    metavar="KEY",
    help="Shared secret: file:PATH, a path, data:;base64,TEXT, or base64.",
)
@click.option("-pk", "--public-key", metavar="KEY", help="Public key (DER or PEM), given likewise.")
@click.option(
    "-a",
    "--signature-algorithm",
    "algorithm",
    type=_asymmetric,
    default="RS256",
    show_default=True,
    help="Algorithm of the public key; only its family counts.",
)
def validate(
    token: str | None,
    from_stdin: bool,
    token_file: Path | None,
    secret_key: str | None,
    public_key: str | None,
    algorithm: str,
) -> None:
    """Check signature and times of a token as brokers do, and print its claims; also read from TOKEN."""
    from magnetar.common.security.authentication import token_keys
    from magnetar.common.security.authentication.claims import check_times
    from magnetar.common.security.authentication.provider import Refusal
    from magnetar.common.security.authentication.secret_source import SecretSource
    from magnetar.common.security.authentication.signed_token import (
        header_of,
        token_text,
        verified_claims,
    )

    if bool(secret_key) == bool(public_key):
        raise click.UsageError("give either --secret-key or --public-key")
    data = _token(token, from_stdin, token_file).encode()
    try:
        if secret_key:
            key = token_keys.secret_key(SecretSource("--secret-key", secret_key).read())
        else:
            assert public_key is not None
            found = SecretSource("--public-key", public_key).read()
            key = token_keys.public_key(found, token_keys.family_of(algorithm))
        text = token_text(data)
        claims = verified_claims(text, header_of(text), key)
        check_times(claims, time.time(), 0)
    except (ValueError, Refusal) as error:
        raise click.ClickException(str(error)) from error
    click.echo(_json(claims))


def _signing_key(secret_key: str | None, private_key: str | None) -> tuple[Any, tuple[str, ...]]:
    """The key, and the algorithms that it signs with, the default one first."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key
    from magnetar.common.security.authentication.secret_source import SecretSource
    from magnetar.common.security.authentication.token_keys import of_public_key
    from magnetar.common.security.authentication.token_keys import secret_key as of_secret

    try:
        if secret_key:
            raw = SecretSource("--secret-key", secret_key).read()
            return raw, of_secret(raw).algorithms
        assert private_key is not None
        data = SecretSource("--private-key", private_key).read()
        try:
            is_pem = data.lstrip().startswith(b"-----")
            key = load_pem_private_key(data, None) if is_pem else load_der_private_key(data, None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ValueError(
                "--private-key: neither a DER nor a PEM private key without a passphrase"
            ) from error
        return key, of_public_key(key.public_key()).algorithms
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _headers(texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in ",".join(texts).split(",") if texts else ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"--headers {text!r} is not NAME=VALUE")
        if name.strip() in ("alg", "crit"):
            raise click.UsageError(f"--headers cannot set {name.strip()}")
        found[name.strip()] = value.strip()
    return found


def _seconds(text: str) -> int:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise click.UsageError(f"--expiry-time {text!r} is not a duration such as 10m, 1h, 3d, 10y")
    return int(match[1]) * _UNITS[match[2]]


def _token(token: str | None, from_stdin: bool, token_file: Path | None) -> str:
    if token is not None:
        return token.strip()
    if from_stdin:
        return sys.stdin.read().strip()
    if token_file is not None:
        try:
            return token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise click.ClickException(f"cannot read {token_file}: {error.strerror}") from error
    if os.environ.get("TOKEN"):
        return os.environ["TOKEN"].strip()
    raise click.UsageError("give the token as an argument, by --stdin, --token-file or TOKEN")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a new or existing file, readable as `mode` says from the start."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error
