"""Keys go where Pulsar's clients put them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from magnetar.spark.sink.routing import HASHES, SPREAD_ROWS, murmur3_hash, partition_of
from mmh3 import mmh3_32_uintdigest


@given(st.text())
def test_murmur3_is_that_of_the_library_without_its_sign(text: str) -> None:
    assert murmur3_hash(text) == mmh3_32_uintdigest(text.encode()) & 0x7FFF_FFFF


def test_murmur3_is_that_of_pulsars_clients() -> None:
    """From Murmur3_32HashTest of Apache Pulsar's clients."""
    assert murmur3_hash("k1") == 2110152746
    assert murmur3_hash("k2") == 1479966664
    assert murmur3_hash("key1") == 462881061
    assert murmur3_hash("key2") == 1936800180
    assert murmur3_hash("key01") == 39696932
    assert murmur3_hash("key02") == 751761803


def test_java_is_the_hash_code_of_java() -> None:
    assert HASHES["java"]("hello") == 99162322
    assert HASHES["java"]("") == 0


def test_rows_without_a_key_fill_one_partition_after_the_other_from_the_tasks_own() -> None:
    chosen = [partition_of(None, row, 1, 3, HASHES["java"]) for row in range(3 * SPREAD_ROWS)]
    assert chosen == [1] * SPREAD_ROWS + [2] * SPREAD_ROWS + [0] * SPREAD_ROWS


def test_a_key_goes_to_one_partition_whatever_row_it_is_in() -> None:
    assert len({partition_of("k", row, 5, 7, HASHES["murmur3"]) for row in range(10_000)}) == 1
