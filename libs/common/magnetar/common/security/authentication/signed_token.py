"""Signatures of tokens: a compact JWS, verified with one key and one list of algorithms."""

from __future__ import annotations

import json
from typing import Any, Final

from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.authentication.token_keys import VerificationKey

TOKEN_BYTES_MAX: Final = 16 * 1024


def token_text(data: bytes) -> str:
    """Return the text of a token. Raises Refusal for a blank, too long or malformed one."""
    if len(data) > TOKEN_BYTES_MAX:
        raise Refusal("malformed", f"a token of {len(data)} bytes; at most {TOKEN_BYTES_MAX} are accepted")
    try:
        text = data.decode("ascii").strip()
    except UnicodeDecodeError as error:
        raise Refusal("malformed", "the token is not ASCII") from error
    if not text:
        raise Refusal("no_credentials", "the token is blank")
    return text


def header_of(token: str) -> dict[str, Any]:
    """Return the header, which is not verified. Raises Refusal when it is malformed or has extensions."""
    import jwt

    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise Refusal("malformed", f"not a token: {type(error).__name__}") from error
    if "crit" in header or header.get("b64", True) is not True:
        raise Refusal("malformed", "the token's header asks for extensions, which are not supported")
    return header


def verified_claims(token: str, header: dict[str, Any], key: VerificationKey) -> dict[str, Any]:
    """Return the claims of a token that this key signed. Raises Refusal. Claims are not checked here."""
    import jwt

    if header.get("alg") not in key.algorithms:
        raise Refusal(
            "signature", f"algorithm {header.get('alg')!r:.20} is not one of {', '.join(key.algorithms)}"
        )
    try:
        payload = jwt.PyJWS().decode(token, key.key, algorithms=list(key.algorithms))
        claims = json.loads(payload)
    except jwt.InvalidSignatureError as error:
        raise Refusal("signature", "the signature does not match") from error
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise Refusal("malformed", f"not a token: {type(error).__name__}") from error
    if not isinstance(claims, dict):
        raise Refusal("malformed", "the claims are not an object")
    return claims


def unverified_claims(token: str) -> dict[str, Any]:
    """Return the claims before the signature is checked, only to find the key. Raises Refusal."""
    import jwt

    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise Refusal("malformed", f"not a token: {type(error).__name__}") from error
    return claims
