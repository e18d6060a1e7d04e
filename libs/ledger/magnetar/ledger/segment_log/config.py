"""Settings of the segment log."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLogConfig:
    """Settings of log writes. Sizes are bytes."""

    segment_size_bytes: int = setting(
        256 << 20,
        "Seal a segment file and go on with the next one at this size, in bytes.",
        key="magnetarSegmentSizeBytes",
        minimum=64 << 10,
    )
    segment_entries_max: int = setting(
        1_000_000,
        "Seal a segment file after this many entries, whatever its size.",
        key="magnetarSegmentEntriesMax",
        minimum=1,
    )
    sync_data: bool = setting(
        True,
        "Sync the log before anything in it is acknowledged. false loses acknowledged messages in a power "
        "loss and is allowed only in standalone.",
        key="journalSyncData",
    )
    pending_bytes_max: int = setting(
        64 << 20,
        "Bytes of appended entries that may wait for their sync; beyond it publishers are held back.",
        key="magnetarLogPendingBytesMax",
        minimum=1 << 20,
    )
    group_bytes_max: int = setting(
        8 << 20,
        "Bytes of entries written and synced together at most (a larger single run goes alone).",
        key="magnetarLogGroupBytesMax",
        minimum=64 << 10,
    )
    fill_ahead_bytes: int = setting(
        16 << 20,
        "How far ahead of the writer segment files are zero-filled, in bytes.",
        key="magnetarLogFillAheadBytes",
        minimum=64 << 10,
    )
    free_space_headroom_bytes: int = setting(
        256 << 20,
        "Appends are refused while less than two segments and this many bytes are free on the disk.",
        key="magnetarLogFreeSpaceHeadroomBytes",
        minimum=0,
    )
    index_cache_bytes: int = setting(
        64 << 20,
        "Memory for the indexes of sealed segments, in bytes.",
        key="magnetarLogIndexCacheBytes",
        minimum=1 << 20,
    )
    idle_group_s: float = setting(
        1.0,
        "After this many idle seconds an empty group is written, which tells recovery that the one before "
        "it was durable.",
        key="magnetarLogIdleGroupSeconds",
        minimum=0.01,
    )

    gc_wait_ms: int = setting(
        300_000,
        "How often the log looks for bytes of deleted ledgers, in milliseconds; soon again while the disk is "
        "full.",
        key="gcWaitTime",
        minimum=1,
    )
    gc_grace_s: float = setting(
        60.0,
        "A ledger's bytes stay for this many seconds after metadata was first seen without the ledger.",
        key="magnetarLogGcGraceSeconds",
        minimum=0,
    )
    gc_share_max: float = setting(
        0.2,
        "The log deletes nothing and raises an alarm when metadata lacks more than this share of the ledgers "
        "beyond the deletions requested here. 1 turns the guard off: only after an examination.",
        key="magnetarLogGcShareMax",
        minimum=0,
        maximum=1,
    )
    compaction_live_ratio: float = setting(
        0.5,
        "A sealed segment file is rewritten when less than this share of it belongs to ledgers that exist.",
        key="majorCompactionThreshold",
        minimum=0,
        maximum=1,
    )
    compaction_bytes_per_s: int = setting(
        8 << 20,
        "How fast compaction reads and writes, in bytes per second.",
        key="compactionRateByBytes",
        minimum=4096,
    )
    sort_after_s: float = setting(
        600.0,
        "A sealed segment file that interleaves many ledgers is rewritten in their order after this many "
        "seconds, which makes reading a backlog sequential. 0: never.",
        key="magnetarLogSortAfterSeconds",
        minimum=0,
    )
    recycled_segments_max: int = setting(
        2,
        "Files of removed segments that are kept to be written again, which saves filling new ones.",
        key="magnetarLogRecycledSegmentsMax",
        minimum=0,
    )

    @property
    def reserve_bytes(self) -> int:
        """Free space below which appends are refused."""
        return 2 * self.segment_size_bytes + self.free_space_headroom_bytes

    @property
    def first_fill_bytes(self) -> int:
        """Bytes of a new segment zero-filled before its first use: few, for a quick start."""
        return min(1 << 20, self.fill_ahead_bytes, self.segment_size_bytes)
