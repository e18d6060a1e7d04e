"""When orphans in metadata are looked for and cleared, as configured."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanConfig:
    """What is left in metadata although nothing names it any more."""

    check_interval_s: int = setting(
        3_600,
        "Seconds between two looks through metadata for orphans.",
        key="magnetarOrphanCheckIntervalSeconds",
        minimum=1,
    )
    age_min_s: int = setting(
        1_800,
        "Seconds for which something must have been an orphan, at two looks at least, before it is cleared.",
        key="magnetarOrphanAgeMinSeconds",
        minimum=0,
    )
    clear: bool = setting(
        True,
        "Clear orphans after each look; else only when an operator says so.",
        key="magnetarOrphanClearingEnabled",
    )
