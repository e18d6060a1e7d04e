"""Rebuilds a coordinator's state from its log ledger.

The ledger begins with a whole snapshot, since the head names it only then, and goes on with changes. An
unreadable entry makes the load fail: a decision is never guessed.
"""

from __future__ import annotations

from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.ledger.transaction_log import transaction_log_pb2 as pb
from magnetar.ledger.transaction_log.coordinator_state import CoordinatorState
from magnetar.ledger.transaction_log.log_records import apply_change, decode_entry
from magnetar.ledger.transaction_log.log_snapshots import apply_chunk


class LogLoader:
    """Receives every entry of a log ledger in order, then `finish`."""

    def __init__(self, coordinator_id: int, ledger_id: int) -> None:
        self._where = f"transaction log ledger {ledger_id} of coordinator {coordinator_id}"
        self._state = CoordinatorState()
        self._chunks = 0
        self._is_whole = False
        self._damage: DataCorruption | None = None

    def feed(self, entry_id: int, data: bytes) -> None:
        """Applies the next entry. Raises UnsupportedFormat for an entry of a later release."""
        if self._damage is not None:
            return
        try:
            self._apply(decode_entry(data))
        except DataCorruption as error:
            self.damaged(entry_id, str(error))

    def damaged(self, entry_id: int, reason: str) -> None:
        """Records an unreadable entry."""
        if self._damage is None:
            self._damage = DataCorruption(
                f"{self._where}: entry {entry_id} is damaged: {reason}. The coordinator is not loaded, "
                "because a decision could be lost; restore the ledger's copies"
            )

    def finish(self) -> CoordinatorState:
        """Returns the state. Raises DataCorruption after an unreadable entry, or without a whole snapshot."""
        if self._damage is not None:
            raise self._damage
        if not self._is_whole:
            raise DataCorruption(
                f"{self._where} has no whole snapshot, so its transactions are unknown; restore the ledger's "
                "copies"
            )
        return self._state

    def _apply(self, entry: pb.Entry) -> None:
        kind = entry.WhichOneof("record")
        if kind == "changes" and self._is_whole:
            for change in entry.changes.changes:
                apply_change(self._state, change)
        elif kind == "snapshot_chunk" and not self._is_whole:
            if entry.snapshot_chunk.index != self._chunks:
                raise DataCorruption(
                    f"chunk {entry.snapshot_chunk.index} of a snapshot follows {self._chunks} chunks"
                )
            self._chunks += 1
            apply_chunk(self._state, entry.snapshot_chunk)
        elif kind == "snapshot_end" and not self._is_whole:
            self._end(entry.snapshot_end)
        elif kind is None:
            raise UnsupportedFormat(
                f"{self._where} holds a record of a kind that this release does not know; run the release "
                "that wrote it, or a newer one"
            )
        else:
            raise DataCorruption(f"a record of kind {kind} is out of order")

    def _end(self, end: pb.SnapshotEnd) -> None:
        state = self._state
        found = (self._chunks, len(state.transactions), len(state.outcomes))
        if found != (end.chunks, end.transactions, end.outcomes):
            raise DataCorruption(
                f"a snapshot of {end.chunks} chunks, {end.transactions} transactions and {end.outcomes} "
                f"outcomes has {found[0]}, {found[1]} and {found[2]}"
            )
        self._is_whole = True
