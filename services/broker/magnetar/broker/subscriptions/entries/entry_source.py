"""The source of a subscription's entries: first those to redeliver, then those after its read position.

A delivery pulls: `peek` returns entries from memory, or returns None and starts one read from storage, after
which `wake` is called. There is no waiting state that could be lost: every `peek` decides again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.reason import Reason
from magnetar.broker.subscriptions.config import DispatchConfig
from magnetar.broker.subscriptions.entries.aborted_entries import pass_aborted, settle
from magnetar.broker.subscriptions.entries.due_entries import DueEntries, DueRead, read_due
from magnetar.broker.subscriptions.entries.entry_reader import EntryReader
from magnetar.broker.subscriptions.entries.read_ahead import ReadAhead
from magnetar.broker.subscriptions.entries.replay_set import ReplaySet
from magnetar.broker.subscriptions.filters.entry_gate import EntryGate
from magnetar.broker.task_spawner import Spawn
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import RUN_CHUNK, RUN_MARKER, Run
from magnetar.ledger.managed_ledger.context import ReadResult
from magnetar.ledger.managed_ledger.cursor import Cursor
from magnetar.ledger.managed_ledger.managed_ledger import ManagedLedger
from pyroaring import BitMap

_DUE_ENTRIES_MAX = 128
"""Due entries fetched at a time."""

LOOKED_AT_ENTRIES = 1_000
"""Entries that `peek` may examine without delivering them before other tasks get the event loop."""

_GATED_ENTRIES = 100
"""Minimum number of entries for one call of the gates."""

_SPECIAL = RUN_CHUNK | RUN_MARKER
"""Flags of runs that are not delivered whole."""

_STRETCH_ENTRIES = 64
"""A read ends before a stretch of this many entries that need not be read."""


class EntrySource:
    """The entries of one subscription in delivery order, without those that its cursor has acknowledged."""

    __slots__ = (
        "_catching_up",
        "_config",
        "_cursor",
        "_due",
        "_fresh",
        "_kept",
        "_kept_came",
        "_ledger",
        "_read_after",
        "_reader",
        "_reads",
        "_replay",
        "_replayed",
        "_scheduler",
        "_wake",
        "gates",
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
        self._reader: EntryReader = ledger
        self._cursor = cursor
        self._config = config
        self._reads = ReadAhead(
            self, ledger.name, cursor.name, config.read_bytes_max, budget, spawn, wake, ledger.now_ms
        )
        self._catching_up = False
        self._wake = wake
        self._read_after = cursor.mark_delete
        self._fresh: deque[Run] = deque()
        self._replay = ReplaySet()
        self._replayed: deque[Run] = deque()
        self._due: DueEntries | None = None
        self._kept: Callable[[int], BitMap | None] | None = None
        """Returns the entries of a ledger that some gate holds back; None while there is no gate."""

        self._kept_came = False
        """True when a gate has released entries: entries after those in `_fresh` may already be delivered."""

        self._scheduler: EntryGate | None = None
        """The gate that releases entries when they are due; None without one."""

        self.gates: tuple[EntryGate, ...] = ()
        """The gates in the order of their calls, once for each run that was read."""

        self.in_order = False
        """True when entries are redelivered strictly in the order of the topic."""

        self.replays_only = False
        """True while only redeliveries are delivered, and nothing new is read."""

    @property
    def replaying(self) -> bool:
        """True while entries wait to be redelivered."""
        return bool(self._replay) or bool(self._replayed) or bool(self._due)

    @property
    def replays(self) -> int:
        """How many entries wait to be redelivered."""
        due = 0 if self._due is None else len(self._due)
        return len(self._replay) + sum([len(run.entries) for run in self._replayed]) + due

    @property
    def reading(self) -> bool:
        """True while a read from storage is in progress."""
        return self._reads.under_way

    @property
    def fetching(self) -> Reason | None:
        """The reason why the next entries are not in memory; None when they are, or there are none."""
        in_memory = self._replayed or (self._fresh and not (self._due or self._replay))
        return None if in_memory or self.exhausted() else self._reads.reason

    def exhausted(self) -> bool:
        """Returns whether there is nothing to deliver, to redeliver or to read now.

        Passes what is acknowledged or held back, as the next `peek` would.
        """
        return not self.replaying and not self._fresh and self._next_start() is None

    @property
    def read_position(self) -> Position:
        """The position up to which every entry was read or skipped."""
        return self._read_after

    def read_through(self, reader: EntryReader) -> None:
        """Reads through `reader` from now on; the caller rewinds, because what was read ahead stays."""
        self._reader = reader

    def rewind(self, position: Position) -> None:
        """Redelivers everything unacknowledged after `position`; drops what was read ahead."""
        self._reads.drop()
        self._read_after = position
        self._fresh.clear()
        self._replay.clear()
        self._replayed.clear()
        self._due = None
        self._kept_came = False
        for gate in self.gates:
            gate.clear()
        self._reads.release(self._reads.held_bytes)

    def close(self) -> None:
        """Stops reading; the result of a read under way is dropped."""
        for gate in self.gates:
            gate.clear()
        self._reads.close()

    def give_back(self) -> None:
        """Frees the memory of entries that were read ahead; they are read again when needed."""
        if self._reads.offered:
            self._put_back_all()

    def _put_back_all(self) -> None:
        self._replay_runs(self._replayed)
        if self._kept_came:
            # Later entries may already be delivered: continuing the read from here would deliver them twice.
            self._replay_runs(self._fresh)
        elif self._fresh:
            first = self._fresh[0]
            self._read_after = Position(first.ledger_id, first.first_entry_id - 1)
            self._fresh.clear()
            # A read ahead of these entries may be in progress; its entries must not be delivered before them.
            self._reads.drop()
        self._reads.release(self._reads.held_bytes)

    def _older_first(self) -> None:
        """Puts back entries that were read, if older ones were added meanwhile, for example by a negative
        acknowledgement.

        This costs at most one read and terminates: only a delivered entry can be acknowledged negatively.
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
        """Drops entries from the read-ahead that were acknowledged without being delivered."""
        before = sum(run.byte_length for runs in (self._fresh, self._replayed) for run in runs)
        self._fresh = deque([part for run in self._fresh for part in self._unacked(run)])
        self._replayed = deque([part for run in self._replayed for part in self._unacked(run)])
        after = sum(run.byte_length for runs in (self._fresh, self._replayed) for run in runs)
        if self._read_after < self._cursor.mark_delete:
            self._read_after = self._cursor.mark_delete
            self._reads.drop()
        self._release(before - after)

    def replay(self, ledger_id: int, entry_id: int) -> None:
        """Redelivers this entry before anything new."""
        self._replay.add(ledger_id, entry_id)

    def replay_all(self, entries: Iterable[tuple[int, int]]) -> None:
        """Redelivers these (ledger id, entry id), oldest first, before anything new."""
        for ledger_id, entry_id in entries:
            self._replay.add(ledger_id, entry_id)

    def deliver_due(self, entries: Iterable[tuple[int, int]]) -> None:
        """Delivers these entries, which the scheduling gate has held back, in this order, before everything
        else.
        """
        self._kept_came = True
        if self._due is None:
            self._due = DueEntries()
        if self._replay:
            entries = list(entries)
            for ledger_id, entry_id in entries:
                self._replay.discard_range(ledger_id, entry_id, entry_id)
        self._due.add(entries)

    def read_again(self, ledger_id: int, entry_ids: BitMap) -> None:
        """Passes these entries, which a gate has held back, to the gates again before anything new is
        delivered.
        """
        self._kept_came = True
        self._replay.add_all(ledger_id, entry_ids)

    def add_gate(self, gate: EntryGate, *, schedules: bool = False) -> None:
        """Adds a gate after the existing ones, for runs that are read from now on.

        `schedules`: the gate releases entries with `deliver_due` when they are due; those entries pass the
        other gates again, but not this one. A subscription has at most one such gate.
        """
        self._set_gates((*self.gates, gate))
        if schedules:
            self._scheduler = gate

    def remove_gate(self, gate: EntryGate) -> None:
        """Removes a gate; entries that it holds back are not delivered unless it releases them."""
        self._set_gates(tuple([each for each in self.gates if each is not gate]))
        if self._scheduler is gate:
            self._scheduler = None

    def _set_gates(self, gates: tuple[EntryGate, ...]) -> None:
        self.gates = gates
        if len(gates) == 1:
            # The usual case of one gate is called directly: each read would otherwise pay for a union.
            self._kept = gates[0].kept
        else:
            self._kept = self._kept_by_any if gates else None

    def ask_again(self) -> None:
        """Reads the read-ahead again, so that a newly added gate is applied to it."""
        self._put_back_all()

    def peek(self, entries_max: int) -> tuple[Run, bool] | None:
        """Returns the next entries as (run, whether it is a redelivery); None when none are in memory now.

        The run may hold more than `entries_max` entries; the caller takes a front part and calls `advance`.
        """
        if self.gates:
            # Where most entries are held back, small batches would take long.
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
        """Removes the first `entries` entries, which were delivered, from the run that `peek` returned."""
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
        """Takes whole runs in memory that fit, as `peek` and `advance` would one by one.

        Takes only new, ordinary entries: none while entries wait to be redelivered, and none from a chunk or
        a marker on. A single run may exceed `bytes_max`.
        """
        taken: list[Run] = []
        if self.replaying:
            return taken
        fresh = self._fresh
        size = 0
        while fresh and size < bytes_max:
            run = fresh[0]
            messages_max -= run.messages
            if run.flags & _SPECIAL or messages_max < 0:
                break
            taken.append(fresh.popleft())
            size += run.byte_length
        if taken:
            self._delivered(size)
        return taken

    def take_replayed(self, entries_max: int, bytes_max: int) -> tuple[int, list[Run]]:
        """Takes entries in memory that wait to be redelivered, each as its own run.

        Takes as many consecutive ones as fit, up to the first chunk or batch. Returns the number of entries
        taken, and the runs of those that are not acknowledged yet.
        """
        taken: list[Run] = []
        replayed, is_acked = self._replayed, self._cursor.is_acked
        passed = size = 0
        while replayed and len(taken) < entries_max and size < bytes_max:
            run = replayed[0]
            if run.flags & _SPECIAL or run.message_counts is not None or len(run.entries) > 1:
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
        """Moves entries after the read position into `_fresh`; returns how many were examined.

        Returns 0 when none are in memory, like the other `_fetch` methods.
        """
        start = self._next_start()
        if start is None:
            return 0
        run = self._reader.read_cached(start, entries_max, self._config.read_bytes_max)
        if run is None:
            self._start_read(start, self._fresh_entries_max(start), replayed=False)
            return 0
        passing = self._passing(run)
        self._catching_up = False
        self._read_after = Position(run.ledger_id, run.last_entry_id)
        self._fresh.extend(passing)
        return len(run.entries)

    def _next_start(self) -> Position | None:
        """Returns the next entry to read, which is neither acknowledged, aborted nor held back by a gate."""
        cursor, kept_entries, transactions = self._cursor, self._kept, self._ledger.transactions
        while (start := self._reader.next_position(self._read_after)) is not None:
            if transactions is not None:
                passed = pass_aborted(transactions, cursor, start)
                if passed is not None:
                    self._read_after = passed
                    continue
            kept = None if kept_entries is None else kept_entries(start.ledger_id)
            if kept is None and not cursor.has_holes:
                return start
            entry_id = cursor.next_unacked(start.ledger_id, start.entry_id, kept)
            if entry_id == start.entry_id:
                return start
            self._read_after = Position(start.ledger_id, entry_id - 1)
        return None

    def _kept_by_any(self, ledger_id: int) -> BitMap | None:
        """Returns the entries of a ledger that any gate would hold back; None when no gate reports any."""
        kept: BitMap | None = None
        for gate in self.gates:
            more = gate.kept(ledger_id)
            if more is not None:
                kept = more if kept is None else kept | more
        return kept

    def _fresh_entries_max(self, start: Position) -> int:
        """Returns how many entries to read from `start` on, stopping before a long stretch of held-back
        ones.
        """
        entries_max = self._config.read_entries_max
        kept = None if self._kept is None else self._kept(start.ledger_id)
        if kept is not None and kept.max() > start.entry_id:
            first = kept.next_set_bit(start.entry_id)
            if kept.contains_range(first, first + _STRETCH_ENTRIES):
                return min(entries_max, first - start.entry_id)
        return entries_max

    def _passing(self, run: Run) -> list[Run]:
        """Returns the parts of a run that may be delivered now."""
        parts = self._unacked(run)
        for gate in self.gates:
            parts = [part for each in parts for part in gate.hold(each)]
        return parts

    def _fetch_due(self, due: DueEntries) -> int:
        """Moves due entries into `_replayed`, each as a run."""
        lot = due.next(_DUE_ENTRIES_MAX)
        passing: list[Run] = []
        fetched = 0
        while fetched < len(lot):
            ledger_id, first = lot[fetched]
            count = 1
            while fetched + count < len(lot) and lot[fetched + count] == (ledger_id, first + count):
                count += 1
            run = self._reader.read_cached(Position(ledger_id, first), count, self._config.read_bytes_max)
            if run is None:
                break
            fetched += len(run.entries)
            passing += self._singly(run)
        due.drop(lot[:fetched])
        self._replayed.extend(passing)
        if not fetched:
            read = partial(read_due, self._reader, lot)
            self._reads.begin(Position(*lot[0]), read, partial(self._take_due, due, lot))
        return fetched

    def _singly(self, run: Run) -> list[Run]:
        """Returns the due entries of a run that may be delivered, one by one: the other gates apply to them,
        too.
        """
        ledger_id, first, last = run.ledger_id, run.first_entry_id, run.last_entry_id
        is_acked = self._cursor.is_acked
        parts = [run.slice(n, n) for n in range(first, last + 1) if not is_acked(ledger_id, n)]
        for gate in self.gates:
            if gate is not self._scheduler:
                parts = [part for each in parts for part in gate.hold(each)]
        return parts

    def _fetch_replay(self, entries_max: int) -> int:
        ledger_id, first, last = self._replay.first_range(entries_max)
        run = self._reader.read_cached(
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
        if run.txn is not None:
            settle(run, self._ledger.transactions, self._cursor)
        return [run.slice(first, last) for first, last in self._cursor.unacked_ranges(run)]

    def _read_on(self) -> None:
        """Starts the next read during the delivery of the last one, if entries are not in the tail cache."""
        start = self._next_start()
        if start is not None and self._reader.read_cached(start, 1, 1) is None:
            self._start_read(start, self._fresh_entries_max(start), replayed=False)

    def _start_read(self, start: Position, entries_max: int, *, replayed: bool) -> None:
        read = partial(self._reader.read, start, entries_max)
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
        """Releases `byte_count` bytes of memory, which may have been read ahead."""
        held = self._reads.held_bytes
        # When nothing is left, release everything: entries acknowledged meanwhile were never delivered.
        self._reads.release(min(byte_count, held) if self._fresh or self._replayed else held)

    def _take_replayed(self, start: Position, entries: int, runs: list[Run]) -> None:
        """Takes only requested entries: a read skips holes and includes entries in between."""
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
        # Entries up to here were taken, or do not exist: acknowledged, trimmed or unreadable.
        self._replay.discard_range(start.ledger_id, start.entry_id, last_read if runs else last_wanted)
        self._replayed.extend(passing)
