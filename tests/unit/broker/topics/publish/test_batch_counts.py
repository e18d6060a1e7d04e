"""A batch has as many messages as its metadata says, if its payload could hold them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from magnetar.broker.topics.publish.batch_counts import correct_counts
from magnetar.common.wire import pulsar_pb2 as pb

from tests.unit.broker.topics.world import sends


def entry(payload: bytes = b"", **metadata: Any) -> bytes:
    fields = {"producer_name": "p", "sequence_id": 1, "publish_time": 1, **metadata}
    header = pb.MessageMetadata(**fields).SerializeToString()
    return b"\x0e\x01" + b"\0\0\0\0" + struct.pack(">I", len(header)) + header + payload


def corrected(one: bytes, claimed: int) -> int | str:
    """The count of a batch that claims so many, or why it is refused."""
    run = sends(b"first", one, first=7, counts=[1, claimed])
    refused = correct_counts(run)
    assert run.message_counts is not None
    assert run.message_counts[0] == 1
    if not refused:
        return run.message_counts[1]
    assert list(refused) == [1]
    assert (refused[1].sequence_id, pb.ServerError.Name(refused[1].error)) == (8, "NotAllowedError")
    return refused[1].message


@pytest.mark.parametrize("claimed", [2, 10, 1_000_000])
def test_metadata_knows_better_than_the_send(claimed: int) -> None:
    assert corrected(entry(bytes(60), num_messages_in_batch=10), claimed) == 10
    assert corrected(entry(b"x"), claimed) == 1, "no batch at all"


@pytest.mark.parametrize("count", [0, -1, -(2**31), 11, 2**31 - 1])
def test_what_the_payload_cannot_hold_is_refused(count: int) -> None:
    assert "cannot hold" in str(corrected(entry(bytes(60), num_messages_in_batch=count), 10))


@pytest.mark.parametrize(
    "opaque",
    [
        {"compression": pb.LZ4, "uncompressed_size": 100_000},
        {"encryption_keys": [{"key": "k", "value": b"v"}]},
    ],
)
def test_what_cannot_be_looked_into_is_believed_within_the_bound(opaque: dict[str, Any]) -> None:
    assert corrected(entry(b"x", num_messages_in_batch=5_000, **opaque), 5_000) == 5_000
    assert "cannot hold" in str(corrected(entry(b"x", num_messages_in_batch=2**20 + 1, **opaque), 2))


@pytest.mark.parametrize("broken", [b"", b"\x0e\x01" + b"\xff" * 20, entry()[:12]])
def test_a_batch_without_readable_metadata_is_refused(broken: bytes) -> None:
    assert isinstance(corrected(broken, 2), str)
