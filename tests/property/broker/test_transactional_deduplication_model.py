"""A client that sends again at will, in and out of transactions: what counts in the end is there once.

The client gives every message the next id. It sends copies in any transaction, or in none, whatever became
of the earlier ones, and loses connections. A copy in a committed transaction, or in none, is kept once;
only an id may be lost that is sent again behind a higher one that has another fate.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from magnetar.broker.client_endings import EndCode
from magnetar.common.naming.txn_id import Action, TxnId

from tests.unit.broker.topics.fakes import FakePeer, FakeTopic


class TransactionalPublishingMachine(RuleBasedStateMachine):
    """One producer name, over a ledger that confirms when it is told to."""

    @initialize()
    def start(self) -> None:
        self.topic = FakeTopic(snapshot_entries=1)
        self.next_id = self.next_txn = 0
        self.live: list[TxnId] = []
        self.outcomes: dict[TxnId, Action] = {}
        self.senders: dict[int, set[TxnId | None]] = {}
        """The transactions in which each message was sent, None for none; not those that refused it."""
        self.lost: set[int] = set()
        self.txn_of_entry: list[TxnId | None] = []
        """By stored entry."""
        self.peers: list[tuple[FakePeer, list[tuple[int, TxnId | None]]]] = []
        self.connect()

    def connect(self) -> None:
        self.producer, self.peer = self.topic.producer()
        self.on_line: list[tuple[int, TxnId | None]] = []
        self.peers.append((self.peer, self.on_line))

    def send(self, ids: list[int], txn: TxnId | None) -> None:
        for number in ids:
            earlier = self.senders.get(number)
            above = set[TxnId | None]().union(*(its for each, its in self.senders.items() if each > number))
            if earlier is not None and above - earlier:
                self.lost.add(number)  # a higher id was sent otherwise, and may be persisted without it
            self.on_line.append((number, txn))
            self.senders.setdefault(number, set()).add(txn)
        self.topic.send(self.producer, *ids, txn=txn)

    def some_txn(self, which: int) -> TxnId | None:
        """None, a live transaction, or a new one."""
        if which == 0:
            return None
        if which <= 2 and self.live:
            return self.live[which % len(self.live)]
        txn, self.next_txn = TxnId(0, self.next_txn), self.next_txn + 1
        self.live.append(txn)
        return txn

    @rule(count=st.integers(1, 3), which=st.integers(0, 4))
    def send_new(self, count: int, which: int) -> None:
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        self.send(ids, self.some_txn(which))

    @precondition(lambda self: self.senders)
    @rule(data=st.data(), which=st.integers(0, 3))
    def send_again(self, data: st.DataObject, which: int) -> None:
        """Copies, which are not answered before it is decided what became of the earlier ones."""
        first = data.draw(st.sampled_from(sorted(self.senders)))
        self.send(sorted(self.senders)[sorted(self.senders).index(first) :][:3], self.some_txn(which))

    @rule(count=st.integers(1, 3))
    def confirm(self, count: int) -> None:
        self.take(count)

    def take(self, count: int) -> None:
        self.txn_of_entry += [run.txn for run, _ in self.topic.ledger.pending[:count] for _ in run.entries]
        self.topic.confirm(count)

    def take_all(self) -> None:
        while self.topic.ledger.pending:
            self.take(1_000)

    @rule()
    def reconnect(self) -> None:
        """A new connection, which sends again what was not answered and may still be sent."""
        missing = self.on_line[len(self.peer.answers) :]
        self.peer.close("gone", EndCode.BROKER_STOPPING)
        self.take_all()
        self.connect()
        for number, txn in missing:
            if txn is None or txn in self.live:
                self.send([number], txn)
            else:
                self.senders[number].discard(txn)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), action=st.sampled_from(Action))
    def end(self, data: st.DataObject, action: Action) -> None:
        """Commits when all answers have come, as clients do; aborts at any time."""
        txn = data.draw(st.sampled_from(self.live))
        self.take_all()
        if action is Action.COMMIT and len(self.peer.answers) < len(self.on_line):
            return
        self.finish(txn, action)

    def finish(self, txn: TxnId, action: Action) -> None:
        self.live.remove(txn)
        self.outcomes[txn] = action
        self.topic.ledger.over.add(txn)
        refused = len(self.topic.not_allowed)
        self.topic.publishing.transaction_ended(txn, action)
        if len(self.topic.not_allowed) > refused:
            self.reconnect()

    def stored(self) -> list[tuple[int, TxnId | None]]:
        ledger = self.topic.ledger.stored
        return [(int(entry), txn) for entry, txn in zip(ledger, self.txn_of_entry, strict=True)]

    def may_count(self, txn: TxnId | None) -> bool:
        return txn in self.live or self.is_kept(txn)

    def is_kept(self, txn: TxnId | None) -> bool:
        return txn is None or self.outcomes.get(txn) is Action.COMMIT

    @invariant()
    def nothing_that_counts_is_stored_twice(self) -> None:
        if not hasattr(self, "topic"):
            return
        counting = [number for number, txn in self.stored() if self.may_count(txn)]
        assert len(counting) == len(set(counting)), counting

    @invariant()
    def answers_keep_the_order_of_the_sends(self) -> None:
        for peer, on_line in getattr(self, "peers", ()):
            sent = [number for number, _ in on_line]
            assert [number for number, _ in peer.answers] == sent[: len(peer.answers)]

    def teardown(self) -> None:
        if not hasattr(self, "topic"):
            return
        self.take_all()
        while self.live:
            done = len(self.peer.answers) == len(self.on_line)
            self.finish(self.live[0], Action.COMMIT if done else Action.ABORT)
            self.take_all()
        assert (self.producer.pending_runs, self.peer.pending_bytes) == (0, 0), "all is answered in the end"
        kept = {number for number, txn in self.stored() if self.is_kept(txn)}
        due = {number for number, txns in self.senders.items() if any(map(self.is_kept, txns))}
        assert due - self.lost <= kept, "what was committed is there"


TestPublishing = TransactionalPublishingMachine.TestCase
TestPublishing.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
