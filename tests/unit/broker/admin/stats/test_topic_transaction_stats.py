"""Transactions of a topic as the admin API shows them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from magnetar.broker.admin.stats.topic_transaction_stats import (
    buffer_stats,
    in_buffer,
    in_pending_acks,
    pending_ack_stats,
    position_state,
    records_stats,
)
from magnetar.broker.topics.persistent_topic import PersistentTopic
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.ledger.managed_ledger.pending_acks import CursorPending, PendingAck
from pyroaring import BitMap

OPEN, ONLY_ACKS, COMMITTED, ABORTED, UNKNOWN = (TxnId(0, each) for each in range(5))


SUB: Any = SimpleNamespace(cursor=SimpleNamespace(mark_delete=Position(7, 0)))


class Transactions:
    """One open transaction with messages, one with acknowledgements alone, and two that ended."""

    def __init__(self) -> None:
        self.low_watermarks = {3: 17}
        self.open = {
            OPEN: SimpleNamespace(first_position=Position(7, 4)),
            ONLY_ACKS: SimpleNamespace(first_position=None),
        }
        self.ended = {Action.COMMIT: 1, Action.ABORT: 9}
        self.acks = CursorPending()

    def outcome(self, txn: TxnId) -> Action | None:
        return {COMMITTED: Action.COMMIT, ABORTED: Action.ABORT}.get(txn)

    def pending(self, cursor: object) -> CursorPending:
        return self.acks


def topic(transactions: Transactions | None) -> PersistentTopic:
    entries = [Position(7, each) for each in range(10)]
    ledger = SimpleNamespace(
        transactions=transactions,
        read_limit=lambda: Position(7, 3),
        cursor_records=Position(5, 11),
        spans=SimpleNamespace(floor=lambda at: max((each for each in entries if each <= at), default=None)),
    )
    found: Any = SimpleNamespace(
        name=TopicName.parse("persistent://acme/demo/t"),
        ledger=ledger,
    )
    return cast(PersistentTopic, found)


def test_a_topic_shows_its_limit_and_how_many_transactions_are_open_or_aborted() -> None:
    found = buffer_stats(topic(Transactions()), low_watermarks=False)
    assert found == {
        "state": "Ready",
        "maxReadPosition": "7:3",
        "lastSnapshotTimestamps": 0,
        "ongoingTxnSize": 2,
        "recoverStartTime": 0,
        "recoverEndTime": 0,
        "totalAbortedTransactions": 9,
        "snapshotType": "Single",
    }
    assert buffer_stats(topic(Transactions()), low_watermarks=True) == {**found, "lowWaterMarks": {"3": 17}}


def test_a_topic_that_never_had_any_says_so() -> None:
    found = buffer_stats(topic(None), low_watermarks=True)
    assert (found["state"], found["ongoingTxnSize"], found["lowWaterMarks"]) == ("NoSnapshot", 0, {})
    assert in_buffer(topic(None), OPEN) == {"aborted": False}
    assert pending_ack_stats(topic(None), SUB, low_watermarks=False)["state"] == "None"
    assert in_pending_acks(topic(None), SUB, OPEN) == {}
    assert position_state(topic(None), SUB, Position(7, 5), -1) == "NotInPendingAck"


@pytest.mark.parametrize(
    ("txn", "shown"),
    [
        (OPEN, {"startPosition": "7:4", "aborted": False}),
        (ONLY_ACKS, {"aborted": False}),
        (COMMITTED, {"aborted": False}),
        (ABORTED, {"aborted": True}),
        (UNKNOWN, {"aborted": False}),
    ],
)
def test_a_transaction_has_a_start_while_it_is_open_and_its_abort_after_it(
    txn: TxnId, shown: dict[str, object]
) -> None:
    assert in_buffer(topic(Transactions()), txn) == shown


def test_a_message_is_pending_by_its_entry_its_index_or_a_cumulative_position() -> None:
    transactions = Transactions()
    transactions.acks.add(OPEN, PendingAck({7: BitMap([6])}, {(7, 7): (0b100, 8)}))
    transactions.acks.add(ONLY_ACKS, PendingAck(cumulative=Position(7, 2)))
    of = topic(transactions)
    states = {entry: position_state(of, SUB, Position(7, entry), -1) for entry in range(11)}
    assert states == {
        0: "MarkDelete",
        1: "PendingAck",
        2: "PendingAck",
        3: "NotInPendingAck",
        4: "NotInPendingAck",
        5: "NotInPendingAck",
        6: "PendingAck",
        7: "PendingAck",
        8: "NotInPendingAck",
        9: "NotInPendingAck",
        10: "InvalidPosition",
    }
    assert position_state(of, SUB, Position(7, 7), 2) == "PendingAck"
    assert position_state(of, SUB, Position(7, 7), 1) == "NotInPendingAck"


def test_a_subscription_counts_the_transactions_that_acknowledge_in_it() -> None:
    transactions = Transactions()
    transactions.acks.add(OPEN, PendingAck({7: BitMap([6])}))
    transactions.acks.add(ONLY_ACKS, PendingAck(cumulative=Position(7, 2)))
    of = topic(transactions)
    found = pending_ack_stats(of, SUB, low_watermarks=True)
    assert (found["state"], found["ongoingTxnSize"], found["lowWaterMarks"]) == ("Ready", 2, {"3": 17})
    assert in_pending_acks(of, SUB, ONLY_ACKS) == {"cumulativeAckPosition": "7:2"}
    assert in_pending_acks(of, SUB, OPEN) == {}


def test_records_are_those_of_the_topics_cursor_ledger() -> None:
    found = records_stats(topic(None))
    assert found["managedLedgerName"] == "acme/demo/persistent/t/cursors"
    assert found["managedLedgerInternalStats"]["lastConfirmedEntry"] == "5:11"
