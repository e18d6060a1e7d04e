"""Headers of HTTP requests that say who calls, with Pulsar's names."""

from __future__ import annotations

from typing import Final

AUTH_METHOD: Final = "X-Pulsar-Auth-Method-Name"
"""The authentication method of the credentials; without it every provider is tried."""

ORIGINAL_PRINCIPAL: Final = "X-Original-Principal"
"""The role on whose behalf a proxy calls. From outside, proxies remove it."""
