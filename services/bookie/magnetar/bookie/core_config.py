"""Settings of a bookie's core: entry size, read-only thresholds, retention of unreferenced data."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieCoreConfig:
    """Limits of the bookie, and when it stops accepting writes. Sizes are bytes."""

    entry_bytes_max: int = setting(
        5 * 1024 * 1024 + 64 * 1024,
        "The largest entry that is taken, in bytes: the brokers' maxMessageSize and some room.",
        key="magnetarBookieEntryBytesMax",
        minimum=1024,
    )
    disk_usage_threshold: float = setting(
        0.95,
        "The bookie becomes read-only when more than this share of its disk is used.",
        key="diskUsageThreshold",
        minimum=0.01,
        maximum=1,
    )
    disk_usage_low_water_mark: float = setting(
        0.90,
        "A bookie that is read-only because of its disk becomes writable again by itself when less than this "
        "share is used.",
        key="diskUsageLwmThreshold",
        minimum=0.01,
        maximum=1,
    )
    disk_check_interval_ms: int = setting(
        10_000,
        "How often the disk's use is looked at, in milliseconds.",
        key="diskCheckInterval",
        minimum=1,
    )
    moved_grace_s: float = setting(
        3600.0,
        "A closed ledger's bytes stay for this many seconds after metadata was first seen with all of the "
        "ledger on other bookies.",
        key="magnetarBookieMovedGraceSeconds",
        minimum=0,
    )
    accept_empty_directory: bool = setting(
        False,
        "Start with an empty data directory although this bookie had data: it is lost for good; for one "
        "start. What it held is copied back from other bookies.",
        key="magnetarBookieAcceptEmptyDirectory",
    )
    mark_interval_ms: int = setting(
        1000,
        "How often, at most, the bookie tells metadata how far its log is durable while it grows, in "
        "milliseconds: an image of the disk that is older than that is noticed at the next start.",
        key="magnetarBookieMarkIntervalMs",
        minimum=1,
    )
    lac_waiters_max: int = setting(
        10_000,
        "How many requests may wait for a ledger's last add confirmed to advance; more are answered at once.",
        key="magnetarBookieLacWaitersMax",
        minimum=0,
    )
