"""Keys and tokens for the tests of authentication, and a clock."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from magnetar.common.security.identity import Credential, Identity

T = TypeVar("T")

SECRET = bytes(range(32))
NOW = 1_800_000_000.0


class Time:
    """A clock that stands still until it is set."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def signed(claims: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **headers: Any) -> bytes:
    return jwt.encode(claims, key, algorithm, headers={"typ": "", **headers}).encode()


def by_hand(header: dict[str, Any], claims: Any, signature: bytes = b"") -> bytes:
    """A token of any content."""
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)


@cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=bits)


@cache
def ec_key(curve: str = "SECP256R1") -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(getattr(ec, curve)())


def public_der(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found


def public_pem(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def jwk(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    """The public key as an entry of a key set."""
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": kid, **more}


def key_set(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(entries)}).encode()


def file_of(directory: Path, name: str, content: bytes) -> str:
    (directory / name).write_bytes(content)
    return f"file://{directory / name}"


def token(data: bytes) -> Credential:
    return Credential("token", data)


def accepted(provider: Any, credential: Credential, address: str = "10.0.0.1") -> Identity:
    found: Identity = run(provider.authenticate(credential, address))
    return found
