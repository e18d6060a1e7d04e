"""The bookie's metrics page: BookKeeper's names where the meaning is the same, then Magnetar's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from magnetar.common.obs.latency import Latency, histogram_lines, summary_lines
from magnetar.common.obs.process_metrics import process_page
from magnetar.ledger.segment_log.log import SegmentLog


@dataclass(slots=True, eq=False)
class BookieStats:
    """Counters and latencies, as plain attributes rendered on request."""

    add_requests: Latency = field(default_factory=Latency)
    """From the arrival of an entry to its confirmation handed to the network."""
    journal_adds: Latency = field(default_factory=Latency)
    """Latency from the arrival of an entry to its result: durable, or refused."""
    journal_syncs: Latency = field(default_factory=Latency)
    """Latency of commit groups: write and sync."""
    read_requests: Latency = field(default_factory=Latency)
    written_bytes: int = 0
    """Bytes of append messages, as received."""
    read_bytes: int = 0
    """Bytes of read answers."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Gauges of the metrics page beside `BookieStats`, read when it is rendered."""

    ledgers: Callable[[], int]
    writable: Callable[[], bool]
    log: Callable[[], SegmentLog | None] = lambda: None
    """The segment log; None until it is recovered."""


_OF_LOG: Final[tuple[tuple[str, str, str, Callable[[SegmentLog], int]], ...]] = (
    (
        "bookie_write_cache_size",
        "gauge",
        "Bytes of entries that wait for their sync.",
        lambda log: log.pending_bytes,
    ),
    (
        "bookie_journal_JOURNAL_QUEUE_SIZE",
        "gauge",
        "Records that wait for the next group of the log.",
        lambda log: log.group_commit.waiting,
    ),
    (
        "bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE",
        "gauge",
        "Groups of the log that are being written and synced.",
        lambda log: log.group_commit.in_flight,
    ),
    (
        "bookie_RECLAIMED_DELETION_SPACE_BYTES",
        "counter",
        "Bytes of files that went because their ledgers were deleted.",
        lambda log: log.space.deleted_ledger_bytes,
    ),
    (
        "bookie_RECLAIMED_COMPACTION_SPACE_BYTES",
        "counter",
        "Bytes by which files shrank as they were compacted.",
        lambda log: log.space.compacted_bytes,
    ),
    (
        "magnetar_log_index_cache_bytes",
        "gauge",
        "Memory of the indexes of the log's sealed files.",
        lambda log: log.indexes.byte_length,
    ),
)
"""Name, kind, help and value."""


class MetricsPage:
    """Renders the page. `clock()` returns the latencies' time."""

    def __init__(self, stats: BookieStats, figures: Figures, clock: Callable[[], float]) -> None:
        self._stats = stats
        self._figures = figures
        self._clock = clock

    def render(self) -> bytes:
        """Renders the whole page: some tens of kilobytes."""
        return "".join(self.bookkeeper_part()).encode() + process_page()

    def bookkeeper_part(self) -> Iterator[str]:
        """Renders the metrics with BookKeeper's names."""
        stats, figures, now = self._stats, self._figures, self._clock()
        log = figures.log()
        for name, text, latency in (
            ("bookkeeper_server_ADD_ENTRY_REQUEST", "Entries added, ms until confirmed.", stats.add_requests),
            ("bookie_journal_JOURNAL_ADD_ENTRY", "Entries added, ms until durable.", stats.journal_adds),
            ("bookie_journal_JOURNAL_SYNC", "Groups of the log, ms to write and sync.", stats.journal_syncs),
            ("bookkeeper_server_READ_ENTRY_REQUEST", "Reads, ms until answered.", stats.read_requests),
        ):
            yield f"# HELP {name} {text}\n# TYPE {name} summary\n"
            for success in (True, False):
                label = f'success="{"true" if success else "false"}"'
                yield from summary_lines(name, label, latency.window(success=success), now)
        for name, text, latency in (
            ("magnetar_bookie_append_latency_seconds", "Entries added, until confirmed.", stats.add_requests),
            ("magnetar_bookie_read_latency_seconds", "Reads, until answered.", stats.read_requests),
        ):
            yield f"# HELP {name} {text}\n# TYPE {name} histogram\n"
            yield from histogram_lines(name, latency.succeeded)
        for name, kind, text, value in (
            ("bookie_WRITE_BYTES", "counter", "Bytes of appends taken.", stats.written_bytes),
            ("bookie_READ_BYTES", "counter", "Bytes of entries read.", stats.read_bytes),
            ("bookie_ledgers_count", "gauge", "Ledgers with something here.", figures.ledgers()),
            (
                "bookie_ledger_writable_dirs",
                "gauge",
                "1 while the data directory takes entries.",
                int(figures.writable()),
            ),
            *((*row[:3], 0 if log is None else row[3](log)) for row in _OF_LOG),
        ):
            yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name} {value}\n"
