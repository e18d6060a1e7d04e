"""Keys that verify tokens. The key decides which algorithms are accepted, never the token's header alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

SECRET_BYTES_MIN: Final = 32
RSA_BITS_MIN: Final = 2048

RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

CURVE_ALGORITHMS: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}

_SECRETS: Final = ((32, "HS256"), (48, "HS384"), (64, "HS512"))
"""Algorithms by the shortest secret that they accept."""

_FAMILIES: Final = {
    "RS": "RSA",
    "PS": "RSA",
    "ES": "EC",
}


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A key with the algorithms that it verifies."""

    key: Any = field(repr=False)
    """Secret bytes, or a public key of cryptography."""
    algorithms: tuple[str, ...]


def secret_key(raw: bytes) -> VerificationKey:
    """Return the key of a shared secret of these raw bytes. Raises ValueError when it is too short."""
    algorithms = tuple(name for length, name in _SECRETS if len(raw) >= length)
    if not algorithms:
        raise ValueError(f"a secret of {len(raw)} bytes; at least {SECRET_BYTES_MIN} are needed")
    return VerificationKey(raw, algorithms)


def family_of(algorithm: str) -> str:
    """Return "RSA" or "EC" for an algorithm of tokenPublicAlg. Raises ValueError for others."""
    digits = algorithm[2:]
    family = _FAMILIES.get(algorithm[:2])
    if family is None or digits not in ("256", "384", "512"):
        accepted = ", ".join((*RSA_ALGORITHMS, *CURVE_ALGORITHMS.values()))
        raise ValueError(f"unknown algorithm {algorithm!r}; use one of {accepted}")
    return family


def public_key(data: bytes, family: str) -> VerificationKey:
    """Return the key of a SubjectPublicKeyInfo in DER or PEM. Raises ValueError for another kind of key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

    try:
        key = load_pem_public_key(data) if data.lstrip().startswith(b"-----") else load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError("neither a DER nor a PEM public key (SubjectPublicKeyInfo)") from error
    found = of_public_key(key)
    if ("RSA" if found.algorithms[0].startswith("RS") else "EC") != family:
        raise ValueError(f"the key is not of the family {family}; set tokenPublicAlg to its algorithm")
    return found


def of_public_key(key: Any) -> VerificationKey:
    """Return the key with the algorithms of its type. Raises ValueError for a weak or unknown one."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    if isinstance(key, RSAPublicKey):
        if key.key_size < RSA_BITS_MIN:
            raise ValueError(f"an RSA key of {key.key_size} bits; at least {RSA_BITS_MIN} are needed")
        return VerificationKey(key, RSA_ALGORITHMS)
    if isinstance(key, EllipticCurvePublicKey):
        algorithm = CURVE_ALGORITHMS.get(key.curve.name)
        if algorithm is not None:
            return VerificationKey(key, (algorithm,))
        raise ValueError(f"the curve {key.curve.name} is not supported; use P-256, P-384 or P-521")
    raise ValueError(f"{type(key).__name__} is not supported; use an RSA or EC key")
