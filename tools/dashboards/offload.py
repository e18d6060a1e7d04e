"""Ledgers on their way to an object store, what history costs to read, and what is swept there."""

from __future__ import annotations

from typing import Final

from tools.dashboards.model import Dashboard, Limit, Panel, Query, Row
from tools.dashboards.shared import CLUSTER, OF_CLUSTER, quantile, summed_rate


def _rate(metric: str, legend: str) -> Query:
    return Query(summed_rate(metric, CLUSTER), legend)


def _stat(title: str, query: Query, help_text: str, unit: str = "none", limit: Limit | None = None) -> Panel:
    return Panel(
        title=title,
        unit=unit,
        kind="stat",
        queries=(query,),
        help=help_text,
        limits=(limit,) if limit else (),
        width=6,
        height=4,
    )


_STATE: Final = Row(
    "State",
    (
        _stat(
            "Waiting",
            Query(f'sum(magnetar_offload_ledgers{{state="waiting", {CLUSTER}}})', "ledgers"),
            "Ledgers of loaded topics that wait for a job; run one (magnetar offload run).",
        ),
        _stat(
            "Running",
            Query(f'sum(magnetar_offload_ledgers{{state="running", {CLUSTER}}})', "ledgers"),
            "Ledgers of loaded topics that jobs are writing now.",
        ),
        _stat(
            "Offloaded",
            Query(f'sum(magnetar_offload_ledgers{{state="complete", {CLUSTER}}})', "ledgers"),
            "Ledgers of loaded topics that are whole in the object store, on bookies or not.",
        ),
        _stat(
            "Last offload",
            Query(f"time() - max(magnetar_offload_last_completed_timestamp_seconds{{{CLUSTER}}} > 0)", "ago"),
            "How long ago a job last offloaded a ledger, as brokers that run since then know it.",
            "s",
        ),
        _stat(
            "Without a location",
            Query(f"sum(magnetar_offload_topics_without_location{{{CLUSTER}}})", "topics"),
            "Topics of which policies want ledgers offloaded, and nothing says where to.",
            limit=Limit(1, "orange"),
        ),
        _stat(
            "Damaged",
            Query(f"sum(magnetar_cold_damaged_ledgers_total{{{CLUSTER}}})", "ledgers"),
            "Offloaded ledgers whose objects were found missing or damaged since brokers started.",
            limit=Limit(1, "red"),
        ),
        _stat(
            "Last sweep",
            Query(f"time() - max(magnetar_offload_last_sweep_timestamp_seconds{{{CLUSTER}}} > 0)", "ago"),
            "How long ago the leading broker last swept objects that nothing names; every hour it should.",
            "s",
            Limit(6 * 3600, "orange"),
        ),
    ),
)

_JOBS: Final = Row(
    "Jobs",
    (
        Panel(
            title="Ledgers",
            help="Ledgers of loaded topics by state; left ones are complete and no more on bookies.",
            unit="short",
            queries=(Query(f"sum by (state) (magnetar_offload_ledgers{{{CLUSTER}}})", "{{state}}"),),
        ),
        Panel(
            title="Wanted and completed",
            help="Ledgers a second that policies had offloaded, and that jobs offloaded and verified.",
            unit="cps",
            queries=(
                _rate("magnetar_offload_wanted_total", "wanted"),
                _rate("magnetar_offload_completed_total", "completed"),
            ),
        ),
        Panel(
            title="Given up",
            help="Attempts a second that jobs gave up, by namespace; they are made again. Empty: none.",
            unit="cps",
            queries=(
                Query(
                    summed_rate("brk_ledgeroffloader_offload_error_total", CLUSTER, "namespace"),
                    "{{namespace}}",
                ),
            ),
        ),
        Panel(
            title="Read by jobs",
            help="Bytes a second of entries that jobs read through brokers: what offloading costs these.",
            unit="binBps",
            queries=(_rate("magnetar_offload_read_bytes_total", "read"),),
        ),
        Panel(
            title="Rows",
            help="Rows a second of the ledgers that were offloaded, and entries among them that could not be "
            "decoded and are kept as they are.",
            unit="rowsps",
            queries=(
                _rate("magnetar_offload_completed_rows_total", "rows"),
                _rate("magnetar_offload_raw_entries_total", "raw entries"),
            ),
        ),
        Panel(
            title="Bytes before and after",
            help="Bytes of the offloaded ledgers of loaded topics as they were stored, and of their objects.",
            unit="bytes",
            queries=(
                Query(f"sum(magnetar_offload_ledger_bytes{{{CLUSTER}}})", "ledgers"),
                Query(f"sum(magnetar_offload_object_bytes{{{CLUSTER}}})", "objects"),
            ),
        ),
    ),
)

_HISTORY: Final = Row(
    "Reading history",
    (
        Panel(
            title="Entries read",
            help="Entries a second that clients and cursors read from offloaded ledgers.",
            unit="rps",
            queries=(_rate("magnetar_cold_read_entries_total", "entries"),),
        ),
        Panel(
            title="Bytes read",
            help="Bytes a second of the entries that were read from offloaded ledgers.",
            unit="binBps",
            queries=(_rate("magnetar_cold_read_bytes_total", "read"),),
        ),
        Panel(
            title="Time to load a row group",
            help="Time for a row group to be fetched from the object store and taken apart.",
            unit="s",
            queries=(
                Query(quantile(0.5, "magnetar_cold_load_seconds", CLUSTER), "median"),
                Query(quantile(0.99, "magnetar_cold_load_seconds", CLUSTER), "99 %"),
            ),
        ),
        Panel(
            title="Cache",
            help="Row groups, footers and manifests a second that were in memory, and that were waited for.",
            unit="ops",
            queries=(
                Query(summed_rate("magnetar_cold_cache_hits_total", CLUSTER, "what"), "in memory, {{what}}"),
                Query(
                    summed_rate("magnetar_cold_cache_misses_total", CLUSTER, "what"), "waited for, {{what}}"
                ),
            ),
        ),
        Panel(
            title="Memory",
            help="Bytes in brokers' memory of offloaded ledgers, bounded by magnetarColdCacheMB each.",
            unit="bytes",
            queries=(Query(f"sum by (what) (magnetar_cold_cache_bytes{{{CLUSTER}}})", "{{what}}"),),
        ),
        Panel(
            title="Reads that failed",
            help="Reads a second that gave nothing, by reason, and that succeeded on the other tier. Empty: "
            "none.",
            unit="rps",
            queries=(
                Query(summed_rate("magnetar_cold_reads_failed_total", CLUSTER, "reason"), "{{reason}}"),
                Query(
                    summed_rate("magnetar_cold_other_tier_reads_total", CLUSTER, "failed"),
                    "not at {{failed}}, but elsewhere",
                ),
            ),
        ),
    ),
)

_OBJECTS: Final = Row(
    "Objects",
    (
        Panel(
            title="Left bookies",
            help="Ledgers a second whose objects were verified and became the only copy.",
            unit="cps",
            queries=(_rate("magnetar_cold_ledgers_left_bookies_total", "ledgers"),),
        ),
        Panel(
            title="Verified",
            help="Bytes a second of objects that were compared with their checksums before bookies let go.",
            unit="binBps",
            queries=(_rate("magnetar_cold_verified_bytes_total", "verified"),),
        ),
        Panel(
            title="Named by nothing",
            help="Attempts whose objects no ledger names: leftovers are younger than a day, orphans should "
            "be 0 after a sweep; and deletions that could not be carried out.",
            unit="short",
            queries=(
                Query(f"max(magnetar_offload_leftovers{{{CLUSTER}}})", "leftovers"),
                Query(f"max(magnetar_offload_orphans{{{CLUSTER}}})", "orphans"),
                Query(f"max(magnetar_offload_deletions_left{{{CLUSTER}}})", "deletions left"),
            ),
        ),
        Panel(
            title="Deleted",
            help="Attempts a second whose objects were deleted, or could not be, by status. Empty: none.",
            unit="cps",
            queries=(
                Query(
                    summed_rate("brk_ledgeroffloader_delete_offload_ops_total", CLUSTER, "status"),
                    "{{status}}",
                ),
            ),
        ),
        Panel(
            title="Sweeps that failed",
            help="Locations and attempts a second at which a sweep failed; it is tried again.",
            unit="cps",
            queries=(_rate("magnetar_offload_sweep_failures_total", "failures"),),
        ),
        Panel(
            title="Locations not swept",
            help="Locations at which nothing is deleted, since metadata may lack their ledgers or they are "
            "not this cluster's.",
            unit="short",
            queries=(Query(f"max(magnetar_offload_sweep_halted{{{CLUSTER}}})", "locations"),),
            limits=(Limit(1, "red"),),
        ),
    ),
)

OFFLOAD: Final = Dashboard(
    name="offload",
    title="Offload",
    about="Ledgers on their way to objects, what history costs to read, and what is swept from the store.",
    variables=(OF_CLUSTER,),
    rows=(_STATE, _JOBS, _HISTORY, _OBJECTS),
)
