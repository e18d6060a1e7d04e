"""A client that sends again at will, in and out of transactions: what counts in the end is there once.

The client gives every message the next id. It commits a transaction after all answers, or aborts it at any time
and then sends its messages once more: in another transaction, or without one. Those below an id that was
persisted meanwhile would be lost, which the client knows and does not do.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
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
        self.sent: dict[int, TxnId | None] = {}
        """The transaction in which each message was sent last; None: in none."""
        self.txn_of_entry: list[TxnId | None] = []
        """By stored entry."""
        self.peers: list[tuple[FakePeer, list[int]]] = []
        self.connect()

    def connect(self) -> None:
        self.producer, self.peer = self.topic.producer()
        self.on_line: list[int] = []
        self.peers.append((self.peer, self.on_line))

    @property
    def answered(self) -> set[int]:
        return {number for number, _ in self.peer.answers}

    def send(self, ids: list[int], txn: TxnId | None) -> None:
        if ids:
            self.on_line += ids
            self.topic.send(self.producer, *ids, txn=txn)

    @rule(count=st.integers(1, 3), which=st.integers(0, 4))
    def send_new(self, count: int, which: int) -> None:
        """New messages: without a transaction, in a live one, or in a new one."""
        txn: TxnId | None = None
        if which >= 3 or (which and not self.live):
            txn, self.next_txn = TxnId(0, self.next_txn), self.next_txn + 1
            self.live.append(txn)
        elif which:
            txn = self.live[which % len(self.live)]
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        self.sent.update(dict.fromkeys(ids, txn))
        self.send(ids, txn)

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
        """A new connection, which sends what was not answered, each in the transaction that it was in."""
        missing = [number for number in self.on_line if number not in self.answered]
        self.peer.close("gone")
        self.take_all()
        self.connect()
        for number in dict.fromkeys(missing):
            txn = self.sent[number]
            if txn is None or txn in self.live:
                self.send([number], txn)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """A client commits when every message of the transaction is answered."""
        txn = data.draw(st.sampled_from(self.live))
        self.take_all()
        if {number for number, its in self.sent.items() if its == txn} <= self.answered_ever():
            self.end(txn, Action.COMMIT)

    def answered_ever(self) -> set[int]:
        return {number for peer, _ in self.peers for number, _ in peer.answers}

    @precondition(lambda self: self.live)
    @rule(data=st.data(), again=st.sampled_from(["not", "plain", "new"]))
    def abort(self, data: st.DataObject, again: str) -> None:
        txn = data.draw(st.sampled_from(self.live))
        self.take_all()
        self.end(txn, Action.ABORT)
        self.take_all()
        mine = [number for number, its in self.sent.items() if its == txn]
        persisted = self.topic.state.snapshot().producers.get("a")
        above = -1 if persisted is None else persisted.sequence_id
        later = [number for number in mine if number > above]
        for number in mine:
            del self.sent[number]
        if again == "not":
            return
        retry: TxnId | None = None
        if again == "new":
            retry, self.next_txn = TxnId(0, self.next_txn), self.next_txn + 1
            self.live.append(retry)
        self.sent.update(dict.fromkeys(later, retry))
        self.send(later, retry)

    def end(self, txn: TxnId, action: Action) -> None:
        self.live.remove(txn)
        self.outcomes[txn] = action
        self.topic.ledger.over.add(txn)
        self.topic.publishing.transaction_ended(txn, action)

    @invariant()
    def nothing_that_counts_is_stored_twice(self) -> None:
        if not hasattr(self, "topic"):
            return
        counting = [
            int(entry)
            for entry, txn in zip(self.topic.ledger.stored, self.txn_of_entry, strict=True)
            if txn is None or self.outcomes.get(txn) is not Action.ABORT
        ]
        assert len(counting) == len(set(counting)), counting

    @invariant()
    def answers_keep_the_order_of_the_sends(self) -> None:
        for peer, on_line in getattr(self, "peers", ()):
            assert [number for number, _ in peer.answers] == on_line[: len(peer.answers)]

    def teardown(self) -> None:
        if not hasattr(self, "topic"):
            return
        self.reconnect()
        self.take_all()
        for txn in list(self.live):
            self.end(txn, Action.COMMIT)
            self.take_all()
        assert (self.producer.pending_runs, self.peer.pending_bytes) == (0, 0), "all is answered in the end"
        kept = {
            int(entry)
            for entry, txn in zip(self.topic.ledger.stored, self.txn_of_entry, strict=True)
            if txn is None or self.outcomes[txn] is Action.COMMIT
        }
        assert set(self.sent) <= kept, "what was answered and committed is there"


TestPublishing = TransactionalPublishingMachine.TestCase
TestPublishing.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
