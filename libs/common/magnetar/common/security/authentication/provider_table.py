"""Providers by the class names of Pulsar's configuration, and what keeps a configuration from being used."""

from __future__ import annotations

import time
from typing import Final

from magnetar.common.errors import ConfigError
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.authentication.basic import BasicProvider
from magnetar.common.security.authentication.config import PACKAGE, TLS_PROVIDER, AuthenticationConfig
from magnetar.common.security.authentication.issuer_http import IssuerHttp
from magnetar.common.security.authentication.openid import OpenIdProvider
from magnetar.common.security.authentication.provider import Provider
from magnetar.common.security.authentication.slots import Slots
from magnetar.common.security.authentication.tls import TlsProvider
from magnetar.common.security.authentication.token import TokenProvider

TOKEN_PROVIDER: Final = f"{PACKAGE}AuthenticationProviderToken"
BASIC_PROVIDER: Final = f"{PACKAGE}AuthenticationProviderBasic"
OPENID_PROVIDER: Final = f"{PACKAGE}oidc.AuthenticationProviderOpenID"

PROVIDERS: Final = (TLS_PROVIDER, TOKEN_PROVIDER, BASIC_PROVIDER, OPENID_PROVIDER)
"""The class names that can be configured."""


def authentication_problems(config: AuthenticationConfig) -> list[str]:
    """Return everything that keeps these settings from being used; empty when authentication is off."""
    return _build(config)[1] if config.enabled else []


def open_authenticator(config: AuthenticationConfig) -> Authenticator | None:
    """Return the authenticator, whose files are read; None when authentication is off. The caller closes it.

    Raises ConfigError with every problem.
    """
    if not config.enabled:
        return None
    providers, problems = _build(config)
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise ConfigError(f"authentication cannot be used:\n{listed}")
    return Authenticator(providers, anonymous_role=config.anonymous_role.strip(), monotonic=time.monotonic)


def _build(config: AuthenticationConfig) -> tuple[list[Provider], list[str]]:
    """The providers that can be used, and the problems of the others."""
    names = list(dict.fromkeys(config.providers))
    if not names:
        return [], ["authenticationEnabled=true without authenticationProviders; list at least one provider"]
    providers: list[Provider] = []
    problems: list[str] = []
    slots = Slots()
    for name in names:
        try:
            providers.append(_provider(name, config, slots))
        except ValueError as error:
            problems.append(str(error))
        except ModuleNotFoundError as error:
            problems.append(f"{name} needs the package {error.name}; install magnetar-common[security]")
    return providers, problems


def _provider(name: str, config: AuthenticationConfig, slots: Slots) -> Provider:
    if name == TLS_PROVIDER:
        import cryptography  # noqa: F401  # so that a missing package stops the start

        return TlsProvider(max_age_s=config.tls_connection_max_age_s)
    if name == TOKEN_PROVIDER:
        import jwt

        return TokenProvider(config.token, time.time)
    if name == BASIC_PROVIDER:
        import bcrypt  # noqa: F401

        return BasicProvider(config.basic_conf, slots, time.monotonic)
    if name == OPENID_PROVIDER:
        import jwt  # noqa: F401

        http = IssuerHttp(config.openid)
        return OpenIdProvider(config.openid, http, slots, time.time, time.monotonic)
    raise ValueError(f"authenticationProviders: {name} is not supported; use {', '.join(PROVIDERS)}")
