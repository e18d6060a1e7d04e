"""Settings of managed ledgers: ledger rollover, cursor flushes and the entry cache."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerConfig:
    """Settings of managed ledgers. Keys and defaults are Pulsar's unless documented otherwise."""

    ensemble_size: int = setting(
        1,
        "Bookies over which a ledger's entries are spread.",
        key="managedLedgerDefaultEnsembleSize",
        minimum=1,
    )
    write_quorum: int = setting(
        1, "Bookies that get each entry.", key="managedLedgerDefaultWriteQuorum", minimum=1
    )
    ack_quorum: int = setting(
        1,
        "Bookies that must have an entry before it is confirmed.",
        key="managedLedgerDefaultAckQuorum",
        minimum=1,
    )
    ledger_entries_max: int = setting(
        50_000,
        "Entries after which a ledger is closed and the next one is used, once it has the minimum age.",
        key="managedLedgerMaxEntriesPerLedger",
        minimum=1,
    )
    ledger_megabytes_max: int = setting(
        2048,
        "Megabytes after which a ledger is closed and the next one is used, once it has the minimum age.",
        key="managedLedgerMaxSizePerLedgerMbytes",
        minimum=1,
    )
    ledger_age_min_minutes: int = setting(
        10,
        "Minutes that a ledger is used at least, however full it is.",
        key="managedLedgerMinLedgerRolloverTimeMinutes",
        minimum=0,
    )
    ledger_age_max_minutes: int = setting(
        240,
        "Minutes after which a ledger with entries is closed, however empty it is.",
        key="managedLedgerMaxLedgerRolloverTimeMinutes",
        minimum=1,
    )
    cursor_flush_interval_s: float = setting(
        1.0,
        "Seconds until acknowledgements without a confirmation request are on disk (Pulsar: 60; flushing "
        "costs little here, and what was acknowledged should not come back).",
        key="managedLedgerCursorPositionFlushSeconds",
        minimum=0.001,
    )
    cursor_ledger_entries_max: int = setting(
        50_000,
        "Entries after which a cursor ledger is replaced by a new one that begins with a snapshot.",
        key="managedLedgerCursorMaxEntriesPerLedger",
        minimum=2,
    )
    cursor_ledger_bytes_min: int = setting(
        1024 * 1024,
        "Bytes below which a cursor ledger is not replaced, however small a snapshot would be.",
        key="magnetarCursorLedgerBytesMin",
        minimum=1,
    )
    cursor_ledger_growth: int = setting(
        4,
        "A cursor ledger is replaced when it is that many times as large as its snapshot.",
        key="magnetarCursorLedgerGrowth",
        minimum=2,
    )
    cache_megabytes: int = setting(
        64,
        "Megabytes of recent entries kept in memory for consumers at the tail, over all topics "
        "(Pulsar: a fifth of its direct memory; here most reads behind the tail come from the page cache).",
        key="managedLedgerCacheSizeMB",
        minimum=0,
    )
    queued_bytes_max: int = setting(
        32 * 1024 * 1024,
        "Bytes that may wait for a topic's next ledger to be made; more are refused.",
        key="magnetarManagedLedgerQueuedBytesMax",
        minimum=1,
    )
