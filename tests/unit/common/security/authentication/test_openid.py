"""Tokens of OpenID issuers: keys are fetched once, and kept while the issuer is away."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from magnetar.common.security.authentication.config import OpenIdConfig
from magnetar.common.security.authentication.openid import RETRY_S, OpenIdProvider, openid_problems
from magnetar.common.security.authentication.provider import Refusal
from magnetar.common.security.authentication.slots import Slots
from magnetar.common.security.identity import Identity

from tests.unit.common.security.authentication.signing import (
    NOW,
    Time,
    by_hand,
    ec_key,
    jwk,
    key_set,
    rsa_key,
    run,
    signed,
    token,
)

ISSUER = "https://issuer.example/realm"
CONFIG = OpenIdConfig(issuers=(ISSUER,), audiences=("here", "there"))
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "sub": "alice",
    "aud": ["here"],
    "iat": NOW,
    "nbf": NOW,
    "exp": NOW + 600,
}


class Issuer:
    """An issuer that counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.issuer, self.jwks_uri = ISSUER, "https://keys.example/jwks"
        self.keys = key_set(jwk(rsa_key(), "r"))
        self.is_away = False

    async def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        await asyncio.sleep(0)
        if self.is_away:
            raise OSError("away")
        if url == f"{ISSUER}/.well-known/openid-configuration":
            return json.dumps({"issuer": self.issuer, "jwks_uri": self.jwks_uri}).encode()
        assert url == self.jwks_uri
        return self.keys

    async def close(self) -> None:
        """Nothing is held."""


class World:
    def __init__(self, config: OpenIdConfig = CONFIG) -> None:
        self.issuer, self.monotonic = Issuer(), Time(0)
        self.provider = OpenIdProvider(config, self.issuer, Slots(), Time(), self.monotonic)

    async def ask(self, data: bytes) -> Identity:
        return await self.provider.authenticate(token(data), "h")

    async def refused(self, data: bytes) -> str:
        with pytest.raises(Refusal) as caught:
            await self.ask(data)
        return caught.value.reason


def rs256(kid: str | None = "r", **claims: Any) -> bytes:
    headers = {} if kid is None else {"kid": kid}
    wanted = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return signed(wanted, rsa_key(), "RS256", **headers)


def test_keys_are_fetched_once_for_all_that_ask_at_once() -> None:
    async def main() -> None:
        world = World()
        found = await asyncio.gather(*(world.ask(rs256()) for _ in range(20)))
        assert {(each.role, each.expires_at) for each in found} == {("alice", NOW + 600)}
        assert len(world.issuer.asked) == 2
        await world.provider.close()

    run(main())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (rs256(iss="https://other.example"), "issuer"),
        (rs256(iss=None), "issuer"),
        (rs256(aud="elsewhere"), "audience"),
        (rs256(aud=None), "audience"),
        (rs256(exp=NOW - 1), "expired"),
        (rs256(nbf=NOW + 1), "not_yet_valid"),
        (rs256(exp=None), "malformed"),
        (rs256(iat=None), "malformed"),
        (rs256(nbf=None), "malformed"),
        (rs256(sub=None), "malformed"),
        (rs256(kid=None), "key"),
        (signed(CLAIMS, rsa_key(), "PS256", kid="r"), "signature"),
        (signed(CLAIMS, bytes(64), "HS256", kid="r"), "signature"),
        (by_hand({"alg": "none", "kid": "r"}, CLAIMS), "signature"),
        (by_hand({"alg": "RS256", "kid": "r"}, CLAIMS, b"x" * 256), "signature"),
        (signed(CLAIMS, ec_key(), "ES256", kid="r"), "signature"),
    ],
)
def test_what_does_not_fit_is_refused(data: bytes, reason: str) -> None:
    async def main() -> None:
        assert await World().refused(data) == reason

    run(main())


def test_no_issuer_is_asked_because_of_a_foreign_token() -> None:
    async def main() -> None:
        world = World()
        await world.refused(rs256(iss="https://evil.example"))
        assert world.issuer.asked == []

    run(main())


def test_an_algorithm_that_a_key_names_is_the_only_one() -> None:
    async def main() -> None:
        world = World()
        world.issuer.keys = key_set(jwk(rsa_key(), "r", alg="RS512"))
        assert await world.refused(rs256()) == "signature"

    run(main())


def test_an_unknown_key_id_asks_again_but_not_often() -> None:
    async def main() -> None:
        world = World()
        await world.ask(rs256())
        assert await world.refused(rs256("new")) == "key"
        assert len(world.issuer.asked) == 2
        world.issuer.keys = key_set(jwk(rsa_key(), "new"))
        world.monotonic.now = CONFIG.key_miss_refresh_s
        assert (await world.ask(rs256("new"))).role == "alice"
        assert await world.refused(rs256("newer")) == "key"
        assert len(world.issuer.asked) == 4

    run(main())


def test_keys_are_renewed_in_the_background_and_old_ones_are_kept_while_the_issuer_is_away() -> None:
    async def main() -> None:
        world = World()
        await world.ask(rs256())
        world.issuer.is_away = True
        world.monotonic.now = CONFIG.refresh_s
        await world.ask(rs256())
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(world.issuer.asked) == 3
        world.monotonic.now = CONFIG.expiration_s
        await world.ask(rs256())
        await world.ask(rs256())
        assert len(world.issuer.asked) == 4, "a failure is not repeated at once"
        world.issuer.is_away = False
        world.monotonic.now += RETRY_S
        await world.ask(rs256())
        assert len(world.issuer.asked) == 6

    run(main())


@pytest.mark.parametrize(
    "broken", [{"issuer": "https://other"}, {"jwks_uri": "http://keys.example/jwks"}, {"jwks_uri": ""}]
)
def test_a_discovery_document_of_another_issuer_or_without_https_is_not_used(broken: dict[str, str]) -> None:
    async def main() -> None:
        world = World()
        for name, value in broken.items():
            setattr(world.issuer, name, value)
        assert await world.refused(rs256()) == "key"
        assert len(world.issuer.asked) == 1

    run(main())


def test_settings_that_cannot_be_used_are_named() -> None:
    assert openid_problems(CONFIG) == []
    plain = replace(CONFIG, issuers=("http://issuer",))
    assert "is not an https URL" in openid_problems(plain)[0]
    assert openid_problems(replace(plain, require_https=False)) == []
    wrong = OpenIdConfig(fallback_discovery_mode="KUBERNETES_DISCOVER_TRUSTED_ISSUER")
    said = openid_problems(wrong)
    assert [each.split()[0] for each in said] == [
        "openIDAllowedTokenIssuers",
        "openIDAllowedAudiences",
        "openIDFallbackDiscoveryMode",
    ]
    with pytest.raises(ValueError, match="openIDAllowedTokenIssuers"):
        World(wrong)
