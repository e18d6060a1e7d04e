"""The delayed index against a sorted list: what is due comes in order, once, and nothing before its time.

Chunks are written, lost with the process or kept, loaded again; the reference is told only facts: what was
added, what was given out, what a restart may have forgotten.
"""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from magnetar.ledger.managed_ledger import delayed_index
from magnetar.ledger.managed_ledger.delayed_index import DelayedChunk, DelayedIndex

from tests.unit.ledger.managed_ledger.test_delayed_index import Disk

NOW = 1_795_000_000_000

DELAYS = st.sampled_from((0, 1, 50, 3_500, 9_000, 10**6))


def entries_of(index: DelayedIndex) -> set[tuple[int, int]]:
    return {(ledger, entry) for ledger in index.ledger_ids for entry in index.entries_of(ledger) or ()}


class DelayedIndexModel(RuleBasedStateMachine):
    """`facts` are the times of all entries ever seen, `held` those that must be in the index."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.index = DelayedIndex()
        self.disk = Disk()
        self.first_ledger = 1
        self.facts: dict[tuple[int, int], int] = {}
        self.held: set[tuple[int, int]] = set()
        self.pending: list[DelayedChunk] = []
        self.limits = patch.multiple(delayed_index, HEAP_ENTRIES_MAX=8, CHUNK_ENTRIES=3)
        self.limits.start()
        self.index._seal_at = 8

    def teardown(self) -> None:
        self.limits.stop()

    @rule(ledger=st.integers(0, 3), entry=st.integers(0, 40), delay=DELAYS)
    def an_entry_is_read(self, ledger: int, entry: int, delay: int) -> None:
        position = (self.first_ledger + ledger, entry)
        time_ms = self.facts.setdefault(position, self.now + delay)
        if time_ms > self.now:
            assert self.index.add(time_ms, *position) == (position not in self.held)
            self.held.add(position)

    @rule()
    def the_heap_is_sealed(self) -> None:
        self.pending += self.index.seal(self.now)

    @rule()
    def everything_is_sealed(self) -> None:
        self.pending += self.index.seal(self.now, everything=True)

    @precondition(lambda self: self.pending)
    @rule(count=st.integers(1, 3))
    def chunks_are_written(self, count: int) -> None:
        chunks, self.pending = self.pending[:count], self.pending[count:]
        self.disk.write([chunk for chunk in chunks if chunk in self.index.chunks()])

    @rule(passed=st.sampled_from((1, 60, 1_500, 4_000, 10**6)), lot=st.integers(1, 9))
    def time_passes(self, passed: int, lot: int) -> None:
        self.now += passed
        expected = sorted(
            (self.facts[position], *position) for position in self.held if self.facts[position] <= self.now
        )
        given: list[tuple[int, int]] = []
        while True:
            self.disk.load(self.index, self.now)
            due = self.index.take_due(self.now, lot)
            if not due:
                break
            given += due
        assert given == [(ledger, entry) for _, ledger, entry in expected]
        self.held -= set(given)

    @rule()
    def the_process_is_killed(self) -> None:
        written = self.disk.restored(self.now, set(range(self.first_ledger, self.first_ledger + 5)))
        known = entries_of(written)
        future = {position for position, time_ms in self.facts.items() if time_ms > self.now}
        assert known <= future, "what is not due, and nothing else"
        self.index, self.held, self.pending = written, known, []
        self.index._seal_at = 8

    @rule()
    def a_ledger_is_trimmed(self) -> None:
        self.first_ledger += 1
        self.index.trimmed(self.first_ledger)
        self.facts = {each: time for each, time in self.facts.items() if each[0] >= self.first_ledger}
        self.held = {each for each in self.held if each[0] >= self.first_ledger}

    @rule()
    def a_chunk_is_lost(self) -> None:
        forgotten = self.index.forget()
        assert {(ledger, entry) for ledger, ids in forgotten.items() for entry in ids} == self.held
        self.held, self.pending = set(), []
        self.disk.records.clear()

    @invariant()
    def the_index_holds_what_it_should(self) -> None:
        index = self.index
        assert entries_of(index) == self.held
        assert index.count == len(self.held)
        if self.held:
            earliest = min(self.facts[position] for position in self.held)
            next_due, next_event = index.next_due_ms, index.next_event_ms()
            assert next_due is not None
            assert next_event is not None
            assert max(next_due, next_event) <= earliest
        else:
            assert index.next_due_ms is None


TestDelayedIndex = DelayedIndexModel.TestCase
