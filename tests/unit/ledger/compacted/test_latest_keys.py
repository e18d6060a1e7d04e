"""The table of the latest messages agrees with a dictionary, in less memory."""

from __future__ import annotations

import random

from magnetar.ledger.compacted.latest_keys import LatestKeys, split_hashes


def test_it_agrees_with_a_dictionary() -> None:
    rng = random.Random(1)
    keys = [rng.randbytes(16) for _ in range(2_000)]
    table, expected = LatestKeys(), {}
    for ordinal in range(20_000):
        key, deletes = rng.choice(keys), rng.random() < 0.3
        table.add(key, ordinal, deletes)
        expected[key] = ordinal << 1 | deletes
    found = {key: value for partition in table.partitions() for key, value in partition.items()}
    assert found == expected


def test_its_memory_follows_the_keys_and_not_the_messages() -> None:
    rng = random.Random(2)
    keys = [rng.randbytes(16) for _ in range(1_000)]
    table = LatestKeys()
    for ordinal in range(200_000):
        table.add(keys[ordinal % 1_000], ordinal, False)
    # 1,024 partitions with up to 64 records each, of 20 bytes.
    assert table.byte_length <= 1024 * 64 * 20


def test_hashes_are_split() -> None:
    assert split_hashes(bytes(range(32))) == [bytes(range(16)), bytes(range(16, 32))]
    assert split_hashes(b"") == []
