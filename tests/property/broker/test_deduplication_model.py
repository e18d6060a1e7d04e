"""A client that sends again at will, over storage that fails: each message is there once, in order."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from magnetar.broker.client_endings import EndCode
from magnetar.broker.topics.publish.deduplication import DeduplicationState, Verdict
from magnetar.common.errors import LogFull
from magnetar.common.naming.position import EARLIEST
from magnetar.ledger.managed_ledger import DeduplicationSnapshot

from tests.examples import examples
from tests.unit.broker.topics.fakes import FakePeer, FakeTopic


class PublishingMachine(RuleBasedStateMachine):
    """One producer name. Its client gives every message the next id, and connects anew after a refusal."""

    @initialize()
    def start(self) -> None:
        self.topic = FakeTopic(snapshot_entries=1)
        self.next_id = 0
        self.peers: list[tuple[FakePeer, list[int]]] = []
        self.connect()

    def connect(self) -> None:
        """A new connection; a broker answers it only once nothing of its name is in flight."""
        assert not self.topic.state.in_flight("a")
        self.producer, self.peer = self.topic.producer()
        self.sent: list[int] = []
        self.peers.append((self.peer, self.sent))

    @property
    def acknowledged(self) -> set[int]:
        return {number for peer, _ in self.peers for number, how in peer.answers if how != "refused"}

    @property
    def refused(self) -> bool:
        return any(how == "refused" for _, how in self.peer.answers)

    def send(self, ids: list[int]) -> None:
        if ids:
            self.sent += ids
            self.topic.send(self.producer, *ids)

    @rule(count=st.integers(1, 4))
    def send_new(self, count: int) -> None:
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        self.send(ids)

    @precondition(lambda self: self.sent and not self.refused)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        """Copies of what was sent on this connection, perhaps with something new behind them."""
        ids = data.draw(st.lists(st.sampled_from(self.sent), min_size=1, max_size=5))
        if data.draw(st.booleans()):
            ids.append(self.next_id)
            self.next_id += 1
        self.send(ids)

    @rule(count=st.integers(1, 3))
    def confirm(self, count: int) -> None:
        self.topic.confirm(count)

    @rule(count=st.integers(1, 3))
    def refuse(self, count: int) -> None:
        self.topic.refuse(count)

    @rule(full=st.booleans())
    def fill_up(self, full: bool) -> None:
        self.topic.ledger.refusing = LogFull("full") if full else None

    @rule(fails=st.booleans())
    def reconnect(self, fails: bool) -> None:
        self.peer.close("gone", EndCode.BROKER_STOPPING)
        if fails:
            self.topic.refuse()
        else:
            self.topic.confirm()
        while self.topic.ledger.pending:
            self.topic.confirm()
        known = self.acknowledged
        self.connect()
        self.send([number for number in range(self.next_id) if number not in known])

    @invariant()
    def each_message_is_stored_once_and_in_order(self) -> None:
        stored = [int(data) for data in self.topic.ledger.stored]
        assert all(a < b for a, b in pairwise(stored)), stored
        assert self.acknowledged <= set(stored), "what is acknowledged is stored"

    @invariant()
    def answers_keep_the_order_of_the_sends(self) -> None:
        for peer, sent in self.peers:
            assert [number for number, _ in peer.answers] == sent[: len(peer.answers)]
        if not self.topic.ledger.pending:
            assert len(self.peer.answers) == len(self.sent), "everything is answered in the end"
            assert self.producer.pending_runs == self.peer.pending_bytes == 0

    def teardown(self) -> None:
        if not hasattr(self, "topic"):
            return
        self.topic.ledger.refusing = None
        self.reconnect(fails=False)
        while self.topic.ledger.pending:
            self.topic.confirm()
        assert self.topic.ledger.stored == [b"%d" % number for number in range(self.next_id)]


class JudgementMachine(RuleBasedStateMachine):
    """The state against lists of every id persisted and every id in flight."""

    @initialize()
    def start(self) -> None:
        self.state = DeduplicationState(
            DeduplicationSnapshot(EARLIEST), now_ms=0, producers_max=9, inactivity_ms=1, connected="ab"
        )
        self.persisted: dict[str, list[int]] = {"a": [], "b": []}
        self.in_flight: dict[str, list[int]] = {"a": [], "b": []}

    def expected(self, name: str, first: int) -> Verdict:
        if any(first <= other for other in self.persisted[name]):
            return Verdict.DUPLICATE
        if any(first <= other for other in self.in_flight[name]):
            return Verdict.IN_FLIGHT
        return Verdict.NEW

    @rule(
        name=st.sampled_from("ab"), ids=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), min_size=1)
    )
    def publish(self, name: str, ids: list[tuple[int, int]]) -> None:
        firsts, highests = [first for first, _ in ids], [first + more for first, more in ids]
        at = 0
        while at < len(ids):
            verdict, end = self.state.judge(name, firsts, highests, at)
            taken: list[int] = []
            for index in range(at, end):
                overlaps = any(firsts[index] <= other for other in taken)
                assert verdict is (Verdict.IN_FLIGHT if overlaps else self.expected(name, firsts[index]))
                if verdict is Verdict.NEW:
                    taken.append(highests[index])
            if verdict is Verdict.NEW:
                self.state.push(name, max(taken), 0)
                self.in_flight[name].append(max(taken))
            at = end

    @rule(name=st.sampled_from("ab"))
    def confirm(self, name: str) -> None:
        if self.in_flight[name]:
            self.persisted[name].append(self.in_flight[name].pop(0))
            self.state.confirm(name, 0)

    @rule(name=st.sampled_from("ab"))
    def refuse(self, name: str) -> None:
        if self.in_flight[name]:
            self.in_flight[name].pop()
            self.state.refuse(name)

    @invariant()
    def the_last_id_is_the_highest_persisted(self) -> None:
        for name, ids in self.persisted.items():
            assert self.state.last_sequence_id(name) == max(ids, default=-1)
            assert self.state.in_flight(name) == bool(self.in_flight[name])


TestPublishing = PublishingMachine.TestCase
TestPublishing.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
TestJudgement = JudgementMachine.TestCase
TestJudgement.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
