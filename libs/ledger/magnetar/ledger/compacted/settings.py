"""Settings of topic compaction: those of a process, and those of one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """Limits of compaction runs. Pulsar has no such settings."""

    memory_bytes: int = setting(
        256 << 20,
        "Bytes that a compaction may use for the keys of new messages, about 40 a key; the new messages of a "
        "topic with more keys are compacted in several parts.",
        key="magnetarCompactionMemoryBytes",
        minimum=1 << 20,
    )
    bytes_per_second: int = setting(
        0,
        "Bytes a second that a compaction may read and write, together; 0: no limit.",
        key="magnetarCompactionBytesPerSecond",
        minimum=0,
    )
    disk_usage_max: float = setting(
        0.9,
        "Used share of storage disks above which compactions stop with an error, so that publishing goes on "
        "longer; below diskUsageThreshold of bookies. 1: never.",
        key="magnetarCompactionDiskUsageThreshold",
        minimum=0,
        maximum=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """Settings of one run."""

    hash_key: bytes
    """16 random bytes, kept with the view by the topic's first run and ignored later. Keys are compared by
    128-bit hashes under it, so that clients cannot prepare collisions."""

    limits: CompactionLimits = CompactionLimits()

    retain_null_key: bool = False
    """Whether messages without a key are kept (topicCompactionRetainNullKey)."""

    is_aborted: Callable[[int, int], bool] | None = None
    """Returns whether an entry belongs to an aborted transaction, by ledger id and entry id; such entries are
    left out and shadow nothing. None: the topic has no transactions."""

    rewrite: bool = False
    """Whether the view is written anew as one segment, whatever it costs."""
