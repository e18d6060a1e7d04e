"""Configurations that cannot be used stop the start, each problem named."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.common.errors import ConfigError
from magnetar.common.security.authentication.config import TLS_PROVIDER, AuthenticationConfig, TokenConfig
from magnetar.common.security.authentication.provider_table import (
    BASIC_PROVIDER,
    OPENID_PROVIDER,
    TOKEN_PROVIDER,
    authentication_problems,
    open_authenticator,
)

from tests.unit.common.security.authentication.signing import SECRET, file_of


def test_with_authentication_off_nothing_is_looked_at() -> None:
    config = AuthenticationConfig(providers=("nonsense",), basic_conf="nonsense")
    assert authentication_problems(config) == []
    assert open_authenticator(config) is None


def test_an_empty_list_of_providers_stops_the_start() -> None:
    (problem,) = authentication_problems(AuthenticationConfig(enabled=True))
    assert "authenticationProviders" in problem


@pytest.mark.parametrize("name", ["AuthenticationProviderSasl", "AuthenticationProviderAthenz"])
def test_providers_that_there_are_not_are_named(name: str) -> None:
    full = f"org.apache.pulsar.broker.authentication.{name}"
    (problem,) = authentication_problems(AuthenticationConfig(enabled=True, providers=(full,)))
    assert full in problem


def test_all_problems_are_reported_together_and_the_start_fails() -> None:
    config = AuthenticationConfig(
        enabled=True, providers=(TLS_PROVIDER, TOKEN_PROVIDER, BASIC_PROVIDER, OPENID_PROVIDER)
    )
    problems = authentication_problems(config)
    assert [problem.split()[0] for problem in problems] == [
        "tokenSecretKey,",
        "basicAuthConf",
        "openIDAllowedTokenIssuers",
    ]
    with pytest.raises(ConfigError, match="basicAuthConf is empty"):
        open_authenticator(config)


def test_providers_are_made_in_their_order(tmp_path: Path) -> None:
    config = AuthenticationConfig(
        enabled=True,
        providers=(TLS_PROVIDER, TOKEN_PROVIDER),
        anonymous_role="anyone",
        token=TokenConfig(secret_key=file_of(tmp_path, "secret", SECRET)),
    )
    found = open_authenticator(config)
    assert found is not None
    assert found.has_method("tls")
    assert found.has_method("token")
    assert not found.has_method("basic")
    assert found.anonymous is not None
    assert found.anonymous.role == "anyone"
