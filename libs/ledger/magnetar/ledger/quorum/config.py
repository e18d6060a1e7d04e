"""Settings of the quorum client, with which brokers and auto-recovery workers write ledgers."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """Settings for writing ledgers to bookies. Sizes are bytes, times seconds unless named otherwise."""

    ledger_pending_bytes_max: int = setting(
        64 << 20,
        "Bytes of one ledger that may wait for answers of bookies; beyond it publishers are held back.",
        key="magnetarLedgerPendingBytesMax",
        minimum=1 << 10,
    )
    pending_bytes_max: int = setting(
        256 << 20,
        "Bytes of all ledgers of the process that may wait for answers of bookies.",
        key="magnetarQuorumPendingBytesMax",
        minimum=1 << 10,
    )
    add_entry_timeout_s: float = setting(
        5.0,
        "A bookie that leaves an entry unanswered for so many seconds is replaced in the ledger.",
        key="magnetarAddEntryTimeoutSeconds",
        minimum=0.01,
    )
    no_quorum_timeout_s: float = setting(
        10.0,
        "A ledger that confirmed nothing for so many seconds, because too few of its bookies answer and "
        "no replacement is available, is given up: the topic continues in a new one.",
        key="magnetarNoQuorumTimeoutSeconds",
        minimum=0.01,
    )
    replace_retry_s: float = setting(
        2.0,
        "How often a ledger that lacks a bookie looks for another one, in seconds.",
        key="magnetarEnsembleChangeRetrySeconds",
        minimum=0.01,
    )
    close_wait_s: float = setting(
        1.0,
        "How long closing a confirmed ledger waits for its slowest bookies, in seconds. What they lack then "
        "is recorded and copied by auto-recovery.",
        key="magnetarLedgerCloseWaitSeconds",
        minimum=0,
    )
    explicit_lac_interval_ms: int = setting(
        1_000,
        "An idle ledger tells its bookies its last add confirmed after so many milliseconds; 0: only the "
        "next append does.",
        key="bookkeeperExplicitLacIntervalInMills",
        minimum=0,
    )
    rack_aware: bool = setting(
        True,
        "Spread the bookies of an entry over racks.",
        key="bookkeeperClientRackawarePolicyEnabled",
    )
    racks_min: int = setting(
        2,
        "How many racks the bookies of an entry should be in.",
        key="bookkeeperClientMinNumRacksPerWriteQuorum",
        minimum=1,
    )
    enforce_racks_min: bool = setting(
        False,
        "Refuse to create a ledger rather than have its entries in fewer racks.",
        key="bookkeeperClientEnforceMinNumRacksPerWriteQuorum",
    )
    quarantine_errors: int = setting(
        5,
        "A bookie that fails so often within one interval gets no new fragments for a while.",
        key="bookkeeperClientHealthCheckErrorThresholdPerInterval",
        minimum=1,
    )
    quarantine_interval_s: float = setting(
        60.0,
        "The interval in which a bookie's failures are counted, in seconds.",
        key="bookkeeperClientHealthCheckIntervalSeconds",
        minimum=0.01,
    )
    quarantine_s: float = setting(
        1_800.0,
        "How long a bookie that failed too often, or was too slow, gets no new fragments, in seconds.",
        key="bookkeeperClientHealthCheckQuarantineTimeInSeconds",
        minimum=0.01,
    )
