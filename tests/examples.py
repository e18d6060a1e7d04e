"""How many examples a Hypothesis test tries in the tier that runs."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

_DEFAULT_TIER_SHARE: Final = 3
_EXAMPLES_MIN: Final = 20


def examples(full_tier: int) -> int:
    """Returns `full_tier`, or a third of it, at least 20, in the default tier."""
    if settings.get_current_profile_name() == "default-tier":
        return min(full_tier, max(_EXAMPLES_MIN, full_tier // _DEFAULT_TIER_SHARE))
    return full_tier
