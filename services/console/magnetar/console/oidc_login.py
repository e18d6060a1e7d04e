"""Logging in by OpenID Connect: the authorization code flow with PKCE.

The browser carries its own login in a cookie for a few minutes: state, nonce and code verifier. So only the
browser that began it can finish it, and the console keeps nothing: any of several consoles may finish it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from magnetar.console.errors import LoginFailed
from magnetar.console.oidc_config import OidcConfig
from magnetar.console.oidc_issuer import OidcIssuer

LOGIN_AGE_S: Final = 600
"""Seconds within which a visitor has to be back from the issuer."""

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Signatures of id tokens; none of a shared secret."""

CLOCK_SKEW_S: Final = 60
NEXT_CHARS_MAX: Final = 1500
"""Longest path that a browser is sent to after its login; the cookie has to stay below 4096 bytes."""


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """A login that a browser has begun."""

    state: str
    nonce: str
    verifier: str
    next: str
    """Path of the page that was asked for."""

    def cookie(self) -> str:
        """Returns the value of the browser's cookie."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode().rstrip("=")

    @staticmethod
    def read(cookie: str) -> PendingLogin | None:
        """Returns the login of a cookie; None for any other text."""
        try:
            value = json.loads(base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4)))
            pending = PendingLogin(**value)
        except (ValueError, TypeError, RecursionError):
            return None
        return pending if all(isinstance(each, str) and each for each in asdict(pending).values()) else None


@dataclass(frozen=True, slots=True)
class GrantedToken:
    """The token that an issuer granted to a visitor."""

    token: str
    age_s: int
    """Seconds until it expires; 0: not known."""


class OidcLogin:
    """Logs visitors in at one issuer. Create it on its event loop; `close` ends its connections."""

    def __init__(self, config: OidcConfig, now_s: Callable[[], float]) -> None:
        """`now_s` is a monotonic clock. Raises ValueError when a file of `config` cannot be read."""
        self._config = config
        self._issuer = OidcIssuer(config, now_s)

    @property
    def name(self) -> str:
        """The issuer's host, for visitors."""
        return urlsplit(self._config.issuer).hostname or self._config.issuer

    async def begin(self, next_path: str) -> tuple[str, PendingLogin]:
        """Returns the issuer's URL for a browser, and the login that it begins. Raises LoginFailed."""
        config, description = self._config, await self._issuer.description()
        if len(next_path) > NEXT_CHARS_MAX:
            next_path = "/"
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": config.client_id,
            "redirect_uri": config.redirect_uri,
            "scope": config.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        if config.audience:
            query["audience"] = config.audience
        endpoint = description.authorization_endpoint
        url = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"
        return url, PendingLogin(state, nonce, verifier, next_path)

    async def finish(self, pending: PendingLogin | None, answer: Mapping[str, str]) -> GrantedToken:
        """Returns the visitor's token for the parameters with which the issuer sent the browser back.

        Raises LoginFailed with what the visitor or the operator can do.
        """
        if pending is None:
            raise LoginFailed(
                "this browser has no login in progress: it took longer than 10 minutes, was finished "
                "already, or began in another browser; begin again"
            )
        if not hmac.compare_digest(answer.get("state", "").encode(), pending.state.encode()):
            raise LoginFailed(
                "the answer is for another login than the last one of this browser; begin again"
            )
        if "iss" in answer and answer["iss"] != self._config.issuer:  # RFC 9207
            raise LoginFailed("the answer comes from another issuer than the login was begun at")
        if "error" in answer:
            reason = " - ".join(
                answer[name][:300] for name in ("error", "error_description") if name in answer
            )
            raise LoginFailed(f"the issuer refused the login: {reason}")
        if not answer.get("code"):
            raise LoginFailed("the issuer's answer has no code; begin again")
        tokens = await self._issuer.tokens(answer["code"], pending.verifier)
        await self._check_id_token(tokens.get("id_token"), pending.nonce)
        token = tokens.get(self._config.token)
        if not isinstance(token, str) or not token:
            raise LoginFailed(f"the issuer granted no {self._config.token} (magnetarConsoleOidcToken)")
        expires_in = tokens.get("expires_in", 0)
        known = isinstance(expires_in, int) and not isinstance(expires_in, bool) and expires_in > 0
        return GrantedToken(token, expires_in if known else 0)

    async def end_url(self) -> str:
        """Returns the issuer's URL that ends the visitor's session there; empty if it has none."""
        try:
            description = await self._issuer.description()
        except LoginFailed:
            return ""
        if not description.end_session_endpoint:
            return ""
        config = self._config
        query = {
            "client_id": config.client_id,
            "post_logout_redirect_uri": f"{config.public_url.rstrip('/')}/",
        }
        endpoint = description.end_session_endpoint
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def close(self) -> None:
        """Ends connections to the issuer. Idempotent."""
        await self._issuer.close()

    async def _check_id_token(self, text: Any, nonce: str) -> None:
        """Raises LoginFailed unless the issuer signed this id token for this login (OpenID Connect Core,
        section 3.1.3.7).
        """
        import jwt  # with the first login only: it takes longer than the first page may

        if not isinstance(text, str):
            raise LoginFailed(
                "the issuer granted no id token: magnetarConsoleOidcScopes has to have 'openid'"
            )
        try:
            claims = jwt.decode(
                text,
                await self._key_of(text),
                algorithms=list(ALGORITHMS),
                audience=self._config.client_id,
                issuer=self._config.issuer,
                leeway=CLOCK_SKEW_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise LoginFailed(
                f"the issuer's id token is not valid: {type(error).__name__}: {error}"
            ) from error
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise LoginFailed("the issuer's id token is for another login (nonce); begin again")
        if claims.get("azp", self._config.client_id) != self._config.client_id:
            raise LoginFailed("the issuer's id token is for another client (azp)")

    async def _key_of(self, text: str) -> Any:
        import jwt

        kid = jwt.get_unverified_header(text).get("kid")
        for again in (False, True):
            keys = jwt.PyJWKSet.from_dict(await self._issuer.keys(again=again)).keys
            found = [key for key in keys if kid is None or key.key_id == kid]
            if len(found) == 1 or (found and kid is not None):
                return found[0].key
        raise jwt.InvalidKeyError(f"the issuer publishes no key with the id {str(kid)[:80]!r}")
