"""The ack state against a plain set: whatever happens, both say the same."""

from __future__ import annotations

from bisect import bisect_right

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.managed_ledger.ack_state import AckState
from magnetar.ledger.managed_ledger.cursor_records import ack_changes, read_acks
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, LedgerSpans

from tests.examples import examples

LEDGERS = st.integers(2, 9)
ENTRIES = st.integers(0, 14)
BATCH = 4


class AckStateMachine(RuleBasedStateMachine):
    """The model: existing positions in order, and the set of acknowledged ones."""

    @initialize(durable=st.booleans(), first=st.integers(-1, 3))
    def start(self, durable: bool, first: int) -> None:
        self.spans = LedgerSpans()
        self.entries: list[Position] = []
        self.removed = 0
        self.acked: set[Position] = set()
        self.bits: dict[Position, int] = {}
        self.counts: dict[Position, int] = {}
        self.start_at = Position(-1, first) if first < 0 else Position(2, -1)
        self.state = AckState(self.spans, self.start_at, durable=durable)
        # What a process that reads every flushed delta knows.
        self.twin = AckState(self.spans, self.start_at, durable=True)
        self.grow(2, 5)

    def grow(self, ledger_id: int, count: int) -> None:
        span = self.spans.by_id.get(ledger_id)
        if span is None:
            span = LedgerSpan(LedgerRef(ledger_id, 0), entries=count)
            self.spans.add(span)
            first = 0
        else:
            first = span.entries
            span.entries += count
        self.entries += [Position(ledger_id, first + number) for number in range(count)]

    @rule(count=st.integers(1, 5), next_ledger=st.booleans(), skip=st.integers(1, 2))
    def publish(self, count: int, next_ledger: bool, skip: int) -> None:
        last = self.spans.spans[-1].ref.id if self.spans.spans else 9
        if self.spans.spans and (not next_ledger or last >= 9):
            self.grow(last, count)
        elif last < 9:
            self.grow(last + skip, count)

    def exists(self, position: Position) -> bool:
        return position in self.entries

    def is_acked(self, position: Position) -> bool:
        return position in self.acked

    def forget(self, position: Position) -> None:
        self.acked.add(position)
        self.bits.pop(position, None)
        self.counts.pop(position, None)

    @rule(ledger=LEDGERS, entry=ENTRIES)
    def ack(self, ledger: int, entry: int) -> None:
        position = Position(ledger, entry)
        expected = self.exists(position) and not self.is_acked(position)
        assert self.state.ack(ledger, entry) is expected
        if expected:
            self.forget(position)

    @rule(ledger=LEDGERS, entries=st.lists(ENTRIES, min_size=1, max_size=14))
    def ack_many(self, ledger: int, entries: list[int]) -> None:
        wanted = {Position(ledger, entry) for entry in entries}
        new = [position for position in wanted if self.exists(position) and not self.is_acked(position)]
        assert self.state.ack_many(ledger, entries) == len(new)
        for position in new:
            self.forget(position)

    @rule(ledger=LEDGERS, first=st.integers(-2, 14), length=st.integers(0, 9))
    def ack_range(self, ledger: int, first: int, length: int) -> None:
        self.state.ack_range(ledger, first, first + length)
        for position in self.entries:
            if position.ledger_id == ledger and first <= position.entry_id <= first + length:
                self.forget(position)

    @rule(ledger=LEDGERS, entry=st.integers(-1, 20))
    def ack_cumulative(self, ledger: int, entry: int) -> None:
        self.state.ack_cumulative(Position(ledger, entry))
        for position in self.entries:
            if position <= (ledger, entry):
                self.forget(position)

    @rule(ledger=LEDGERS, entry=ENTRIES, bits=st.integers(0, (1 << BATCH) - 1))
    def ack_batch(self, ledger: int, entry: int, bits: int) -> None:
        position = Position(ledger, entry)
        completed = self.state.ack_batch(ledger, entry, bits, BATCH)
        if not self.exists(position) or self.is_acked(position):
            assert not completed
            return
        known = self.bits.get(position, 0) | bits
        assert completed is (known == (1 << BATCH) - 1)
        if completed:
            self.forget(position)
        elif known:
            self.bits[position] = known

    @rule(ledger=LEDGERS, entry=ENTRIES)
    def count_redelivery(self, ledger: int, entry: int) -> None:
        position = Position(ledger, entry)
        if self.exists(position) and not self.is_acked(position):
            self.counts[position] = self.counts.get(position, 0) + 1
            assert self.state.count_redelivery(ledger, entry) == self.counts[position]

    @precondition(lambda self: bool(self.entries))
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from([Position(self.entries[0].ledger_id, -1), *self.entries]))
        self.flush()
        self.state.replace(position)
        self.twin.replace(position)
        self.acked = {other for other in self.entries if other <= position}
        self.bits.clear()
        self.counts.clear()

    @precondition(lambda self: len(self.spans.spans) > 1)
    @rule()
    def trim(self) -> None:
        first = self.spans.spans[0]
        if self.state.mark_delete >= first.last_position:
            self.flush()
            self.spans.remove_first(1)
            self.entries = [position for position in self.entries if position.ledger_id != first.ref.id]

    @rule()
    def flush(self) -> None:
        """Through the bytes of change records, as recovery would read them."""
        for change in ack_changes(1, 1, self.state.take_changes()):
            self.twin.apply(read_acks(type(change).FromString(change.SerializeToString()).acks))
        if self.state.durable:
            assert not self.state._dirty

    @invariant()
    def says_what_the_model_says(self) -> None:
        unacked = [position for position in self.entries if position not in self.acked]
        assert self.state.backlog() == len(unacked)
        for position in self.entries:
            assert self.state.is_acked(*position) is self.is_acked(position)
            assert self.state.batch_acked(*position) == self.bits.get(position, 0)
            assert self.state.delivery_count(*position) == self.counts.get(position, 0)

    @invariant()
    def mark_delete_is_just_before_the_first_unacked_entry(self) -> None:
        mark = self.state.mark_delete
        at = bisect_right(self.entries, mark)
        assert all(position in self.acked for position in self.entries[:at])
        assert at == len(self.entries) or self.entries[at] not in self.acked
        holes = any(position in self.acked for position in self.entries[at:])
        assert self.state.has_holes is (holes or bool(self.bits))
        assert self.state.has_entry_state is bool(self.bits or self.counts)

    @invariant()
    def unacked_ranges_are_what_is_unacked(self) -> None:
        for span in self.spans.spans:
            run = Run([b""] * span.entries, ledger_id=span.ref.id, first_entry_id=0)
            listed = [
                Position(span.ref.id, entry_id)
                for first, last in self.state.unacked_ranges(run)
                for entry_id in range(first, last + 1)
            ]
            everything = [position for position in self.entries if position.ledger_id == span.ref.id]
            assert listed == [position for position in everything if position not in self.acked]

    def teardown(self) -> None:
        """What was flushed is all that is needed to come back to the same."""
        if not hasattr(self, "state") or not self.state.durable:
            return
        self.flush()
        self.twin.settle()
        assert self.twin.mark_delete == self.state.mark_delete
        assert self.twin.backlog() == self.state.backlog()
        for position in self.entries:
            assert self.twin.is_acked(*position) is self.is_acked(position)
            assert self.twin.batch_acked(*position) == self.bits.get(position, 0)
            assert self.twin.delivery_count(*position) == self.counts.get(position, 0)


TestAckStateModel = AckStateMachine.TestCase
TestAckStateModel.settings = settings(max_examples=examples(150), stateful_step_count=40)
