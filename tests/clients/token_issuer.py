"""A small OpenID issuer over TLS, in a thread: discovery document, keys, and client credentials."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from aiohttp import web
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

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/.well-known/openid-configuration", self._describe)
        application.router.add_get("/keys", self._keys)
        application.router.add_post("/token", self._grant)
        return application

    async def _describe(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "token_endpoint": f"{self.url}/token",
                "authorization_endpoint": f"{self.url}/authorize",
                "response_types_supported": ["token"],
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
        asked = (form.get("grant_type"), form.get("client_id"), form.get("client_secret"))
        if asked != ("client_credentials", self.client_id, self.client_secret):
            return web.json_response({"error": "invalid_client"}, status=401)
        self.granted += 1
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": self.client_id,
            "aud": self.audience,
            "iat": now,
            "nbf": now - 1,
            "exp": now + LIFETIME_S,
        }
        token = jwt.encode(claims, self.key, "RS256", {"kid": KEY_ID})
        return web.json_response({"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME_S})


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
