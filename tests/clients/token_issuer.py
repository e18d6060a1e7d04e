"""A small OpenID issuer over TLS, in a thread: discovery document, keys, client credentials, and logins."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import secrets
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jwt
from aiohttp import BasicAuth, web
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from magnetar.testing.free_ports import free_ports

from tests.clients.second_address import START_SECONDS_MAX, loop_in_a_thread

KEY_ID = "first"
LIFETIME_S = 3600


@dataclass
class TokenIssuer:
    """Grants tokens to one client, whose id is their subject."""

    client_id: str
    client_secret: str
    audience: str
    port: int
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    granted: int = 0
    """Tokens that were issued."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    """Parameters of the logins that were confirmed, by code, until they are exchanged."""

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/.well-known/openid-configuration", self._describe)
        application.router.add_get("/keys", self._keys)
        application.router.add_post("/token", self._grant)
        application.router.add_get("/authorize", self._ask)
        application.router.add_post("/authorize", self._confirm)
        return application

    async def _describe(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "token_endpoint": f"{self.url}/token",
                "authorization_endpoint": f"{self.url}/authorize",
                "end_session_endpoint": f"{self.url}/logout",
                "response_types_supported": ["token", "code"],
                "code_challenge_methods_supported": ["S256"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    async def _keys(self, _: web.Request) -> web.Response:
        public: dict[str, Any] = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return web.json_response({"keys": [public | {"kid": KEY_ID, "alg": "RS256", "use": "sig"}]})

    async def _grant(self, request: web.Request) -> web.Response:
        # the C++ library posts JSON in some versions, a form in others
        form = await (request.json() if request.content_type == "application/json" else request.post())
        if form.get("grant_type") == "authorization_code":
            return self._exchange(request, form)
        asked = (form.get("grant_type"), form.get("client_id"), form.get("client_secret"))
        if asked != ("client_credentials", self.client_id, self.client_secret):
            return web.json_response({"error": "invalid_client"}, status=401)
        return web.json_response(self._tokens(self.client_id))

    async def _ask(self, request: web.Request) -> web.Response:
        """A page that asks who it is, as an issuer's does."""
        fields = "".join(
            f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
            for name, value in request.query.items()
        )
        page = (
            f'<!doctype html><title>Issuer</title><form method="post">{fields}'
            '<label>Name <input name="user"></label><button>Sign in</button></form>'
        )
        return web.Response(text=page, content_type="text/html")

    async def _confirm(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        answer = {"state": form["state"], "iss": self.url}
        if form["user"]:
            code = secrets.token_urlsafe(16)
            self.codes[code] = form
            answer["code"] = code
        else:
            answer |= {"error": "access_denied", "error_description": "no name was given"}
        return web.Response(status=303, headers={"Location": f"{form['redirect_uri']}?{urlencode(answer)}"})

    def _exchange(self, request: web.Request, form: Any) -> web.Response:
        login = self.codes.pop(str(form.get("code")), None)  # a code is good for one exchange
        secret = BasicAuth.decode(request.headers["Authorization"]).password
        challenge = hashlib.sha256(str(form.get("code_verifier")).encode()).digest()
        if (
            login is None
            or secret != self.client_secret
            or login["redirect_uri"] != form.get("redirect_uri")
            or login["code_challenge"] != base64.urlsafe_b64encode(challenge).decode().rstrip("=")
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        user = login["user"]
        id_token = self._signed({"sub": user, "aud": login["client_id"], "nonce": login["nonce"]})
        return web.json_response(self._tokens(user) | {"id_token": id_token})

    def _tokens(self, subject: str) -> dict[str, Any]:
        self.granted += 1
        token = self._signed({"sub": subject, "aud": self.audience})
        return {"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME_S}

    def _signed(self, claims: dict[str, Any]) -> str:
        now = int(time.time())
        times = {"iss": self.url, "iat": now, "nbf": now - 1, "exp": now + LIFETIME_S}
        return jwt.encode(times | claims, self.key, "RS256", {"kid": KEY_ID})


@contextlib.contextmanager
def serving(
    client_id: str, client_secret: str, audience: str, certificate: Path, key: Path
) -> Iterator[TokenIssuer]:
    """An issuer on a free port of loopback until the block ends."""
    [port] = free_ports(1)
    issuer = TokenIssuer(client_id, client_secret, audience, port)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    runner = web.AppRunner(issuer.application())

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()

    with loop_in_a_thread("token issuer") as loop:
        asyncio.run_coroutine_threadsafe(start(), loop).result(START_SECONDS_MAX)
        try:
            yield issuer
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(START_SECONDS_MAX)
