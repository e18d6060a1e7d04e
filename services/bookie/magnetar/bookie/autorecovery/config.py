"""Settings of auto-recovery; BookKeeper's names where the meaning is the same."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRecoveryConfig:
    """Auto-recovery."""

    enabled: bool = setting(
        True,
        "Whether this bookie takes part in auto-recovery: stands for auditor, copies under-replicated "
        "ledgers, resolves its doubts and scrubs its own data.",
        key="autoRecoveryDaemonEnabled",
    )
    lost_bookie_recovery_delay_s: int = setting(
        300,
        "How long a bookie is away, in seconds, before its ledgers count as under-replicated. A restart is "
        "not a loss: long enough for one.",
        key="lostBookieRecoveryDelay",
        minimum=0,
    )
    audit_interval_s: int = setting(
        86_400,
        "How often, in seconds, the auditor compares all ledgers with the bookies there are, whether or not "
        "one was lost; 0: only when one was.",
        key="auditorPeriodicBookieCheckInterval",
        minimum=0,
    )
    open_ledger_grace_ms: int = setting(
        30_000,
        "How long, in ms, the last fragment of an open ledger on a lost bookie is left to its writer. If "
        "nothing was written in that time and others could take the bookie's place, the ledger is recovered.",
        key="openLedgerRereplicationGracePeriod",
        minimum=0,
    )
    retry_after_ms: int = setting(
        5_000,
        "How long, in ms, an under-replicated ledger rests after a failed attempt; doubling with each, up to "
        "ten minutes. A change among the bookies ends the rest.",
        key="rwRereplicateBackoffMs",
        minimum=1,
    )
    copy_bytes_per_s: int = setting(
        32 << 20,
        "Most bytes a second that this bookie copies to mend ledgers; 0 or less: no limit.",
        key="replicationRateByBytes",
    )
    copied_ledgers_max: int = setting(
        4,
        "Under-replicated ledgers that this bookie works on at the same time.",
        key="magnetarAutoRecoveryConcurrentLedgers",
        minimum=1,
        maximum=64,
    )
    scrub_interval_s: int = setting(
        604_800,
        "How often, in seconds, a bookie reads all its entries back, checks them and mends what is damaged "
        "or missing; 0: never.",
        key="localScrubInterval",
        minimum=0,
    )
    scrub_bytes_per_s: int = setting(
        16 << 20,
        "Most bytes a second that the scrub reads; 0 or less: no limit.",
        key="magnetarScrubRateByBytes",
    )
    session_timeout_ms: int = setting(
        10_000,
        "How long, in ms, the auditor's office and the locks on ledgers outlive a bookie that is not heard "
        "of any more.",
        key="magnetarAutoRecoverySessionTimeoutMs",
        minimum=1_000,
    )
