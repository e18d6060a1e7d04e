"""Claims of a verified token: times, audience and role.

They are checked here, so that no library's defaults decide.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from magnetar.common.security.authentication.metrics import EXPIRED_TOKENS, EXPIRING_TOKENS
from magnetar.common.security.authentication.provider import Refusal

Claims = Mapping[str, Any]


def check_times(claims: Claims, now: float, skew_s: float) -> float | None:
    """Return the time of expiry, seconds since 1970 UTC, None without one. Raises Refusal.

    `iat` is not checked: clocks differ, and it grants nothing.
    """
    not_before = _time(claims, "nbf")
    if not_before is not None and now < not_before - skew_s:
        raise Refusal("not_yet_valid", f"the token is valid in {not_before - now:.0f} s")
    expires_at = _time(claims, "exp")
    if expires_at is None:
        return None
    if now >= expires_at + skew_s:
        EXPIRED_TOKENS.inc()
        raise Refusal("expired", f"the token expired {now - expires_at:.0f} s ago")
    EXPIRING_TOKENS.observe(max(0.0, expires_at - now) / 60)
    return expires_at


def check_audience(claims: Claims, claim: str, accepted: Collection[str]) -> None:
    """Raises Refusal unless the claim is one of the accepted audiences or a list that has one."""
    value = claims.get(claim)
    found = value if isinstance(value, list) else [value]
    if not any(isinstance(each, str) and each in accepted for each in found):
        raise Refusal("audience", f"the claim {claim} does not name this audience")


def role_of(claims: Claims, claim: str) -> str:
    """Return the role: the text of the claim, or the first text of a list. Raises Refusal for none."""
    value = claims.get(claim)
    if isinstance(value, list):
        value = next((each for each in value if isinstance(each, str)), None)
    if not isinstance(value, str) or not value.strip():
        raise Refusal("no_role", f"the claim {claim} holds no role")
    return value


def _time(claims: Claims, claim: str) -> float | None:
    value = claims.get(claim)
    if value is None and claim not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refusal("malformed", f"the claim {claim} is not a time")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise Refusal("malformed", f"the claim {claim} is not a time")
    return seconds
