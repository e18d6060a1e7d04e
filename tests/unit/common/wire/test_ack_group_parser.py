from __future__ import annotations

import random

import pytest
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.ack_group_parser import KINDS_MAX, TRANSACTIONAL_ACKS_MAX
from magnetar.common.wire.connection import ServerConnection
from magnetar.common.wire.events import AckGroup, Command, TransactionalAcks

from tests.property.wire.strategies import ack_frame, ack_group_frame


def group_of(frame: bytes) -> AckGroup:
    (group,) = ServerConnection().receive_data(frame)
    assert isinstance(group, AckGroup)
    return group


@pytest.mark.parametrize("count", [1, 2, 1_000])
def test_every_id_is_read_whatever_the_lengths_beside_it(count: int) -> None:
    rng = random.Random(count)
    ids = [rng.choice((rng.randrange(128), rng.randrange(2**14), rng.randrange(2**28))) for _ in range(count)]
    group = group_of(ack_group_frame(7, [(3, entry_id) for entry_id in ids], request_id=300))
    assert (group.consumer_id, group.request_id) == (7, 300)
    assert {ledger_id: sorted(found) for ledger_id, found in group.entry_ids.items()} == {3: sorted(ids)}


def test_ids_of_several_ledgers_are_put_together_by_ledger() -> None:
    group = group_of(ack_group_frame(1, [(3, 5), (400, 6), (3, 7), (3, 800), (400, 6)]))
    assert group.request_id is None
    assert {ledger_id: sorted(found) for ledger_id, found in group.entry_ids.items()} == {
        3: [5, 7, 800],
        400: [6, 6],
    }


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(ack_group_frame(1, [(3, 5), (3, 2**28)]), id="an entry id of five bytes"),
        pytest.param(ack_group_frame(1, [(3, 5), (3, 6)], txnid_least_bits=1), id="half of a transaction id"),
        pytest.param(ack_group_frame(1, [(3, 5)], ack_type=1, request_id=1), id="cumulative"),
        pytest.param(ack_group_frame(1, [], request_id=1), id="no ids"),
        pytest.param(
            ack_group_frame(1, [(ledger_id, 5) for ledger_id in range(KINDS_MAX + 1)]), id="very many ledgers"
        ),
    ],
)
def test_unusual_encodings_are_left_to_protobuf(frame: bytes) -> None:
    (event,) = ServerConnection().receive_data(frame)
    assert isinstance(event, Command)


def in_txn(txn: TxnId, entry_id: int, consumer_id: int = 1) -> bytes:
    return ack_frame(
        consumer_id, 3, entry_id, txnid_most_bits=txn.most, txnid_least_bits=txn.least, request_id=entry_id
    )


def acks_in_transactions(frames: bytes) -> list[tuple[TxnId, int, list[int]]]:
    found = []
    for event in ServerConnection().receive_data(frames):
        assert isinstance(event, TransactionalAcks)
        assert len(event.commands) == len(event.request_ids)
        assert list(event.entry_ids[3]) == event.request_ids
        found.append((event.txn, event.consumer_id, event.request_ids))
    return found


def test_consecutive_acks_of_a_consumer_in_one_transaction_are_one_event() -> None:
    first, second = TxnId(0, 5), TxnId(2**40, 2**63)
    frames = [
        in_txn(first, 1),
        in_txn(first, 200),
        in_txn(second, 3),
        in_txn(second, 4, 2),
        in_txn(second, 5, 2),
    ]
    assert acks_in_transactions(b"".join(frames)) == [
        (first, 1, [1, 200]),
        (second, 1, [3]),
        (second, 2, [4, 5]),
    ]


def test_events_of_acks_in_a_transaction_are_bounded() -> None:
    txn = TxnId(1, 1)
    frames = b"".join(in_txn(txn, number) for number in range(TRANSACTIONAL_ACKS_MAX + 3))
    assert [len(ids) for _, _, ids in acks_in_transactions(frames)] == [TRANSACTIONAL_ACKS_MAX, 3]


def test_an_ack_of_several_entries_in_a_transaction_is_read_too() -> None:
    several = ack_group_frame(
        1, [(3, 5), (3, 6), (4, 7)], txnid_most_bits=0, txnid_least_bits=9, request_id=1
    )
    (event,) = ServerConnection().receive_data(in_txn(TxnId(0, 9), 2) + several)
    assert isinstance(event, TransactionalAcks)
    assert {ledger: sorted(ids) for ledger, ids in event.entry_ids.items()} == {3: [2, 5, 6], 4: [7]}
    assert event.request_ids == [2, 1]
