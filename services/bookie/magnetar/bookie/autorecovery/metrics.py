"""Metrics of auto-recovery. Names are BookKeeper's where it has the same figure."""

from __future__ import annotations

from magnetar.common.obs.metrics import REGISTRY, begin_at_zero
from prometheus_client import Counter, Gauge

IS_AUDITOR = Gauge(
    "magnetar_autorecovery_auditor",
    "1 on the bookie that leads auto-recovery.",
    registry=REGISTRY,
)
UNDER_REPLICATED = Gauge(
    "auditor_NUM_UNDER_REPLICATED_LEDGERS",
    "Ledgers marked as under-replicated now; on every bookie that takes part.",
    registry=REGISTRY,
)
LOST_BOOKIES = Gauge(
    "magnetar_autorecovery_lost_bookies",
    "Bookies away for longer than lostBookieRecoveryDelay; on the auditor.",
    registry=REGISTRY,
)
AUDITS = Counter(
    "magnetar_autorecovery_audits",
    "Passes over the metadata of all ledgers, by outcome.",
    ["outcome"],
    registry=REGISTRY,
)
begin_at_zero(AUDITS, "done", "failed")
MARKED = Counter(
    "magnetar_autorecovery_ledgers_marked",
    "Ledgers that this bookie marked as under-replicated.",
    registry=REGISTRY,
)
LEDGERS = Counter(
    "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED",
    "Attempts at under-replicated ledgers by this bookie, by outcome.",
    ["outcome"],
    registry=REGISTRY,
)
begin_at_zero(LEDGERS, "done", "waiting", "locked", "failed")
ENTRIES_COPIED = Counter(
    "replication_worker_NUM_ENTRIES_READ",
    "Entries that this bookie copied to mend ledgers.",
    registry=REGISTRY,
)
BYTES_COPIED = Counter(
    "replication_worker_NUM_BYTES_READ",
    "Bytes of the entries that this bookie copied to mend ledgers.",
    registry=REGISTRY,
)
COPYING = Gauge(
    "magnetar_autorecovery_ledgers_in_progress",
    "Under-replicated ledgers that this bookie works on now.",
    registry=REGISTRY,
)
IN_DOUBT = Gauge(
    "magnetar_autorecovery_ledgers_in_doubt",
    "Ledgers about which this bookie still says 'unknown' for what it lacks.",
    registry=REGISTRY,
)
SCRUBBED_BYTES = Counter(
    "magnetar_scrub_bytes",
    "Bytes of entries that the scrub read back.",
    registry=REGISTRY,
)
SCRUB_FINDINGS = Counter(
    "magnetar_scrub_findings",
    "Ranges of entries that the scrub found damaged or missing on this bookie, by what was found.",
    ["finding"],
    registry=REGISTRY,
)
begin_at_zero(SCRUB_FINDINGS, "damaged", "missing", "unknown")
SCRUB_REPAIRED = Counter(
    "magnetar_scrub_repaired_entries",
    "Entries that were damaged or missing on this bookie and came back from peers.",
    registry=REGISTRY,
)
SCRUBS = Counter(
    "magnetar_scrub_passes",
    "Passes of the scrub over all of this bookie's ledgers that came to their end.",
    registry=REGISTRY,
)
