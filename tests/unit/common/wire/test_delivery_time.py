from __future__ import annotations

import random
from typing import Any

import pytest
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.common.wire.delivery_time import delivered_later

NOW = 1_795_000_000_000


def entry(payload: bytes = b"payload", **fields: Any) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=NOW)
    for name, value in fields.items():
        setattr(metadata, name, value)
    encoded = metadata.SerializeToString()
    return b"\x0e\x01abcd" + len(encoded).to_bytes(4, "big") + encoded + payload


def times(*entries: bytes) -> dict[int, int]:
    return delivered_later(entries, sum(map(len, entries)))


@pytest.mark.parametrize("payload", [b"x", b"x" * 5_000])
@pytest.mark.parametrize("time_ms", [2**35, NOW, NOW + 10**9, 2**42, 2**62])
def test_a_time_is_found_among_entries_without(payload: bytes, time_ms: int) -> None:
    plain, delayed = entry(payload), entry(payload, deliver_at_time=time_ms)
    assert times(plain, delayed, plain, delayed) == {1: time_ms, 3: time_ms}
    assert times(plain, plain) == {}


@pytest.mark.parametrize("count", [7, 8, 100])
def test_one_among_many_large_entries_is_found(count: int) -> None:
    plain, delayed = entry(b"x" * 5_000), entry(b"x" * 5_000, deliver_at_time=NOW)
    as_long = entry(b"x" * 5_000, ordering_key=b"12345")
    assert len(as_long) == len(delayed)
    assert times(*[delayed] * count) == dict.fromkeys(range(count), NOW)
    for place in (0, count // 2, count - 1):
        entries = [plain] * count
        assert times(*entries) == {}
        entries[place] = delayed
        assert times(*entries) == {place: NOW}
        entries = [as_long] * count
        entries[place] = delayed
        assert times(*entries) == {place: NOW}


def test_other_fields_around_it_do_not_matter() -> None:
    delayed = entry(
        deliver_at_time=NOW, partition_key="k", ordering_key=b"o", null_value=True, uuid="u", chunk_id=1
    )
    assert times(delayed) == {0: NOW}


@pytest.mark.parametrize("time_ms", [0, 1, 2**34, -1, -NOW])
def test_past_delivery_time_causes_no_delay(time_ms: int) -> None:
    assert times(entry(deliver_at_time=time_ms)) == {}


def test_the_same_bytes_elsewhere_are_no_time() -> None:
    looks_like_one = b"\x98\x01" + b"\xff" * 5 + b"\x34"
    assert times(entry(looks_like_one * 5)) == {}
    assert times(entry(looks_like_one * 500)) == {}
    assert times(entry(ordering_key=looks_like_one)) == {}
    assert times(entry(ordering_key=looks_like_one, deliver_at_time=NOW)) == {0: NOW}
    assert times(*[entry(sequence_id=number) for number in range(100, 40_000, 7)]) == {}


def test_entries_that_are_no_messages_have_no_time() -> None:
    assert times(b"", b"x", b"\x98\x01" * 9, entry()[:12]) == {}


@pytest.mark.parametrize("seed", range(20))
def test_random_runs_say_what_protobuf_says(seed: int) -> None:
    rng = random.Random(seed)
    entries = []
    for _ in range(rng.randrange(1, 60)):
        fields: dict[str, Any] = {
            "sequence_id": rng.randrange(2**20),
            "publish_time": NOW + rng.randrange(10**9),
        }
        if rng.random() < 0.1:
            fields["deliver_at_time"] = NOW + rng.randrange(10**9)
        if rng.random() < 0.5:
            fields["partition_key"] = str(rng.random())
        entries.append(entry(rng.randbytes(rng.choice((10, 100, 2_000))), **fields))
    expected = {}
    for index, each in enumerate(entries):
        metadata = pb.MessageMetadata.FromString(each[10 : 10 + int.from_bytes(each[6:10], "big")])
        if metadata.deliver_at_time:
            expected[index] = metadata.deliver_at_time
    assert times(*entries) == expected
