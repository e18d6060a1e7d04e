from __future__ import annotations

import base64
from binascii import Error as InvalidBase64
from typing import Any

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.dispatch.key_shared.sticky_key import NO_KEY, slot_of_key, slots_of, sticky_key
from magnetar.common.wire.pulsar_pb2 import CompressionType, MessageMetadata

BODY = b"payload"


def entry_of(metadata: bytes, payload: bytes = BODY) -> bytes:
    return b"\x0e\x01\x00\x00\x00\x00" + len(metadata).to_bytes(4, "big") + metadata + payload


def metadata_of(**fields: Any) -> MessageMetadata:
    return MessageMetadata(
        **{"producer_name": "p-0", "sequence_id": 7, "publish_time": 1_790_000_000_000, **fields}
    )


def key_of(**fields: Any) -> bytes:
    entry = entry_of(metadata_of(**fields).SerializeToString())
    key = sticky_key(entry)
    assert slots_of([entry]) == [slot_of_key(key)], "both ways of reading agree"
    return key


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("Order-3459134", 3112179635),
        ("orders-aggregator-pod-2345-consumer1", 1003084738),
        ("orders-aggregator-pod-2345-consumer2", 373317202),
        ("orders-aggregator-pod-2345-consumer100", 320276078),
    ],
)
def test_slots_are_murmur3_as_in_pulsars_own_vectors(text: str, hashed: int) -> None:
    assert mmh3.mmh3_32_uintdigest(text.encode()) == hashed
    assert slot_of_key(text.encode()) == hashed % 65_536
    assert slot_of_key(text.encode()) == (hashed & 0x7FFFFFFF) % 65_536, "the sign bit makes no difference"


def test_the_slot_of_the_order_in_pulsars_documents() -> None:
    assert slots_of([entry_of(metadata_of(partition_key="Order-3459134").SerializeToString())]) == [6067]


def test_slot_0_becomes_1_since_0_means_no_hash() -> None:
    assert mmh3.mmh3_32_uintdigest(b"") == 0
    assert slot_of_key(b"") == 1
    assert key_of(partition_key="") == b"", "an empty key is a key"


def test_the_ordering_key_comes_before_the_partition_key() -> None:
    assert key_of(partition_key="k", ordering_key=b"\xff\x00") == b"\xff\x00"
    assert key_of(ordering_key=b"o") == b"o"
    assert key_of(partition_key="k", ordering_key=b"") == b""


def test_a_binary_key_counts_by_its_bytes() -> None:
    key = bytes(range(256))
    text = base64.b64encode(key).decode()
    assert key_of(partition_key=text, partition_key_b64_encoded=True) == key
    assert key_of(partition_key=text.rstrip("="), partition_key_b64_encoded=True) == key
    assert key_of(partition_key=text, partition_key_b64_encoded=False) == text.encode()


def test_a_key_that_lies_about_being_base64_is_no_key() -> None:
    assert key_of(partition_key="no base64!", partition_key_b64_encoded=True) == NO_KEY


def test_messages_without_a_key_spread_by_producer_and_sequence_id() -> None:
    assert key_of() == b"p-0-7"
    assert key_of(sequence_id=2**40) == b"p-0-%d" % 2**40
    assert key_of(producer_name="") == b"-7"
    first, last = (
        key_of(uuid="p-0-7", num_chunks_from_msg=2, total_chunk_msg_size=9, chunk_id=each) for each in (0, 1)
    )
    assert first == last, "the chunks of one message stay together"


def test_key_of_the_entry_counts_for_a_batch() -> None:
    assert key_of(partition_key="k", num_messages_in_batch=10, uncompressed_size=5_000) == b"k"


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\x0e\x01\x00\x00\x00\x00\x00\x00\x00\x00",
        entry_of(b"\x0a"),
        entry_of(b"\x0a\x05ab", b""),
        entry_of(b"\x0a\x7fp", b"x" * 200),
        entry_of(b"\x10\x80", b""),
        entry_of(b"\x10" + b"\xff" * 10 + b"\x01"),
        entry_of(b"\x0b\x0c"),
        entry_of(metadata_of(partition_key="k").SerializeToString()[:-1], b""),
        entry_of(metadata_of(partition_key="k").SerializeToString())[:-9],
        entry_of(metadata_of().SerializeToString() + b"\x32", b""),
    ],
)
def test_invalid_metadata_has_the_slot_of_no_key(entry: bytes) -> None:
    assert sticky_key(entry) == NO_KEY
    assert slots_of([entry]) == [slot_of_key(NO_KEY)]


def expected(metadata: MessageMetadata) -> bytes:
    """The rule, by protobuf."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        if not metadata.partition_key_b64_encoded:
            return metadata.partition_key.encode()
        text = metadata.partition_key
        try:
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (InvalidBase64, ValueError):
            return NO_KEY
    return f"{metadata.producer_name}-{metadata.sequence_id}".encode()


TEXTS = st.text(max_size=12) | st.text("ab", min_size=120, max_size=140)
UINT64 = st.integers(0, 2**64 - 1) | st.integers(0, 300)
METADATA = st.builds(
    MessageMetadata,
    producer_name=TEXTS,
    sequence_id=UINT64,
    publish_time=UINT64,
    properties=st.none() | st.lists(st.fixed_dictionaries({"key": TEXTS, "value": TEXTS}), max_size=3),
    replicated_from=st.none() | TEXTS,
    partition_key=st.none() | TEXTS | st.binary(max_size=9).map(lambda key: base64.b64encode(key).decode()),
    compression=st.none() | st.sampled_from(CompressionType.values()),
    uncompressed_size=st.none() | st.integers(0, 2**32 - 1),
    num_messages_in_batch=st.none() | st.integers(-1, 1_000),
    event_time=st.none() | UINT64,
    encryption_algo=st.none() | TEXTS,
    schema_version=st.none() | st.binary(max_size=9),
    partition_key_b64_encoded=st.none() | st.booleans(),
    ordering_key=st.none() | st.none() | st.binary(max_size=9),
    deliver_at_time=st.none() | st.integers(-1, 2**62),
    txnid_most_bits=st.none() | UINT64,
    highest_sequence_id=st.none() | UINT64,
    null_value=st.none() | st.booleans(),
    uuid=st.none() | TEXTS,
    chunk_id=st.none() | st.integers(0, 9),
)


@given(METADATA, st.binary(max_size=3))
def test_any_metadata_has_the_key_that_protobuf_reads(metadata: MessageMetadata, payload: bytes) -> None:
    entry = entry_of(metadata.SerializeToString(), payload)
    assert sticky_key(entry) == expected(metadata)
    assert slots_of([entry, entry]) == [slot_of_key(expected(metadata))] * 2


@given(METADATA, METADATA)
def test_last_of_two_equal_fields_counts(one: MessageMetadata, two: MessageMetadata) -> None:
    encoded = one.SerializeToString() + two.SerializeToString()
    merged = MessageMetadata.FromString(encoded)
    assert sticky_key(entry_of(encoded)) == expected(merged)
    assert slots_of([entry_of(encoded)]) == [slot_of_key(expected(merged))]


@given(METADATA, st.integers(0, 200), st.binary(max_size=4))
def test_damaged_metadata_has_one_slot_however_it_is_read(
    metadata: MessageMetadata, at: int, instead: bytes
) -> None:
    encoded = metadata.SerializeToString()
    entry = entry_of(encoded[:at] + instead + encoded[at + len(instead) :])
    assert slots_of([entry]) == [slot_of_key(sticky_key(entry))]
