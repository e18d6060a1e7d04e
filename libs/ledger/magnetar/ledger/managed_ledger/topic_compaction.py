"""A loaded topic's compaction: its view, its hold on ledgers, its runs.

`ManagedLedger.compaction` creates it on first use. The interface for the broker:

- before the first `ManagedLedger.retain` of a load, and when policies change: `hold(threshold in force)`;
- a reader with `read_compacted` at position p: while `has_after(p)`, `read` of the view from p + 1, else the
  topic's own entries after `max(p, horizon)`. The switch depends on the position only, so it needs no state
  and survives another owner and a view that changes in the middle;
- GetLastMessageId: the topic's last dispatchable entry if there is one after `horizon`, else `view_end`;
- `run` when a threshold is passed or an operator wants it, `remove` to unsubscribe `__compaction`.
"""

from __future__ import annotations

from magnetar.common.naming.position import Position
from magnetar.ledger.compacted.figures import CompactionProgress, CompactionResult, ViewEnd, ViewFigures
from magnetar.ledger.compacted.settings import CompactionSettings
from magnetar.ledger.managed_ledger.context import ReadResult


class TopicCompaction:
    """Compaction of one loaded topic. Everything but the coroutines is a plain call without I/O."""

    # Hold

    def hold(self, wanted: bool) -> None:
        """Sets whether trimming stops at the horizon (a compaction threshold is in force).

        Without a view and with a hold nothing is trimmed. The hold is not stored: set it after each load,
        before `ManagedLedger.retain`. Until then a topic with a view is held. Releasing it trims at once.
        """
        raise NotImplementedError

    @property
    def held(self) -> bool:
        """Whether trimming stops at the horizon."""
        raise NotImplementedError

    # View

    @property
    def horizon(self) -> Position | None:
        """The position up to which the view replaces the topic's entries; None without a view."""
        raise NotImplementedError

    @property
    def view_end(self) -> ViewEnd | None:
        """The last message of the view; None when there is no view, or it is empty."""
        raise NotImplementedError

    def has_after(self, position: Position) -> bool:
        """Returns whether the view has an entry after `position`. Neither reads nor waits."""
        raise NotImplementedError

    @property
    def figures(self) -> ViewFigures:
        """Figures of the view; zeros and ledger id -1 without one."""
        raise NotImplementedError

    async def read(self, start: Position, entries_max: int, bytes_max: int) -> ReadResult:
        """Reads live entries of the view from the first one at or after `start`, like `ManagedLedger.read`.

        Runs have the original positions, publish times, indexes, message counts and flags; a run contains
        consecutive entries only. Returns at least one entry if one exists, however large; `next` is where to
        go on, and after the last entry of the view the position after the horizon. Batches of which some
        messages are compacted out have them marked so. Entries are not cached. A damaged page of which there
        is only one copy is skipped: its ledger and page are logged and counted.

        Raises NoSuchLedger if a segment is lost (never an empty result), EntryUnreadable, EntryUnknown,
        LogFailed, DataCorruption.
        """
        raise NotImplementedError

    async def first_at_time(self, publish_time_ms: int) -> Position | None:
        """Returns the first live entry of the view whose broker publish time is at or after this; None if all
        are older. Raises as `read`.
        """
        raise NotImplementedError

    # Runs

    @property
    def running(self) -> bool:
        """Whether a run or a removal is in progress."""
        raise NotImplementedError

    async def run(
        self, limit: Position, settings: CompactionSettings, progress: CompactionProgress | None = None
    ) -> CompactionResult:
        """Compacts the topic's entries after the horizon up to `limit`, which becomes the horizon.

        Pass `ManagedLedger.read_limit()`. Works in slices of about a millisecond on the event loop. While it
        runs nothing after the horizon is trimmed. On failure, and if the caller is cancelled, the view stays
        as it was (after several parts, as the last complete part left it), and new ledgers are deleted.

        Raises CompactionRunning, OwnershipLost, MetadataError, errors of `read`, LogFull, LogFailed,
        NotEnoughBookies; DataCorruption if an earlier segment is damaged.
        """
        raise NotImplementedError

    async def remove(self) -> None:
        """Removes the view with its ledgers, and the hold; durable on return. Idempotent.

        Raises CompactionRunning, OwnershipLost, MetadataError.
        """
        raise NotImplementedError
