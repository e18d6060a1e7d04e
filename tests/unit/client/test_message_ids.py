"""Message ids: their order, and their bytes beside those of Pulsar's Python client."""

from __future__ import annotations

import pulsar
import pytest
from magnetar.client.errors import ClientError
from magnetar.client.messages import MessageId


@pytest.mark.parametrize(
    "message_id", [MessageId(5, 0), MessageId(5, 7, 2), MessageId(2**40, 9, -1, 3), MessageId(1, 2, 0, 0)]
)
def test_bytes_equal_those_of_pulsar_client(message_id: MessageId) -> None:
    theirs = pulsar.MessageId(
        message_id.partition, message_id.ledger_id, message_id.entry_id, message_id.batch_index
    )
    assert message_id.to_bytes() == theirs.serialize()
    assert MessageId.from_bytes(theirs.serialize()) == message_id
    assert str(pulsar.MessageId.deserialize(message_id.to_bytes())) == str(theirs)


def test_earliest_and_latest_are_those_of_pulsar_client() -> None:
    assert MessageId.from_bytes(pulsar.MessageId.earliest.serialize()) == MessageId.EARLIEST
    assert MessageId.from_bytes(pulsar.MessageId.latest.serialize()) == MessageId.LATEST
    assert MessageId.from_bytes(MessageId.EARLIEST.to_bytes()) == MessageId.EARLIEST


def test_a_chunked_message_keeps_its_first_chunk_and_a_batch_its_size() -> None:
    chunked = MessageId.from_bytes(MessageId(3, 8, first_chunk=MessageId(3, 4)).to_bytes())
    assert chunked.first_chunk == MessageId(3, 4)
    assert MessageId.from_bytes(MessageId(3, 8, 0, 1, 10).to_bytes()).batch_size == 10


def test_ids_are_ordered_as_messages() -> None:
    order = [
        MessageId.EARLIEST,
        MessageId(1, 9),
        MessageId(2, 0, -1, 0),
        MessageId(2, 0, -1, 1),
        MessageId(2, 1),
    ]
    order.append(MessageId.LATEST)
    shuffled = order[::-1]
    assert sorted(shuffled) == order


def test_other_bytes_are_refused() -> None:
    with pytest.raises(ClientError, match="invalid message id of 3 bytes"):
        MessageId.from_bytes(b"\xff\xff\xff")
