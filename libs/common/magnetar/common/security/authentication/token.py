"""The provider of tokens signed with the operator's own keys: Pulsar's AuthenticationProviderToken."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from magnetar.common.security.authentication.claims import check_audience, check_times, role_of
from magnetar.common.security.authentication.config import TokenConfig
from magnetar.common.security.authentication.jwks import parse_key_set
from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.authentication.reloaded import Reloaded
from magnetar.common.security.authentication.signed_token import header_of, token_text, verified_claims
from magnetar.common.security.authentication.token_keys import (
    VerificationKey,
    family_of,
    public_key,
    secret_key,
)
from magnetar.common.security.authentication.token_revocations import Revocations, parse_revocations
from magnetar.common.security.identity import TOKEN, Credential, Identity

NAME: Final = "AuthenticationProviderToken"


class TokenProvider:
    """Verifies tokens with a shared secret, a public key, or the key of a set that the token names."""

    name = NAME
    method = TOKEN

    def __init__(self, config: TokenConfig, wall_s: Callable[[], float]) -> None:
        """Read the keys. Raises ValueError that says which setting is wrong; keys are not in it."""
        self._config = config
        self._wall_s = wall_s
        self._key = _classic_key(config)
        self._keys: Reloaded[dict[str, VerificationKey]] | None = None
        if config.keys:
            self._keys = Reloaded(
                "magnetarTokenKeys", config.keys, lambda content: parse_key_set(content, secrets=True)
            )
        if self._key is None and self._keys is None:
            raise ValueError(
                f"{config.setting_prefix}tokenSecretKey, {config.setting_prefix}tokenPublicKey and "
                "magnetarTokenKeys are all empty; set one"
            )
        self._revocations: Reloaded[Revocations] | None = None
        if config.revocations:
            self._revocations = Reloaded("magnetarTokenRevocations", config.revocations, parse_revocations)
        if config.audience_claim and not config.audience:
            raise ValueError("tokenAudienceClaim is set without tokenAudience; set both or none")

    async def authenticate(self, credential: Credential, address: str) -> Identity:
        token = token_text(credential.data)
        header = header_of(token)
        claims = verified_claims(token, header, self._key_of(header))
        config = self._config
        expires_at = check_times(claims, self._wall_s(), config.clock_skew_s)
        if config.audience_claim:
            check_audience(claims, config.audience_claim, (config.audience,))
        role = role_of(claims, config.auth_claim)
        token_id, subject, issued_at = claims.get("jti"), claims.get("sub"), claims.get("iat")
        if self._revoked(token_id, subject, issued_at):
            raise Refusal("revoked", "the token is revoked")
        key = json.dumps([token_id, subject, issued_at])
        return Identity(role, TOKEN, expires_at, key, NAME)

    def is_valid(self, identity: Identity) -> bool:
        return not self._revoked(*json.loads(identity.key))

    async def reload(self) -> bool:
        for keys in (self._key, self._keys):
            if keys is not None:
                keys.reload()
        return self._revocations is not None and self._revocations.reload()

    async def close(self) -> None:
        """Nothing is held."""

    def _key_of(self, header: dict[str, Any]) -> VerificationKey:
        kid = header.get("kid")
        if self._keys is not None and isinstance(kid, str):
            found = self._keys.value.get(kid)
            if found is not None:
                return found
        if self._key is None:
            raise Refusal("key", f"no key with the id {kid!r:.80}")
        return self._key.value

    def _revoked(self, token_id: object, subject: object, issued_at: object) -> bool:
        return self._revocations is not None and self._revocations.value.includes(
            token_id, subject, issued_at
        )


def _classic_key(config: TokenConfig) -> Reloaded[VerificationKey] | None:
    """The key of tokenSecretKey, otherwise of tokenPublicKey; None without either. Raises ValueError."""
    prefix = config.setting_prefix
    if config.secret_key:
        return Reloaded(f"{prefix}tokenSecretKey", config.secret_key, secret_key)
    if not config.public_key:
        return None
    try:
        family = family_of(config.public_algorithm)
    except ValueError as error:
        raise ValueError(f"{prefix}tokenPublicAlg: {error}") from error
    return Reloaded(f"{prefix}tokenPublicKey", config.public_key, lambda data: public_key(data, family))
