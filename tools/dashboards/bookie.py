"""Bookies: what they take and give, their disks, and what mends what they have lost."""

from __future__ import annotations

from typing import Final

from tools.dashboards.model import Dashboard, Limit, Panel, Query, Row
from tools.dashboards.shared import (
    CLUSTER,
    OF_CLUSTER,
    RATE,
    instances,
    of_processes,
    processes,
    quantile,
    summed_rate,
)

_BOOKIES: Final = instances("bookie")
_LEGEND: Final = "{{instance}}"


def _each(metric: str) -> tuple[Query, ...]:
    return (Query(f"{metric}{{{_BOOKIES}}}", _LEGEND),)


def _rate(metric: str) -> tuple[Query, ...]:
    return (Query(f"rate({metric}{{{_BOOKIES}}}[{RATE}])", _LEGEND),)


def _latency(metric: str) -> tuple[Query, ...]:
    """Quantiles of all chosen bookies together, by the histogram: quantiles of BookKeeper's summaries do not
    add up.
    """
    shares = ((0.5, "median"), (0.99, "99 %"), (0.999, "99.9 %"))
    return tuple(Query(quantile(share, metric, _BOOKIES), text) for share, text in shares)


def _stat(title: str, queries: tuple[Query, ...], help_text: str, limits: tuple[Limit, ...] = ()) -> Panel:
    return Panel(
        title=title,
        unit="none",
        kind="stat",
        queries=queries,
        help=help_text,
        limits=limits,
        width=4,
        height=4,
    )


_STATE: Final = Row(
    "State",
    (
        _stat(
            "Writable",
            (Query(f"sum(bookie_SERVER_STATUS{{{_BOOKIES}}})", "bookies"),),
            "Bookies that take appends; the others are read-only: full, failed or being decommissioned.",
        ),
        _stat(
            "Registered",
            (Query(f"sum(magnetar_bookie_registered{{{_BOOKIES}}})", "bookies"),),
            "Bookies that metadata lists as up; new ledgers are placed on these.",
        ),
        _stat(
            "Lost",
            (Query(f"max(magnetar_autorecovery_lost_bookies{{{CLUSTER}}})", "bookies"),),
            "Bookies that were away for longer than lostBookieRecoveryDelay, as the auditor sees it.",
            (Limit(1, "red"),),
        ),
        _stat(
            "Short of copies",
            (Query(f"max(auditor_NUM_UNDER_REPLICATED_LEDGERS{{{CLUSTER}}})", "ledgers"),),
            "Ledgers of the cluster that are marked as under-replicated now.",
            (Limit(1, "orange"),),
        ),
        _stat(
            "In doubt",
            (Query(f"sum(magnetar_autorecovery_ledgers_in_doubt{{{_BOOKIES}}})", "ledgers"),),
            "Ledgers of which a bookie may have lost entries, so that it says 'unknown' of what it lacks.",
            (Limit(1, "orange"),),
        ),
        _stat(
            "Damage found",
            (
                Query(
                    f"sum(magnetar_log_damaged_records_total{{{_BOOKIES}}}) "
                    f"+ sum(magnetar_log_unreadable_reads_total{{{_BOOKIES}}}) "
                    f"+ (sum(magnetar_scrub_findings_total{{{_BOOKIES}}}) or vector(0))",
                    "finds",
                ),
            ),
            "Damaged or missing records that bookies have found since their start; auto-recovery mends them.",
            (Limit(1, "red"),),
        ),
    ),
)

_ENTRIES: Final = Row(
    "Entries",
    (
        Panel(
            title="Entries added",
            help="Entries a second that were appended, the copies that bookies make for each other included.",
            unit="wps",
            queries=(
                Query(
                    f'rate(bookkeeper_server_ADD_ENTRY_REQUEST_count{{{_BOOKIES}, success="true"}}[{RATE}])',
                    _LEGEND,
                ),
            ),
        ),
        Panel(
            title="Written",
            help="Bytes a second of appends, as they came.",
            unit="binBps",
            queries=_rate("bookie_WRITE_BYTES"),
        ),
        Panel(
            title="Entries refused",
            help="Entries a second that got another answer than OK: fenced ledgers, read-only, too large.",
            unit="wps",
            queries=(
                Query(
                    f'rate(bookkeeper_server_ADD_ENTRY_REQUEST_count{{{_BOOKIES}, success="false"}}[{RATE}])',
                    _LEGEND,
                ),
            ),
        ),
        Panel(
            title="Time of an append",
            help="From the arrival of an entry to its confirmation, of all chosen bookies.",
            unit="s",
            queries=_latency("magnetar_bookie_append_latency_seconds"),
            log=True,
        ),
        Panel(
            title="Reads",
            help="Reads a second by brokers, other bookies and jobs.",
            unit="rps",
            queries=(
                Query(
                    summed_rate("bookkeeper_server_READ_ENTRY_REQUEST_count", _BOOKIES, "instance"),
                    _LEGEND,
                ),
            ),
        ),
        Panel(
            title="Read",
            help="Bytes a second of entries that were read.",
            unit="binBps",
            queries=_rate("bookie_READ_BYTES"),
        ),
        Panel(
            title="Time of a read",
            help="From the arrival of a read to its answer, of all chosen bookies.",
            unit="s",
            queries=_latency("magnetar_bookie_read_latency_seconds"),
            log=True,
        ),
        Panel(
            title="Append streams",
            help="Clients with an append stream: brokers, and bookies that copy.",
            unit="short",
            queries=_each("magnetar_bookie_append_streams"),
        ),
        Panel(
            title="Ledgers",
            help="Ledgers with something on the bookie.",
            unit="short",
            queries=_each("bookie_ledgers_count"),
        ),
    ),
)

_DISK: Final = Row(
    "Log and disk",
    (
        Panel(
            title="Sync",
            help="Time for a group of the log to be written and made durable, of all chosen bookies.",
            unit="s",
            queries=(
                Query(quantile(0.5, "magnetar_log_sync_seconds", _BOOKIES), "median"),
                Query(quantile(0.99, "magnetar_log_sync_seconds", _BOOKIES), "99 %"),
            ),
            log=True,
        ),
        Panel(
            title="Groups",
            help="Groups a second that were written and synced; the more entries in each, the busier it is.",
            unit="iops",
            queries=_rate("magnetar_log_sync_seconds_count"),
        ),
        Panel(
            title="Entries of a group",
            help="How many entries share a sync: entries added, by groups written.",
            unit="short",
            queries=(
                Query(
                    f"sum by (instance) (rate(bookie_journal_JOURNAL_ADD_ENTRY_count{{{_BOOKIES}}}[{RATE}])) "
                    f"/ sum by (instance) (rate(magnetar_log_sync_seconds_count{{{_BOOKIES}}}[{RATE}]) > 0)",
                    _LEGEND,
                ),
            ),
        ),
        Panel(
            title="Disk",
            help="Share of the data directory's disk that is used; above diskUsageThreshold it is read-only.",
            unit="percentunit",
            queries=_each("magnetar_bookie_disk_used_ratio"),
            limits=(Limit(0.85, "orange"), Limit(0.95, "red")),
            max=1,
        ),
        Panel(
            title="Bytes in sealed segments",
            help="Bytes of ledgers that exist, and of deleted ones that wait for garbage collection.",
            unit="bytes",
            queries=(
                Query(f"sum(magnetar_log_live_bytes{{{_BOOKIES}}})", "live"),
                Query(f"sum(magnetar_log_dead_bytes{{{_BOOKIES}}})", "dead"),
                Query(f'sum(magnetar_orphan_bytes{{{_BOOKIES}, where="log"}})', "of no ledger"),
            ),
            stacked=True,
        ),
        Panel(
            title="Given back and rewritten",
            help="Bytes a second of segment files that were given back, and that compaction wrote for it.",
            unit="binBps",
            queries=(
                Query(summed_rate("magnetar_log_reclaimed_bytes_total", _BOOKIES), "given back"),
                Query(summed_rate("magnetar_log_compaction_bytes_total", _BOOKIES), "rewritten"),
            ),
        ),
        Panel(
            title="Segments",
            help="Segment files of the log.",
            unit="short",
            queries=_each("magnetar_log_segments"),
        ),
        Panel(
            title="Garbage collection paused",
            help="1 while nothing is deleted because the list of ledgers in metadata is not to be trusted.",
            unit="none",
            queries=_each("magnetar_log_gc_paused"),
            limits=(Limit(1, "red"),),
        ),
    ),
)

_RECOVERY: Final = Row(
    "Auto-recovery",
    (
        Panel(
            title="Under-replicated ledgers",
            help="Ledgers that are marked because copies are missing, and those that are worked on now.",
            unit="short",
            queries=(
                Query(f"max(auditor_NUM_UNDER_REPLICATED_LEDGERS{{{CLUSTER}}})", "marked"),
                Query(f"sum(magnetar_autorecovery_ledgers_in_progress{{{_BOOKIES}}})", "in progress"),
            ),
        ),
        Panel(
            title="Copied",
            help="Bytes a second that bookies copied to mend ledgers, bounded by replicationRateByBytes.",
            unit="binBps",
            queries=_rate("replication_worker_NUM_BYTES_READ_total"),
        ),
        Panel(
            title="Auditor",
            help="Which bookie leads auto-recovery: 1 on exactly one of them.",
            unit="none",
            queries=_each("magnetar_autorecovery_auditor"),
        ),
        Panel(
            title="Scrubbed",
            help="Bytes a second that were read back and compared with their checksums.",
            unit="binBps",
            queries=_rate("magnetar_scrub_bytes_total"),
        ),
        Panel(
            title="Repaired",
            help="Entries since the start that were damaged or missing and came back from other bookies.",
            unit="short",
            queries=_each("magnetar_scrub_repaired_entries_total"),
        ),
        Panel(
            title="Entries that came again",
            help="Entries a second that were here already, equal, for instance from a writer that retried.",
            unit="wps",
            queries=_rate("magnetar_bookie_duplicate_entries_total"),
        ),
    ),
)

BOOKIE: Final = Dashboard(
    name="bookie",
    title="Bookies",
    about="What bookies take and give, how their disks are doing, and what auto-recovery mends.",
    variables=(OF_CLUSTER, of_processes("bookie", "Bookie")),
    rows=(_STATE, _ENTRIES, _DISK, _RECOVERY, processes(_BOOKIES)),
)
