"""Partitions by the hash of a key, as Pulsar's other clients choose them."""

from __future__ import annotations

from magnetar.client.routing import (
    CustomRouting,
    RoundRobin,
    SinglePartition,
    java_string_hash,
    murmur3_32_hash,
)


def test_keys_are_hashed_as_java_does() -> None:
    """Values of java.lang.String.hashCode, without the sign."""
    assert java_string_hash("") == 0
    assert java_string_hash("a") == 97
    assert java_string_hash("hello") == 99_162_322
    assert java_string_hash("polygenelubricants") == 0  # Its hash code is the smallest integer.
    assert java_string_hash("\U0001f600") == 1_772_899  # Two UTF-16 units.


def test_keys_are_hashed_as_murmur3_does() -> None:
    """Values of Murmur3_32Hash with seed 0, without the sign."""
    assert murmur3_32_hash("") == 0
    assert murmur3_32_hash("hello") == 0x248B_FA47
    assert murmur3_32_hash("The quick brown fox jumps over the lazy dog") == 0x2E4F_F723


def test_who_chooses() -> None:
    assert RoundRobin().choose("k", 3) is None
    assert RoundRobin().choose(None, 3) is None
    single = SinglePartition(7)
    assert (single.choose(None, 3), single.choose("k", 3)) == (1, None)
    assert SinglePartition().choose(None, 1) == 0
    assert CustomRouting(lambda key, count: count - len(key or "")).choose("k", 3) == 2
