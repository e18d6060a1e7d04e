"""Transactions in one topic: what was promised about them, and a comparison of a loaded topic with that.

The model is naive: it knows what was requested and what was confirmed. Whatever was requested and not
confirmed may have happened or not; what a load shows of it is a promise from then on.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

from magnetar.common.errors import (
    InvalidTxnStatus,
    MagnetarError,
    StorageError,
    TopicNotFound,
    TransactionConflict,
    TransactionNotAllowed,
)
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import (
    EntryCache,
    ManagedLedgerConfig,
    ManagedLedgerContext,
    open_managed_ledger,
)
from magnetar.ledger.managed_ledger.pending_acks import PendingAck
from pyroaring import BitMap

from tests.simulation.killed import kill
from tests.simulation.managed_ledger_workload import CONFIG, TOPIC
from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import until

SHARED, ORDERED = "shared", "ordered"
COORDINATORS = 2
OPEN_MAX = 4


@dataclass(slots=True)
class Acks:
    """Acknowledgements of a transaction: individual ones in the one subscription, a position in the other."""

    requested: set[Position] = field(default_factory=set)
    confirmed: set[Position] = field(default_factory=set)
    up_to: Position = EARLIEST
    """The highest confirmed cumulative position; EARLIEST without one."""
    up_to_requested: Position = EARLIEST

    def copy(self) -> Acks:
        return replace(self, requested=set(self.requested), confirmed=set(self.confirmed))


@dataclass(slots=True)
class Promises:
    """Requests to a topic, and what was confirmed of them."""

    created: bool = False
    entries: dict[Position, tuple[int, TxnId | None]] = field(default_factory=dict)
    """Confirmed entries: (number, transaction)."""
    published: dict[int, TxnId | None] = field(default_factory=dict)
    ending: dict[TxnId, Action] = field(default_factory=dict)
    """Ends that were requested, whether confirmed or not: a coordinator never changes its mind."""
    ended: set[TxnId] = field(default_factory=set)
    acks: dict[TxnId, Acks] = field(default_factory=dict)
    acked: set[Position] = field(default_factory=set)
    """Plain acknowledgements in the shared subscription that were confirmed."""
    acked_requested: set[Position] = field(default_factory=set)
    next_number: int = 0
    next_least: list[int] = field(default_factory=lambda: [0] * COORDINATORS)

    def copy(self) -> Promises:
        return replace(
            self,
            entries=dict(self.entries),
            published=dict(self.published),
            ending=dict(self.ending),
            ended=set(self.ended),
            acks={txn: acks.copy() for txn, acks in self.acks.items()},
            acked=set(self.acked),
            acked_requested=set(self.acked_requested),
            next_least=list(self.next_least),
        )

    @property
    def live(self) -> list[TxnId]:
        """Transactions that were begun and not told to end."""
        begun = [TxnId(most, least) for most, end in enumerate(self.next_least) for least in range(end)]
        return [txn for txn in begun if txn not in self.ending]

    def low_watermark(self, most: int) -> int:
        """The number up to which everything of a coordinator is confirmed everywhere."""
        number = 0
        while TxnId(most, number) in self.ended:
            number += 1
        return number - 1


class Topic:
    """A loaded topic that notes promises as they are made; its listener."""

    def __init__(self, promises: Promises, config: ManagedLedgerConfig) -> None:
        self.promises = promises
        self.lost = False
        self._config = config

    async def load(self, process: Process, *, create: bool) -> None:
        store = await process.open_store()
        cache = EntryCache(1 << 20)
        ctx = ManagedLedgerContext(store, process.metadata, KEYS, process.clock, self._config, cache)
        self.ledger = await open_managed_ledger(ctx, TOPIC, self, create=create, properties={})

    def on_confirmed(self, publishes: list[tuple[Run, object]]) -> None:
        for run, _ in publishes:
            for offset, data in enumerate(run.entries):
                number = int(data)
                position = Position(run.ledger_id, run.first_entry_id + offset)
                assert run.txn == self.promises.published[number], "runs keep their transaction"
                self.promises.entries[position] = number, run.txn
        self.check_limit()

    def check_limit(self) -> None:
        """Nothing of an open transaction may be readable at any moment."""
        limit, transactions = self.ledger.read_limit(), self.ledger.transactions
        if transactions is None:
            return
        for txn, opened in transactions.open.items():
            first = opened.first_position
            assert first is None or limit < first, f"{limit} is readable, and {txn} begins at {first}"

    def on_refused(self, publishes: list[tuple[Run, object]], error: StorageError) -> None:
        raise AssertionError("the disk has no errors")

    def on_lost(self, error: StorageError) -> None:
        raise AssertionError("there is one owner")

    def publish(self, txn: TxnId | None, count: int) -> None:
        promises = self.promises
        first = promises.next_number
        promises.next_number += count
        numbers = range(first, first + count)
        promises.published.update(dict.fromkeys(numbers, txn))
        if txn is not None:
            self.ledger.use_transactions()
        self.ledger.append(Run([b"%d" % number for number in numbers], txn=txn), None)

    async def end(self, txn: TxnId, action: Action) -> None:
        promises = self.promises
        assert promises.ending.setdefault(txn, action) is action
        done: asyncio.Future[MagnetarError | None] = asyncio.get_running_loop().create_future()

        def on_done(error: MagnetarError | None) -> None:
            if error is None:
                promises.ended.add(txn)
            if not done.done():
                done.set_result(error)

        self.ledger.use_transactions().end(txn, action, promises.low_watermark(txn.most), on_done)
        error = await done
        assert error is None or self.lost, error

    def ack(self, txn: TxnId, positions: set[Position]) -> None:
        acks = self.promises.acks.setdefault(txn, Acks())
        individual: dict[int, BitMap] = {}
        for position in positions:
            individual.setdefault(position.ledger_id, BitMap()).add(position.entry_id)

        def done(error: MagnetarError | None) -> None:
            if error is None:
                acks.confirmed |= positions

        pending = PendingAck(individual=individual)
        self.ledger.use_transactions().ack(txn, self.ledger.cursors[SHARED], pending, done)
        acks.requested |= positions

    def ack_up_to(self, txn: TxnId, position: Position) -> None:
        acks = self.promises.acks.setdefault(txn, Acks())

        def done(error: MagnetarError | None) -> None:
            if error is None:
                acks.up_to = max(acks.up_to, position)

        pending = PendingAck(cumulative=position)
        self.ledger.use_transactions().ack(txn, self.ledger.cursors[ORDERED], pending, done)
        acks.up_to_requested = max(acks.up_to_requested, position)

    def ack_plainly(self, position: Position) -> None:
        promises = self.promises
        promises.acked_requested.add(position)
        self.ledger.cursors[SHARED].ack(*position)

        def done(error: StorageError | None) -> None:
            if error is None:
                promises.acked.add(position)

        self.ledger.flush_cursors(done)

    # Comparison

    async def stored(self) -> list[tuple[Position, int]]:
        """Returns all entries, in order, with their numbers."""
        found: list[tuple[Position, int]] = []
        ledger = self.ledger
        at = ledger.next_stored(EARLIEST)
        while at is not None:
            result = await ledger.read(at, 50, 10_000, uncommitted=True)
            for run in result.runs:
                for offset, data in enumerate(run.entries):
                    found.append((Position(run.ledger_id, run.first_entry_id + offset), int(data)))
            at = ledger.next_stored(found[-1][0])
        return found

    async def visible(self) -> list[Position]:
        """Returns what a consumer gets."""
        found: list[Position] = []
        ledger, transactions = self.ledger, self.ledger.use_transactions()
        at = ledger.next_position(EARLIEST)
        while at is not None:
            result = await ledger.read(at, 50, 10_000)
            for run in result.runs:
                positions = [Position(run.ledger_id, run.first_entry_id + n) for n in range(len(run.entries))]
                found += [each for each in positions if not transactions.is_aborted(*each)]
            at = ledger.next_position(Position(result.next.ledger_id, result.next.entry_id - 1))
        return found

    async def compare(self) -> None:
        """Compares what the topic shows with the promises; notes what it shows as a promise."""
        # Otherwise more is confirmed while it is read.
        await until(lambda: not self.ledger.writes.pending_entries)
        promises, transactions = self.promises, self.ledger.use_transactions()
        stored = await self.stored()
        positions = dict(stored)
        for position, (number, _) in promises.entries.items():
            assert positions.get(position) == number, f"{number} was confirmed at {position} and is gone"
        numbers = [number for _, number in stored]
        assert numbers == sorted(set(numbers)), "in order of publishing, once each"
        aborted = set()
        in_topic = {txn for number in numbers if (txn := promises.published[number]) is not None}
        for txn in sorted(in_topic | set(promises.acks)):
            if self._is_over(txn, in_topic) and promises.ending[txn] is Action.ABORT:
                aborted.add(txn)
        expected: list[Position] = []
        for position, number in stored:
            owner = promises.published[number]
            if owner is not None and owner in transactions.open:
                break
            if owner not in aborted:
                expected.append(position)
        visible = await self.visible()
        assert visible == expected, f"{visible} is visible instead of {expected}"
        last = transactions.last_readable()
        assert last.entry_id < 0 if not expected else last == expected[-1], f"{last} is the last readable one"
        self.check_limit()
        self._compare_acks()
        promises.entries = {position: (number, promises.published[number]) for position, number in stored}

    def _is_over(self, txn: TxnId, in_topic: set[TxnId]) -> bool:
        promises, transactions = self.promises, self.ledger.use_transactions()
        is_open = txn in transactions.open
        if txn in promises.ended:
            assert not is_open, f"the end of {txn} was confirmed, and it is open"
            return True
        if is_open or txn not in promises.ending:
            assert is_open or txn not in in_topic, f"{txn} was not told to end, and is not open"
            return False
        outcome = transactions.outcome(txn)
        assert outcome in (None, promises.ending[txn]), f"{txn} ended by {outcome}"
        if outcome is None:
            assert txn not in in_topic, f"{txn} is neither open nor over"
            return False
        promises.ended.add(txn)
        return True

    def _compare_acks(self) -> None:
        promises, transactions = self.promises, self.ledger.use_transactions()
        shared, ordered = self.ledger.cursors[SHARED], self.ledger.cursors[ORDERED]
        pending, ordered_pending = transactions.pending(shared), transactions.pending(ordered)
        sure, possible = set(promises.acked), set(promises.acked_requested)
        sure_to = possible_to = EARLIEST
        for txn, acks in promises.acks.items():
            if promises.ending.get(txn) is Action.COMMIT:
                possible |= acks.requested
                possible_to = max(possible_to, acks.up_to_requested)
                if txn in promises.ended:
                    sure |= acks.confirmed
                    sure_to = max(sure_to, acks.up_to)
            if txn not in promises.ending:
                for position in acks.confirmed:
                    assert pending is not None, "acknowledgements are pending"
                    assert pending.holds(position), f"{position} is pending by {txn}"
                if acks.up_to > EARLIEST:
                    assert ordered_pending is not None, "a cumulative acknowledgement is pending"
                    assert ordered_pending.cumulative is not None
                    assert ordered_pending.cumulative[0] == txn
                    assert ordered_pending.cumulative[1] >= acks.up_to
            elif txn in promises.ended:
                left = [] if pending is None else list(pending.transactions)
                assert txn not in left, f"{txn} is over, and its acknowledgements are pending"
        for position in promises.entries:
            is_acked = shared.is_acked(*position)
            assert is_acked or position not in sure, f"{position} was acknowledged"
            assert not is_acked or position in possible, f"{position} was never acknowledged"
        assert sure_to <= max(ordered.mark_delete, sure_to if not promises.entries else EARLIEST)
        assert ordered.mark_delete <= max(possible_to, self.ledger.first_position())

    async def finish(self) -> None:
        """Ends everything as coordinators would, and has outcomes refuse what comes too late."""
        promises = self.promises
        for txn in promises.live:
            promises.ending[txn] = Action.ABORT
        for txn, action in promises.ending.items():
            await self.end(txn, action)
            late = Run([b"0"], txn=txn)
            refused = False
            try:
                self.ledger.append(late, None)
            except TransactionNotAllowed:
                refused = True
            assert refused, f"{txn} is over, and takes messages"
            await self._refuse_the_other(txn, action)
        assert not self.ledger.use_transactions().open
        assert self.ledger.read_limit() == self.ledger.last_confirmed

    async def _refuse_the_other(self, txn: TxnId, action: Action) -> None:
        other = Action.ABORT if action is Action.COMMIT else Action.COMMIT
        done: asyncio.Future[MagnetarError | None] = asyncio.get_running_loop().create_future()
        transactions = self.ledger.use_transactions()
        transactions.end(txn, other, -1, done.set_result)
        error = await done
        assert isinstance(error, InvalidTxnStatus) or transactions.outcome(txn) is None

    def check_conflict(self, txn: TxnId, positions: set[Position]) -> None:
        """Checks that an acknowledgement was refused for a reason that the model knows, too."""
        promises, cursor = self.promises, self.ledger.cursors[SHARED]
        taken = {each for each in positions if cursor.is_acked(*each)}
        for other, acks in promises.acks.items():
            if other != txn and other not in promises.ended:
                taken |= acks.requested
        assert taken & positions, f"{txn} may acknowledge {positions}"

    def check_cumulative_conflict(self, txn: TxnId, position: Position) -> None:
        """Checks the same for a cumulative acknowledgement."""
        promises, cursor = self.promises, self.ledger.cursors[ORDERED]
        others = [acks.up_to_requested for other, acks in promises.acks.items() if other != txn]
        own = promises.acks[txn].up_to_requested if txn in promises.acks else EARLIEST
        known = position <= cursor.mark_delete or position < own or any(each > EARLIEST for each in others)
        assert known, f"{txn} may acknowledge up to {position}"


async def prepare(topic: Topic) -> None:
    """Creates the subscriptions of a new topic, one of which keeps everything."""
    for name in (SHARED, ORDERED, "keeper"):
        await topic.ledger.create_cursor(name, EARLIEST, {})
    topic.promises.created = True


@dataclass(slots=True)
class TransactionWorkload:
    """Publishes, acknowledges and ends at random; the process dies in the middle.

    With even seeds cursor ledgers are not replaced by themselves. With multiples of 4 the first
    transaction comes after the death.
    """

    seed: int
    steps: int = 30
    promises: Promises = field(default_factory=Promises)
    conflicts: int = 0

    @property
    def config(self) -> ManagedLedgerConfig:
        return CONFIG if self.seed % 2 else replace(CONFIG, cursor_ledger_entries_max=1_000)

    def fork(self) -> TransactionWorkload:
        return replace(self, promises=self.promises.copy())

    async def run(self, process: Process) -> None:
        rng = random.Random(self.seed)
        topic = Topic(self.promises, self.config)
        await topic.load(process, create=True)
        await prepare(topic)
        ends: list[asyncio.Task[None]] = []
        for step in range(self.steps):
            if self.seed % 4 or step > self.steps // 2:
                ends += self.act(rng, topic)
            else:
                topic.publish(None, rng.randrange(1, 4))
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.01, 0.03, 6)))
            if step == self.steps // 2:
                topic.lost = True
                kill(process, topic.ledger)
                await asyncio.gather(*ends)
                ends = []
                topic = Topic(self.promises, self.config)
                await topic.load(process, create=False)
                await topic.compare()
        await asyncio.gather(*ends)
        await topic.compare()
        await topic.ledger.close()

    def act(self, rng: random.Random, topic: Topic) -> list[asyncio.Task[None]]:
        """Does something; returns ends that were begun."""
        promises, live = self.promises, self.promises.live
        what = rng.random()
        if what < 0.25 and len(live) < OPEN_MAX:
            most = rng.randrange(COORDINATORS)
            txn = TxnId(most, promises.next_least[most])
            promises.next_least[most] += 1
            if rng.random() < 0.8:
                topic.publish(txn, rng.randrange(1, 4))
        elif what < 0.5:
            topic.publish(rng.choice([None, *live]), rng.randrange(1, 4))
        elif what < 0.7 and live:
            action = rng.choice((Action.COMMIT, Action.COMMIT, Action.ABORT))
            return [asyncio.create_task(topic.end(rng.choice(live), action))]
        elif what < 0.95 and live and promises.entries:
            self._acknowledge(rng, topic, rng.choice(live))
        elif promises.entries:
            topic.ack_plainly(rng.choice(list(promises.entries)))
        return []

    def _acknowledge(self, rng: random.Random, topic: Topic, txn: TxnId) -> None:
        positions = list(self.promises.entries)
        try:
            if rng.random() < 0.7:
                topic.ack(txn, set(rng.sample(positions, min(len(positions), 2))))
            else:
                topic.ack_up_to(txn, rng.choice(positions))
        except TransactionConflict:
            self.conflicts += 1

    async def check(self, process: Process) -> None:
        topic = Topic(self.promises, self.config)
        try:
            await topic.load(process, create=False)
        except TopicNotFound:
            assert not self.promises.created, "the topic is gone"
            return
        if not self.promises.created:
            return
        await topic.compare()
        await topic.finish()
        await topic.compare()
