"""JSON Web Key Sets: verification keys by key id."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from magnetar.common.security.authentication.token_keys import VerificationKey, of_public_key, secret_key


def parse_key_set(content: bytes, *, secrets: bool) -> dict[str, VerificationKey]:
    """Return the keys of a set by their ids. Raises ValueError when any key cannot be used.

    `secrets` admits shared secrets (kty oct), which only a file of the operator's may hold.
    """
    keys = _entries(content)
    found: dict[str, VerificationKey] = {}
    for number, entry in enumerate(keys):
        kid = entry.get("kid") if isinstance(entry, dict) else None
        if not isinstance(kid, str) or not kid:
            raise ValueError(f"key {number} of the set has no kid")
        if kid in found:
            raise ValueError(f"two keys of the set have the kid {kid!r}")
        try:
            found[kid] = _key(entry, secrets)
        except ValueError as error:
            raise ValueError(f"key {kid!r}: {error}") from error
    if not found:
        raise ValueError("the key set is empty")
    return found


def parse_published_key_set(content: bytes) -> dict[str, VerificationKey]:
    """Return the keys of an issuer's set that can verify signatures; others are left out.

    Raises ValueError when it is not a key set.
    """
    found = {}
    for entry in _entries(content):
        kid = entry.get("kid") if isinstance(entry, dict) else None
        if isinstance(kid, str):
            try:
                found[kid] = _key(entry, False)
            except ValueError:
                continue
    return found


def _entries(content: bytes) -> list[Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError("the key set is not JSON") from error
    keys = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(keys, list):
        raise ValueError('the key set has no list "keys"')
    return keys


def _key(entry: dict[str, Any], secrets: bool) -> VerificationKey:
    import jwt

    if entry.get("use", "sig") != "sig":
        raise ValueError('its use is not "sig"')
    kind = entry.get("kty")
    if kind not in (("RSA", "EC", "oct") if secrets else ("RSA", "EC")):
        raise ValueError(f"key type {kind!r} is not accepted")
    try:
        if kind == "oct":
            raw = jwt.algorithms.HMACAlgorithm.from_jwk(entry)
            key = secret_key(raw if isinstance(raw, bytes) else bytes(raw))
        elif kind == "RSA":
            key = of_public_key(_public(jwt.algorithms.RSAAlgorithm.from_jwk(entry)))
        else:
            key = of_public_key(_public(jwt.algorithms.ECAlgorithm.from_jwk(entry)))
    except (jwt.PyJWTError, TypeError, KeyError) as error:
        raise ValueError(f"it is malformed: {type(error).__name__}") from error
    algorithm = entry.get("alg")
    if algorithm is None:
        return key
    if algorithm not in key.algorithms:
        raise ValueError(
            f"algorithm {algorithm!r} does not fit the key; it can have {', '.join(key.algorithms)}"
        )
    return replace(key, algorithms=(algorithm,))


def _public(key: Any) -> Any:
    """The public key, also where the set holds the private one."""
    return key.public_key() if hasattr(key, "public_key") else key
