"""Configuration of the check for orphans in metadata."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanConfig:
    """Configures when orphans (unreferenced metadata) are searched and cleared."""

    check_interval_s: int = setting(
        3_600,
        "Seconds between two scans of metadata for orphans.",
        key="magnetarOrphanCheckIntervalSeconds",
        minimum=1,
    )
    age_min_s: int = setting(
        1_800,
        "Seconds for which a key must have been an orphan, in at least two scans, before it is cleared.",
        key="magnetarOrphanAgeMinSeconds",
        minimum=0,
    )
    clear: bool = setting(
        True,
        "Clear orphans after each scan; otherwise only on an operator's request.",
        key="magnetarOrphanClearingEnabled",
    )
