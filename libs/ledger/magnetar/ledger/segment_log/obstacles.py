"""Conditions that prevent writes to a log, from the state of its writing path."""

from __future__ import annotations

from typing import Final

from magnetar.ledger.ledger_store import Obstacle
from magnetar.ledger.segment_log.group_commit import GroupCommit
from magnetar.ledger.segment_log.segment_chain import SegmentChain

STUCK_S: Final = 5.0
"""Time in seconds after which a disk that has not finished a group counts as stuck."""


def obstacle_of(commit: GroupCommit, chain: SegmentChain) -> Obstacle | None:
    """Returns the reason why no entry can be written; None if one can. Checks free space, but no file."""
    if commit.unavailable is not None:
        return Obstacle(str(commit.unavailable), seen_to_end=True)  # the chain tries again by itself
    try:
        shortage = chain.look_at_space()
    except OSError as error:
        return Obstacle(f"the log's directory cannot be used: {error}", seen_to_end=True)
    if shortage is not None:
        return Obstacle(shortage, seen_to_end=True)
    if commit.waited_s > STUCK_S:
        stuck = f"the disk has not made a group of the log durable for {commit.waited_s:.0f} s"
        return Obstacle(stuck, seen_to_end=True)
    return None if commit.failure is None else Obstacle(str(commit.failure), seen_to_end=False)
