"""Explains in words what compaction does with a topic now, and when it will run."""

from __future__ import annotations

from magnetar.broker.topics.compaction_state import CompactionStatus
from magnetar.broker.topics.persistent_topic import PersistentTopic


def explain(topic: PersistentTopic) -> str:
    """Returns sentences on the last run, the compacted view, and what starts the next run."""
    return " ".join((_last_run(topic), _view(topic), _next_run(topic)))


def _last_run(topic: PersistentTopic) -> str:
    state = topic.compaction
    progress = state.progress
    if progress is not None:
        return (
            f"A compaction is running: {progress.entries_read:,} entries examined, "
            f"{progress.bytes_read:,} bytes read and {progress.bytes_written:,} written."
        )
    match state.status:
        case CompactionStatus.RUNNING:
            return "A compaction waits until others of this broker end (magnetarCompactionRunsMax)."
        case CompactionStatus.SUCCESS:
            return (
                f"The last compaction took {state.duration_ms / 1000:.1f} s, read {state.bytes_read:,} bytes"
                f", wrote {state.bytes_written:,} and left {state.removed:,} messages out."
            )
        case CompactionStatus.ERROR:
            return f"The last compaction failed: {state.last_error}."
        case _:
            return "No compaction has run since the topic was loaded."


def _view(topic: PersistentTopic) -> str:
    compaction = topic.ledger.compaction
    if compaction.horizon is None:
        return "There is no compacted view: consumers with read_compacted read the topic itself."
    figures = compaction.figures
    text = f"The compacted view ends at {compaction.horizon} and has {figures.entries:,} entries."
    if figures.damaged:
        text += (
            f" Damaged or lost segments: {figures.damaged} of {figures.segments}; the next compaction makes "
            "them anew if the topic still has all messages from there on."
        )
    return text


def _next_run(topic: PersistentTopic) -> str:
    waiting, threshold = topic.uncompacted_bytes, topic.policies.compaction_threshold_bytes
    if threshold <= 0:
        return (
            f"{waiting:,} bytes are not compacted yet; without a compaction threshold the next compaction "
            "starts on request, and retention may delete them before."
        )
    return (
        f"{waiting:,} bytes are not compacted yet, and are kept until they are; the next compaction starts "
        f"beyond the threshold of {threshold:,} bytes."
    )
