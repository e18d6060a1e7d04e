"""Empty payloads are sent as they are, whatever the producer's compression."""

from __future__ import annotations

import pytest
from magnetar.client.messages import Outgoing
from magnetar.client.producer.entries import EntryEncoder, single_in_batch
from magnetar.common.wire.batch import parse_metadata
from magnetar.common.wire.frame import FrameDecoder
from magnetar.common.wire.pulsar_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD, CompressionType, MessageMetadata


def metadata_of(frame: bytes) -> MessageMetadata:
    (found,) = FrameDecoder().receive_data(frame)
    return parse_metadata(found.entry)


@pytest.mark.parametrize("kind", [LZ4, ZLIB, ZSTD, SNAPPY], ids=CompressionType.Name)
def test_nothing_is_not_compressed(kind: CompressionType.ValueType) -> None:
    """pulsar-client drops an empty payload in ZLIB as unreadable (`test_interoperation.py`)."""
    encoder = EntryEncoder(1, "p", kind, None)
    empty, full = Outgoing(b"", is_plain=True), Outgoing(b"m", is_plain=True)
    assert metadata_of(encoder.single(empty, 0, 1)).compression == NONE
    assert metadata_of(encoder.single(Outgoing(b"", key="k"), 0, 1)).compression == NONE
    assert metadata_of(encoder.chunks(empty, 0, 1, 1_000, "p-0")[0]).compression == NONE
    assert metadata_of(encoder.single(full, 0, 1)).compression == kind
    # A batch of empty messages is not empty: it has their metadata.
    parts = [single_in_batch(empty, 0), single_in_batch(empty, 1)]
    assert metadata_of(encoder.batch(parts, empty, 0, 1, 1)).compression == kind
