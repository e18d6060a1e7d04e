"""What a subscription delivers next: entries to be delivered again first, then those after its read position.

A plain pull: `peek` answers at once from memory, or answers nothing and starts one read from storage, after
which `wake` is called. There is no state of "waiting" that could be lost: every `peek` decides anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.delivery import EntryGate
from magnetar.broker.subscriptions.due_entries import DueEntries, DueRead, read_due
from magnetar.broker.subscriptions.read_ahead import ReadAhead
from magnetar.broker.subscriptions.replay import ReplaySet
from magnetar.broker.task_spawner import Spawn
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.context import ReadResult
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from pyroaring import BitMap

_DUE_ENTRIES_MAX = 128
"""Due entries fetched at a time."""

LOOKED_AT_ENTRIES = 1_000
"""Entries of which none may go out now that `peek` passes by before other work gets the event loop."""

_GATED_ENTRIES = 100
"""Entries asked about at a time, at least."""

_STRETCH_ENTRIES = 64
"""A read does not go into so many entries that need not be read."""


class EntrySource:
    """The entries of one subscription in delivery order, without those that its cursor has acknowledged."""

    __slots__ = (
        "_catching_up",
        "_config",
        "_cursor",
        "_due",
        "_fresh",
        "_kept_came",
        "_ledger",
        "_read_after",
        "_reads",
        "_replay",
        "_replayed",
        "_wake",
        "gate",
        "in_order",
        "replays_only",
    )

    def __init__(
        self,
        ledger: ManagedLedger,
        cursor: Cursor,
        config: DispatchConfig,
        budget: ByteBudget,
        spawn: Spawn,
        wake: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._cursor = cursor
        self._config = config
        self._reads = ReadAhead(self, ledger.name, cursor.name, config.read_bytes_max, budget, spawn, wake)
        self._catching_up = False
        self._wake = wake
        self._read_after = cursor.mark_delete
        self._fresh: deque[Run] = deque()
        self._replay = ReplaySet()
        self._replayed: deque[Run] = deque()
        self._due: DueEntries | None = None
        self._kept_came = False
        """What the gate had kept was let go: entries behind those in `_fresh` may be delivered by now."""

        self.gate: EntryGate | None = None
        """Keeps entries out of what is read for the first time; None: every entry passes."""

        self.in_order = False
        """What is to be delivered again never comes before what is older and is to be delivered again too."""

        self.replays_only = False
        """Nothing new is given out or read; what is to be delivered again is."""

    @property
    def replaying(self) -> bool:
        """True while something is to be delivered again."""
        return bool(self._replay) or bool(self._replayed) or bool(self._due)

    @property
    def replays(self) -> int:
        """Entries that are to be delivered again."""
        due = 0 if self._due is None else len(self._due)
        return len(self._replay) + sum([len(run.entries) for run in self._replayed]) + due

    @property
    def reading(self) -> bool:
        """True while a read from storage is under way."""
        return self._reads.under_way

    @property
    def read_position(self) -> Position:
        """Everything up to this position was looked at."""
        return self._read_after

    def rewind(self, position: Position) -> None:
        """Deliver everything unacknowledged after `position` again; what was read ahead is dropped."""
        self._reads.drop()
        self._read_after = position
        self._fresh.clear()
        self._replay.clear()
        self._replayed.clear()
        self._due = None
        self._kept_came = False
        if self.gate is not None:
            self.gate.clear()
        self._reads.release(self._reads.held_bytes)

    def close(self) -> None:
        """Nobody reads any more: what is under way is dropped when it comes."""
        if self.gate is not None:
            self.gate.clear()
        self._reads.close()

    def give_back(self) -> None:
        """Somebody else needs the memory: what was read ahead is read again when it is asked for."""
        if self._reads.offered:
            self._put_back_all()

    def _put_back_all(self) -> None:
        self._replay_runs(self._replayed)
        if self._kept_came:
            # Entries behind these may be delivered already: reading on from here would give them twice.
            self._replay_runs(self._fresh)
        elif self._fresh:
            first = self._fresh[0]
            self._read_after = Position(first.ledger_id, first.first_entry_id - 1)
            self._fresh.clear()
            # A read ahead of these entries may be under way, which must not come before them.
            self._reads.drop()
        self._reads.release(self._reads.held_bytes)

    def _older_first(self) -> None:
        """Put back what was read if something older came meanwhile, as from a negative acknowledgement.

        It costs a read at most, and cannot go on for long: who gives something back had it delivered first.
        """
        if self._replayed:
            head = self._replayed[0]
            if self._replay.first < (head.ledger_id, head.first_entry_id):
                byte_count = sum([run.byte_length for run in self._replayed])
                self._replay_runs(self._replayed)
                self._release(byte_count)

    def _replay_runs(self, runs: deque[Run]) -> None:
        while runs:
            run = runs.popleft()
            self.replay_all((run.ledger_id, run.first_entry_id + n) for n in range(len(run.entries)))

    def forget_acknowledged(self) -> None:
        """Entries were acknowledged that nobody was given: drop what was read of them, and read no more."""
        before = sum(run.byte_length for runs in (self._fresh, self._replayed) for run in runs)
        self._fresh = deque([part for run in self._fresh for part in self._unacked(run)])
        self._replayed = deque([part for run in self._replayed for part in self._unacked(run)])
        after = sum(run.byte_length for runs in (self._fresh, self._replayed) for run in runs)
        if self._read_after < self._cursor.mark_delete:
            self._read_after = self._cursor.mark_delete
            self._reads.drop()
        self._release(before - after)

    def replay(self, ledger_id: int, entry_id: int) -> None:
        """Deliver this entry again, before anything new."""
        self._replay.add(ledger_id, entry_id)

    def replay_all(self, entries: Iterable[tuple[int, int]]) -> None:
        """Deliver these (ledger id, entry id) again, oldest first, before anything new."""
        for ledger_id, entry_id in entries:
            self._replay.add(ledger_id, entry_id)

    def deliver_due(self, entries: Iterable[tuple[int, int]]) -> None:
        """Deliver these, which the gate kept until now, in this order and before everything else."""
        self._kept_came = True
        if self._due is None:
            self._due = DueEntries()
        if self._replay:
            entries = list(entries)
            for ledger_id, entry_id in entries:
                self._replay.discard_range(ledger_id, entry_id, entry_id)
        self._due.add(entries)

    def read_again(self, ledger_id: int, entry_ids: BitMap) -> None:
        """Ask the gate anew about these, which it kept, before anything new is delivered."""
        self._kept_came = True
        self._replay.add_all(ledger_id, entry_ids)

    def ask_again(self) -> None:
        """There is a gate now: what was read before goes out only if it lets it."""
        self._put_back_all()

    def peek(self, entries_max: int) -> tuple[Run, bool] | None:
        """The next entries, as (run, are they delivered again?); None when there are none in memory now.

        The run may hold more than `entries_max` entries; the caller takes a front part and calls `advance`.
        """
        if self.gate is not None:
            # Where most are kept, few at a time would take long.
            entries_max = max(entries_max, _GATED_ENTRIES)
        left = LOOKED_AT_ENTRIES
        while True:
            if self.in_order and self._replay:
                self._older_first()
            if self._replayed:
                return self._replayed[0], True
            if not (self._due or self._replay):
                if self.replays_only:
                    return None
                if self._fresh:
                    return self._fresh[0], False
            if left <= 0:
                self._wake()
                return None
            if self._due and not (self.in_order and self._replay):
                fetched = self._fetch_due(self._due)
            elif self._replay:
                fetched = self._fetch_replay(entries_max)
            else:
                fetched = self._fetch_fresh(entries_max)
            if not fetched:
                return None
            left -= fetched

    def advance(self, entries: int) -> None:
        """The first `entries` of the run that `peek` gave were delivered."""
        runs = self._replayed or self._fresh
        run = runs[0]
        delivered = run.byte_length
        if entries == len(run.entries):
            runs.popleft()
        else:
            runs[0] = run.slice(run.first_entry_id + entries, run.last_entry_id)
            delivered -= runs[0].byte_length
        self._delivered(delivered)

    def take_runs(self, messages_max: int, bytes_max: int) -> list[Run]:
        """Whole runs in memory that fit, as if `peek` had given and `advance` had taken them one by one.

        Only what is new and ordinary: none while something is to be delivered again, and none from a chunk
        or a marker on. `bytes_max` may be passed by one run.
        """
        taken: list[Run] = []
        if self.replaying:
            return taken
        fresh = self._fresh
        size = 0
        while fresh and size < bytes_max:
            run = fresh[0]
            messages_max -= run.messages
            if run.flags or messages_max < 0:
                break
            taken.append(fresh.popleft())
            size += run.byte_length
        if taken:
            self._delivered(size)
        return taken

    def take_replayed(self, entries_max: int, bytes_max: int) -> tuple[int, list[Run]]:
        """Entries in memory to be delivered again, each as a run of its own, as if given one by one.

        As many as fit and follow each other and are ordinary: no chunks, no batches. Returns how many entries
        were passed by, and those of them that are not acknowledged by now.
        """
        taken: list[Run] = []
        replayed, is_acked = self._replayed, self._cursor.is_acked
        passed = size = 0
        while replayed and len(taken) < entries_max and size < bytes_max:
            run = replayed[0]
            if run.flags or run.message_counts is not None or len(run.entries) > 1:
                break
            replayed.popleft()
            passed += 1
            size += run.byte_length
            if not is_acked(run.ledger_id, run.first_entry_id):
                taken.append(run)
        if passed:
            self._delivered(size)
        return passed, taken

    def _delivered(self, byte_count: int) -> None:
        reads = self._reads
        if reads.held_bytes:
            self._release(byte_count)
        if self._catching_up and not reads.under_way and reads.held_bytes < self._config.read_bytes_max // 2:
            self._read_on()

    def _fetch_fresh(self, entries_max: int) -> int:
        """Move entries after the read position into `_fresh`; returns how many were looked at.

        0 when none can be had at once, here and for the others.
        """
        start = self._next_start()
        if start is None:
            return 0
        run = self._ledger.read_cached(start, entries_max, self._config.read_bytes_max)
        if run is None:
            self._start_read(start, self._fresh_entries_max(start), replayed=False)
            return 0
        passing = self._passing(run)
        self._catching_up = False
        self._read_after = Position(run.ledger_id, run.last_entry_id)
        self._fresh.extend(passing)
        return len(run.entries)

    def _next_start(self) -> Position | None:
        """The next entry that has to be read: not what is acknowledged, or kept by the gate."""
        cursor, gate = self._cursor, self.gate
        while (start := self._ledger.next_position(self._read_after)) is not None:
            kept = None if gate is None else gate.kept(start.ledger_id)
            if kept is None and not cursor.has_holes:
                return start
            entry_id = cursor.next_unacked(start.ledger_id, start.entry_id, kept)
            if entry_id == start.entry_id:
                return start
            self._read_after = Position(start.ledger_id, entry_id - 1)
        return None

    def _fresh_entries_max(self, start: Position) -> int:
        """How many entries to read from `start` on: not into a long stretch of those that the gate keeps."""
        entries_max = self._config.read_entries_max
        kept = None if self.gate is None else self.gate.kept(start.ledger_id)
        if kept is not None and kept.max() > start.entry_id:
            first = kept.next_set_bit(start.entry_id)
            if kept.contains_range(first, first + _STRETCH_ENTRIES):
                return min(entries_max, first - start.entry_id)
        return entries_max

    def _passing(self, run: Run) -> list[Run]:
        """What of a run may go out now."""
        unacked = self._unacked(run)
        if self.gate is None:
            return unacked
        return [part for each in unacked for part in self.gate.hold(each)]

    def _fetch_due(self, due: DueEntries) -> int:
        """Move due entries into `_replayed`, each as a run."""
        lot = due.next(_DUE_ENTRIES_MAX)
        fetched = 0
        while fetched < len(lot):
            ledger_id, first = lot[fetched]
            count = 1
            while fetched + count < len(lot) and lot[fetched + count] == (ledger_id, first + count):
                count += 1
            run = self._ledger.read_cached(Position(ledger_id, first), count, self._config.read_bytes_max)
            if run is None:
                break
            fetched += len(run.entries)
            self._replayed.extend(self._singly(run))
        due.drop(lot[:fetched])
        if not fetched:
            read = partial(read_due, self._ledger, lot, self._config.read_bytes_max)
            self._reads.begin(Position(*lot[0]), read, partial(self._take_due, due, lot))
        return fetched

    def _singly(self, run: Run) -> list[Run]:
        """The entries of a run that are not acknowledged, one by one."""
        ledger_id, first, last = run.ledger_id, run.first_entry_id, run.last_entry_id
        is_acked = self._cursor.is_acked
        return [run.slice(n, n) for n in range(first, last + 1) if not is_acked(ledger_id, n)]

    def _fetch_replay(self, entries_max: int) -> int:
        ledger_id, first, last = self._replay.first_range(entries_max)
        run = self._ledger.read_cached(
            Position(ledger_id, first), last - first + 1, self._config.read_bytes_max
        )
        if run is None:
            ledger_id, first, last = self._replay.first_window(entries_max, self._config.read_entries_max)
            self._start_read(Position(ledger_id, first), last - first + 1, replayed=True)
            return 0
        passing = self._passing(run)
        self._replay.discard_range(ledger_id, first, run.last_entry_id)
        self._replayed.extend(passing)
        return len(run.entries)

    def _unacked(self, run: Run) -> list[Run]:
        return [run.slice(first, last) for first, last in self._cursor.unacked_ranges(run)]

    def _read_on(self) -> None:
        """Behind the tail cache: the next read runs while the last one is delivered."""
        start = self._next_start()
        if start is not None and self._ledger.read_cached(start, 1, 1) is None:
            self._start_read(start, self._fresh_entries_max(start), replayed=False)

    def _start_read(self, start: Position, entries_max: int, *, replayed: bool) -> None:
        read = partial(self._ledger.read, start, entries_max, self._config.read_bytes_max)
        self._reads.begin(start, read, partial(self._take_read, start, entries_max, replayed))

    def _take_read(self, start: Position, entries_max: int, replayed: bool, result: ReadResult) -> int:
        self._skip(result.unreadable)
        if replayed:
            self._take_replayed(start, entries_max, result.runs)
        else:
            passing = [part for run in result.runs for part in self._passing(run)]
            self._read_after = Position(result.next.ledger_id, result.next.entry_id - 1)
            self._fresh.extend(passing)
        self._catching_up = not replayed
        return sum(run.byte_length for run in result.runs)

    def _take_due(self, due: DueEntries, lot: list[tuple[int, int]], result: DueRead) -> int:
        self._skip(result.unreadable)
        parts = [part for run in result.runs for part in self._singly(run)]
        due.drop(lot[: result.examined])
        self._replayed.extend(parts)
        return sum(run.byte_length for run in result.runs)

    def _skip(self, unreadable: list[Position]) -> None:
        for position in unreadable:
            self._cursor.ack(position.ledger_id, position.entry_id)

    def _release(self, byte_count: int) -> None:
        """So many bytes in memory, which may have been read ahead, are so no longer."""
        held = self._reads.held_bytes
        # When nothing is left, what was acknowledged meanwhile was never delivered either.
        self._reads.release(min(byte_count, held) if self._fresh or self._replayed else held)

    def _take_replayed(self, start: Position, entries: int, runs: list[Run]) -> None:
        """Only what was asked for: a read goes on past holes, or over others that lie between."""
        last_wanted = start.entry_id + entries - 1
        last_read = start.entry_id
        passing: list[Run] = []
        for run in runs:
            if run.ledger_id != start.ledger_id or run.first_entry_id > last_wanted:
                last_read = last_wanted
                break
            last_read = min(run.last_entry_id, last_wanted)
            for first, last in self._replay.ranges(run.ledger_id, run.first_entry_id, last_read):
                passing += self._passing(run.slice(first, last))
        # Entries up to here are delivered, or gone: acknowledged, trimmed or unreadable.
        self._replay.discard_range(start.ledger_id, start.entry_id, last_read if runs else last_wanted)
        self._replayed.extend(passing)
