"""How a producer chooses the partition of a message."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Literal, Protocol

Hashing = Literal["java_string", "murmur3_32"]
"""The function that maps a key to a partition; producers of one topic have to agree on it."""


class Routing(Protocol):
    """Chooses partitions for one producer."""

    def choose(self, key: str | None, partitions: int) -> int | None:
        """Returns the index of the partition for a message; None leaves it to the producer: by the key's
        hash, and without a key as in round-robin, a batch to each partition.
        """


class RoundRobin:
    """Messages with a key go to the key's partition, others to one partition after the other."""

    __slots__ = ()

    def choose(self, key: str | None, partitions: int) -> int | None:
        return None


class SinglePartition:
    """Messages with a key go to the key's partition, others all to one: at random, if it is not given."""

    __slots__ = ("_index",)

    def __init__(self, index: int | None = None) -> None:
        self._index = random.randrange(2**31) if index is None else index

    def choose(self, key: str | None, partitions: int) -> int | None:
        return None if key is not None else self._index % partitions


class CustomRouting:
    """Calls a function with the key and the number of partitions."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[str | None, int], int]) -> None:
        self._function = function

    def choose(self, key: str | None, partitions: int) -> int | None:
        return self._function(key, partitions)


def java_string_hash(text: str) -> int:
    """Returns Java's String.hashCode without its sign, by which Pulsar's clients map a key to a partition."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFF_FFFF
    return value & 0x7FFF_FFFF


def murmur3_32_hash(text: str) -> int:
    """Returns Murmur3_32Hash of Pulsar's clients: without its sign, with seed 0."""
    import mmh3  # Few producers choose it.

    return int(mmh3.hash(text.encode(), 0, signed=False)) & 0x7FFF_FFFF


HASHES: Final[dict[Hashing, Callable[[str], int]]] = {
    "java_string": java_string_hash,
    "murmur3_32": murmur3_32_hash,
}
