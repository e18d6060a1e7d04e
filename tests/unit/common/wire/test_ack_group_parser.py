from __future__ import annotations

import random

import pytest
from magnetar.common.wire.ack_group_parser import KINDS_MAX
from magnetar.common.wire.connection import ServerConnection
from magnetar.common.wire.events import AckGroup, Command

from tests.property.wire.strategies import ack_group_frame


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
        pytest.param(ack_group_frame(1, [(3, 5), (3, 6)], txnid_least_bits=1), id="a transaction"),
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
