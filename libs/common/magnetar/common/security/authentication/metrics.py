"""Figures about authentication, with Pulsar's names."""

from __future__ import annotations

from typing import Final

from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter, Histogram

SUCCESSES: Final = Counter(
    "pulsar_authentication_success",
    "Accepted credentials, by provider and method.",
    ["provider_name", "auth_method"],
    registry=REGISTRY,
)

FAILURES: Final = Counter(
    "pulsar_authentication_failures",
    "Refused credentials, by provider, method and reason.",
    ["provider_name", "auth_method", "reason"],
    registry=REGISTRY,
)

EXPIRED_TOKENS: Final = Counter(
    "pulsar_expired_token", "Tokens refused because they had expired.", registry=REGISTRY
)

EXPIRING_TOKENS: Final = Histogram(
    "pulsar_expiring_token_minutes",
    "Minutes that accepted tokens were still valid.",
    buckets=(5.0, 10.0, 60.0, 240.0),
    registry=REGISTRY,
)

RELOADS: Final = Counter(
    "magnetar_authentication_reloads",
    "Keys, password files and revocation lists that were read again, by setting and result (ok, failed).",
    ["setting", "result"],
    registry=REGISTRY,
)
