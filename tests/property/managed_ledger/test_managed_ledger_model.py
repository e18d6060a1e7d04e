"""A whole managed ledger, on a simulated disk, against plain lists: whatever happens, both say the same.

Every process has a loop of its own; between two rules its time stands still. What was published and is not
confirmed, and acknowledgements that no flush has confirmed, may or may not survive a crash or a takeover;
afterwards the model takes over what is there.
"""

from __future__ import annotations

import asyncio

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from magnetar.common.errors import StorageError
from magnetar.common.naming.position import EARLIEST, LATEST, Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import Cursor, ManagedLedgerConfig

from tests.property.managed_ledger.owners import REACHED, Owners, as_entries
from tests.property.managed_ledger.reference import Acks, Entry, Subscription

SUBSCRIPTIONS = st.sampled_from(("one", "two", "three"))
BATCH = 4
WHICH = st.integers(-6, 30)
"""Which of the existing entries a position is near to, from the front or from the end."""
SHIFT = st.sampled_from((0, 0, 0, 0, 1, -1, 2, -3, 50))

RUNS = st.lists(st.integers(1, 4), min_size=1, max_size=4)
MESSAGES = st.sampled_from((1, 1, BATCH))
SIZE = st.sampled_from((0, 20, 700))


class ManagedLedgerMachine(Owners, RuleBasedStateMachine):
    """Rules are what a topic does with its managed ledger, and what happens to processes."""

    @initialize(
        ledger_entries=st.integers(3, 9),
        cache_bytes=st.sampled_from((0, 3_000, 1 << 20)),
        seed=st.integers(0, 99),
    )
    def start(self, ledger_entries: int, cache_bytes: int, seed: int) -> None:
        config = ManagedLedgerConfig(
            ledger_entries_max=ledger_entries,
            ledger_age_min_minutes=0,
            cursor_ledger_entries_max=6,
            cursor_ledger_bytes_min=400,
        )
        self.published = 0
        self.begin(config, cache_bytes, seed)
        self.act(self.create("one", EARLIEST, True))

    @rule(
        what=st.sampled_from(("restart in order", "crash", "crash", "kill", "takeover")),
        seed=st.integers(0, 999),
        delay_s=st.sampled_from((0.0, 0.001, 0.002, 0.004)),
    )
    def end_of_an_owner(self, what: str, seed: int, delay_s: float) -> None:
        self.act(asyncio.sleep(delay_s))
        if what == "restart in order":
            self.restart_in_order()
        elif what == "takeover":
            self.second_owner_takes_over()
        else:
            self.restart_after(what, seed)
        REACHED[what] += 1

    # Publishing and time

    @rule(runs=RUNS, messages=MESSAGES, size=SIZE)
    def publish(self, runs: list[int], messages: int, size: int) -> None:
        self.act(self.append(runs, messages, size))
        self.act(self.confirmed())

    @rule(runs=RUNS, messages=MESSAGES, size=SIZE)
    def publish_without_waiting(self, runs: list[int], messages: int, size: int) -> None:
        self.act(self.append(runs, messages, size))

    async def append(self, runs: list[int], messages: int, size: int) -> None:
        for count in runs:
            entries = [b"%d " % (self.published + number) + bytes(size) for number in range(count)]
            self.published += count
            self.model.on_their_way += [Entry(data, messages) for data in entries]
            self.ledger.append(
                Run(entries, message_counts=[messages] * count if messages > 1 else None), None
            )

    async def confirmed(self) -> None:
        for _ in range(1_000):
            if not self.model.on_their_way:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("what was published is confirmed after a while")

    @rule(seconds=st.sampled_from((0.001, 0.003, 0.02, 1.5)))
    def time_passes(self, seconds: float) -> None:
        self.act(asyncio.sleep(seconds))

    @rule()
    def hours_pass(self) -> None:
        """Ledgers grow too old."""
        self.act(asyncio.sleep(self.config.ledger_age_max_minutes * 60 + 1))
        assert not self.model.on_their_way

    # Subscriptions

    def near(self, which: int, shift: int) -> Position:
        """A position at or near an existing entry."""
        positions = self.model.positions
        if not positions:
            return Position(which, shift)
        ledger_id, entry_id = positions[max(which, -len(positions)) if which < 0 else which % len(positions)]
        return Position(ledger_id, entry_id + shift)

    def start_of(self, where: str, which: int) -> Position:
        return {"earliest": EARLIEST, "latest": LATEST}.get(where) or self.near(which, 0)

    @rule(
        name=SUBSCRIPTIONS,
        where=st.sampled_from(("earliest", "earliest", "latest", "near")),
        which=WHICH,
        durable=st.sampled_from((True, True, True, False)),
    )
    def subscribe(self, name: str, where: str, which: int, durable: bool) -> None:
        if name not in self.model.subscriptions:
            self.act(self.create(name, self.start_of(where, which), durable))

    async def create(self, name: str, position: Position, durable: bool) -> None:
        acks = Acks(self.model.acknowledged_up_to(position))
        if durable:
            await self.ledger.create_cursor(name, position, {"of": name})
        else:
            self.ledger.open_non_durable_cursor(name, position)
        self.model.subscriptions[name] = Subscription(durable, acks, acks.copy())

    @rule(name=SUBSCRIPTIONS)
    def unsubscribe(self, name: str) -> None:
        if self.model.subscriptions.pop(name, None):
            self.act(self.ledger.delete_cursor(name))

    @rule(name=SUBSCRIPTIONS, where=st.sampled_from(("earliest", "latest", "near")), which=WHICH)
    def seek(self, name: str, where: str, which: int) -> None:
        subscription = self.model.subscriptions.get(name)
        if subscription is not None:
            position = self.start_of(where, which)
            acks = Acks(self.model.acknowledged_up_to(position))
            # From here on trimming may go by what it was, then by what it is.
            self.model.subscriptions[name] = Subscription(subscription.durable_cursor, acks, acks.copy())
            self.act(self.ledger.reset_cursor(self.ledger.cursors[name], position))

    # Acknowledgements

    def chosen(self, name: str) -> tuple[Acks, Cursor] | None:
        subscription = self.model.subscriptions.get(name)
        return None if subscription is None else (subscription.asked, self.ledger.cursors[name])

    async def acknowledge(self, name: str, kind: str, at: Position, more: int) -> None:
        chosen = self.chosen(name)
        if chosen is None:
            return
        asked, cursor = chosen
        unacked = [each for each in self.model.positions if each not in asked.entries]
        if kind == "one":
            assert cursor.ack(*at) is (at in unacked)
            asked.acknowledge({at}.intersection(unacked))
        elif kind == "many":
            wanted = [at.entry_id + number * 2 for number in range(more * 3)]
            new = {Position(at.ledger_id, entry_id) for entry_id in wanted}.intersection(unacked)
            assert cursor.ack_many(at.ledger_id, wanted) == len(new)
            asked.acknowledge(new)
        elif kind == "range":
            cursor.ack_range(at.ledger_id, at.entry_id, at.entry_id + more)
            asked.acknowledge(each for each in unacked if at <= each <= (at.ledger_id, at.entry_id + more))
        elif kind == "cumulative":
            cursor.ack_cumulative(at)
            asked.acknowledge(self.model.up_to(at))
        elif kind == "batch":
            bits = asked.bits.get(at, 0) | more
            complete = bits == (1 << BATCH) - 1
            assert cursor.ack_batch(*at, more, BATCH) is (complete and at in unacked)
            if at in unacked and complete:
                asked.acknowledge([at])
            elif at in unacked:
                asked.bits[at] = bits
        elif at in unacked:
            asked.counts[at] = asked.counts.get(at, 0) + 1
            assert cursor.count_redelivery(*at) == asked.counts[at]

    @rule(name=SUBSCRIPTIONS, which=WHICH, shift=SHIFT)
    def ack_one(self, name: str, which: int, shift: int) -> None:
        self.act(self.acknowledge(name, "one", self.near(which, shift), 0))

    @rule(
        name=SUBSCRIPTIONS,
        kind=st.sampled_from(("many", "range", "redelivery")),
        which=WHICH,
        more=st.integers(1, 9),
    )
    def ack_more(self, name: str, kind: str, which: int, more: int) -> None:
        self.act(self.acknowledge(name, kind, self.near(which, 0), more))

    @rule(name=SUBSCRIPTIONS, which=WHICH, shift=SHIFT)
    def ack_cumulative(self, name: str, which: int, shift: int) -> None:
        self.act(self.acknowledge(name, "cumulative", self.near(which, shift), 0))

    @rule(name=SUBSCRIPTIONS, which=WHICH, bits=st.integers(1, (1 << BATCH) - 1))
    def ack_in_batch(self, name: str, which: int, bits: int) -> None:
        self.act(self.acknowledge(name, "batch", self.near(which, 0), bits))

    @rule(wait=st.booleans())
    def flush(self, wait: bool) -> None:
        self.act(self.flushed() if wait else self.flush_later())

    async def flush_later(self) -> asyncio.Future[StorageError | None]:
        listener = self.listener
        asked = [(sub, sub.asked.copy()) for sub in self.model.subscriptions.values()]
        confirmed: asyncio.Future[StorageError | None] = self.loop.create_future()

        def done(error: StorageError | None) -> None:
            if error is None and not listener.dead:
                for subscription, copy in asked:
                    subscription.durable = copy
            confirmed.set_result(error)

        self.ledger.flush_cursors(done)
        return confirmed

    async def flushed(self) -> None:
        assert await (await self.flush_later()) is None

    async def flushed_and_trimmed(self) -> None:
        await self.flushed()
        self.ledger.trim()
        await asyncio.sleep(1.0)

    @rule()
    def trim(self) -> None:
        """What nobody needs is gone soon after a flush, but for the last ledger."""
        self.act(self.flushed_and_trimmed())
        self.notice_trimming()
        oldest = self.model.ledger_ids()[:-1][:1]
        needed = {each.ledger_id for each in self.model.positions if self.model.needs(each)}
        assert needed.issuperset(oldest), f"ledger {oldest} is of no use and still there"

    # Reading

    @rule(
        which=WHICH,
        shift=SHIFT,
        entries_max=st.sampled_from((1, 3, 100)),
        bytes_max=st.sampled_from((1, 1_000, 1 << 20)),
    )
    def read(self, which: int, shift: int, entries_max: int, bytes_max: int) -> None:
        start = self.near(which, shift)
        existing = [entry for entry in self.model.entries if entry.position >= start]
        found = self.act(self.read_from(start, entries_max, bytes_max))
        self.notice_trimming()
        # What was trimmed meanwhile may have been read or not.
        while existing and existing[0] in self.model.gone and existing[:1] != found[:1]:
            del existing[0]
        assert found == existing[: len(found)]
        size = sum(len(entry.data) for entry in found)
        largest = max((len(entry.data) for entry in existing), default=0)
        assert len(found) <= entries_max
        assert size < bytes_max + largest
        if len(found) < min(entries_max, len(existing)):
            assert found, "at least one entry"
            assert size + len(existing[len(found)].data) > bytes_max, "less only for the limit of bytes"

    @rule(
        which=WHICH,
        shift=SHIFT,
        entries_max=st.integers(1, 5),
        bytes_max=st.sampled_from((1, 1_000, 1 << 20)),
    )
    def read_cached(self, which: int, shift: int, entries_max: int, bytes_max: int) -> None:
        start = self.ledger.next_position(self.near(which, shift))
        run = None if start is None else self.ledger.read_cached(start, entries_max, bytes_max)
        REACHED["miss" if run is None else "hit"] += 1
        if run is not None:
            found = as_entries(run)
            existing = [entry for entry in self.model.entries if entry.position >= (start or EARLIEST)]
            assert found == existing[: len(found)]
            assert 1 <= len(found) <= entries_max
            assert len(found) == 1 or run.byte_length <= bytes_max

    @rule(which=WHICH, shift=SHIFT)
    def find_by_time(self, which: int, shift: int) -> None:
        times = [entry.publish_time_ms for entry in self.model.entries] or [self.wall_ms]
        wanted = times[which % len(times)] + shift
        expected = self.model.before_publish_time(wanted)
        found = self.act(self.ledger.find_before_publish_time(wanted))
        self.notice_trimming()
        assert self.model.next_position(found) == self.model.next_position(expected)

    @rule(which=WHICH, shift=SHIFT, other=WHICH)
    def look_around(self, which: int, shift: int, other: int) -> None:
        at, to = self.near(which, shift), self.near(other, 0)
        assert self.ledger.next_position(at) == self.model.next_position(at)
        assert self.ledger.entries_between(at, to) == self.model.between(at, to)

    # What always holds

    @precondition(lambda self: hasattr(self, "listener"))
    @invariant()
    def topic_is_what_the_model_says(self) -> None:
        self.notice_trimming()
        model, ledger = self.model, self.ledger
        assert ledger.entries == len(model.entries)
        assert ledger.last_confirmed == model.last_position
        waiting = sum(entry.messages for entry in model.on_their_way)
        assert ledger.next_index == model.next_index + waiting

    @precondition(lambda self: hasattr(self, "listener"))
    @invariant()
    def cursors_are_what_the_model_says(self) -> None:
        self.notice_trimming()
        assert set(self.ledger.cursors) == set(self.model.subscriptions)
        positions = self.model.positions
        for name, subscription in self.model.subscriptions.items():
            cursor, asked = self.ledger.cursors[name], subscription.asked
            unacked = [position for position in positions if position not in asked.entries]
            assert cursor.backlog() == len(unacked)
            assert [position for position in positions if not cursor.is_acked(*position)] == unacked
            assert self.model.next_position(cursor.mark_delete) == (unacked[0] if unacked else None)
            for position in unacked:
                assert cursor.batch_acked(*position) == asked.bits.get(position, 0)
                assert cursor.delivery_count(*position) == asked.counts.get(position, 0)

    def teardown(self) -> None:
        if hasattr(self, "listener"):
            self.listener.dead = True
            self.end_process()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "examples",
    [100, pytest.param(300, marks=pytest.mark.full), pytest.param(1_000, marks=pytest.mark.nightly)],
)
def test_a_managed_ledger_is_what_the_model_says(examples: int) -> None:
    REACHED.clear()
    # Shrinking would take longer than a test may; what fails is fifty steps at most.
    phases = [Phase.explicit, Phase.generate]
    run_state_machine_as_test(
        ManagedLedgerMachine,
        settings=settings(max_examples=examples, stateful_step_count=50, phases=phases),
    )
    print("reached:", dict(REACHED))
    for what in (
        "restart in order",
        "crash",
        "kill",
        "takeover",
        "trimmed",
        "hit",
        "miss",
    ):
        assert REACHED[what], f"the rules never came to: {what}"
    if examples >= 300:  # too rare to be sure of it in fewer
        assert REACHED["lost"], "no entry was lost"
    if examples >= 1_000:  # too rare to be sure of it in fewer
        assert REACHED["recovered"], "no entry was found that nobody had been told of"
