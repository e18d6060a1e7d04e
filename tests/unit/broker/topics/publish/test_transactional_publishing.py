"""Publishing in transactions, over a ledger that obeys the test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.effective_policies import resolve
from magnetar.broker.stats import TopicStats
from magnetar.broker.topics.publish.pending_publish import send_receipts
from magnetar.broker.topics.publish.producer import Producer
from magnetar.broker.topics.publish.publish_gate import PublishLimits
from magnetar.broker.topics.publish.refusals import Refusals
from magnetar.broker.topics.publish.transactional_publishing import (
    TransactionalPublishing,
    transactions_are_off,
)
from magnetar.broker.topics.topic_state import TopicState
from magnetar.common.errors import LogFull
from magnetar.common.metadata.values import Policies
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.pulsar_pb2 import ServerError
from magnetar.ledger.ledger_store import RUN_TXN

from tests.unit.broker.topics.fakes import FakeClock, FakeLedger, FakePeer
from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, producer_of, sends

NONE = TxnId(0, 0)


@dataclass
class NoProducers:
    """Forgets producers."""

    removed: list[str] = field(default_factory=list)

    def remove(self, producer: Producer) -> None:
        self.removed.append(producer.name)


class Publishing:
    """The path of one topic with a client of a kind."""

    def __init__(self, *, enabled: bool = True, client: str = "Pulsar-Java-v4.0.7") -> None:
        state = TopicState(TopicName.parse("t"), resolve(BrokerConfig(), Policies(), Policies()))
        self.ledger = FakeLedger()
        self.stats = TopicStats()
        self.producers = NoProducers()
        refusals = Refusals(state, self.producers, None)  # type: ignore[arg-type]
        self.path = TransactionalPublishing(
            self.ledger,  # type: ignore[arg-type]
            refusals,
            self.stats,
            FakeClock(),
            enabled=enabled,
        )
        self.peer = FakePeer()
        self.producer = Producer(1, "p", 0, self.peer, {}, b"", 0, client_version=client)

    def publish(self, txn: TxnId, *entries: bytes, gate: Any = None) -> None:
        self.path.publish(txn, gate, None, self.producer, sends(*entries))


def test_a_run_carries_its_transaction_also_the_one_with_number_zero() -> None:
    topic = Publishing()
    topic.publish(NONE, b"a", b"b")
    ((run, _),) = topic.ledger.pending
    assert (run.txn, run.flags, run.entries) == (NONE, RUN_TXN, [b"a", b"b"])
    assert (topic.producer.pending_runs, topic.peer.pending_bytes) == (1, 2)
    assert topic.peer.answers == []
    send_receipts(topic.ledger.confirm(1), topic.stats, 0.0)
    assert topic.peer.answers == [(0, "stored"), (1, "stored")]
    assert (topic.producer.pending_runs, topic.peer.pending_bytes) == (0, 0)


@pytest.mark.parametrize("enabled", [True, False])
def test_messages_are_refused_one_by_one_where_transactions_are_off_or_theirs_is_over(enabled: bool) -> None:
    topic = Publishing(enabled=enabled)
    topic.ledger.over.add(NONE)
    topic.publish(NONE, b"a", b"b")
    assert topic.ledger.pending == []
    assert topic.peer.answers == [(0, "refused"), (1, "refused"), (-1, "closed")]
    assert topic.producers.removed == ["p"]
    assert (topic.producer.pending_runs, topic.peer.pending_bytes) == (0, 0)


def test_the_reason_names_the_setting_that_is_off() -> None:
    assert "transactionCoordinatorEnabled" in str(transactions_are_off())
    assert code_of(transactions_are_off()) == ServerError.NotAllowedError


def test_a_refusal_comes_after_the_receipts_of_what_was_sent_before_it() -> None:
    topic = Publishing()
    topic.publish(TxnId(0, 1), b"a")
    topic.ledger.over.add(TxnId(0, 1))
    topic.publish(TxnId(0, 1), b"b")
    assert topic.peer.answers == []
    send_receipts(topic.ledger.confirm(1), topic.stats, 0.0)
    assert topic.peer.answers == [(0, "stored"), (0, "refused"), (-1, "closed")]


def test_storage_that_refuses_is_an_error_that_clients_retry() -> None:
    topic = Publishing(client="other")
    topic.ledger.refusing = LogFull("full")
    topic.publish(NONE, b"a")
    assert topic.peer.answers == [(0, "refused"), (-1, "closed")]
    assert (topic.producer.pending_runs, topic.peer.pending_bytes) == (0, 0)


def test_the_messages_before_one_that_a_limit_refuses_are_published_in_the_transaction() -> None:
    topic = Publishing()
    policies = resolve(BrokerConfig(), Policies(max_message_bytes=10), Policies())
    gate = PublishLimits(BrokerConfig(), FakeClock()).gate(policies)
    assert gate is not None
    topic.publish(NONE, b"a", b"b" * 11, b"c", gate=gate)
    assert [(run.txn, run.entries) for run, _ in topic.ledger.pending] == [(NONE, [b"a"])]
    send_receipts(topic.ledger.confirm(1), topic.stats, 0.0)
    assert topic.peer.answers == [(0, "stored"), (1, "refused"), (-1, "closed")]


def test_a_topic_that_stores_nothing_takes_no_message_in_a_transaction() -> None:
    async def scenario(made: Topics) -> None:
        topic, peer = await made.load("non-persistent://public/default/t"), ListeningPeer()
        producer = await producer_of(topic, peer)
        topic.publishing.publish_in(NONE, producer, sends(b"a"))
        refused = next(each.send_error for each in peer.commands if each.HasField("send_error"))
        assert refused.error == ServerError.NotAllowedError
        assert "non-persistent" in refused.message

    in_a_broker(scenario)
