"""Keyed 128-bit hashes of message keys.

BLAKE2b under the topic's random key: clients that do not know it cannot prepare two keys with one hash. Two
of a billion different keys collide with a probability of 1.5e-21; keys themselves are not compared.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from magnetar.ledger.compacted.page import HASH_BYTES

KEY_BYTES: Final = 16


class KeyHash:
    """Hashes keys under one secret."""

    __slots__ = ("_begun",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a hash key of {len(secret)} bytes, {KEY_BYTES} are needed")
        self._begun = blake2b(key=secret, digest_size=HASH_BYTES)

    def of(self, key: str) -> bytes:
        """Returns the hash of a key, as the string on the wire."""
        state = self._begun.copy()
        state.update(key.encode())
        return state.digest()
