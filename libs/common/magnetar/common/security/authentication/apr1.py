"""Apache's MD5 password hash, `$apr1$salt$hash`, as `htpasswd -m` writes it."""

from __future__ import annotations

from hashlib import md5
from typing import Final

PREFIX: Final = "$apr1$"

ROUNDS: Final = 1_000

SALT_CHARS_MAX: Final = 8

_ALPHABET: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_ORDER: Final = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5))
"""Bytes of the digest that are encoded together."""


def apr1(password: bytes, salt: str) -> str:
    """Return the hash of a password; takes about half a millisecond."""
    salt = salt[:SALT_CHARS_MAX]
    encoded_salt = salt.encode()
    inner = md5(password + encoded_salt + password, usedforsecurity=False).digest()
    begin = md5(password + PREFIX.encode() + encoded_salt, usedforsecurity=False)
    begin.update((inner * (len(password) // 16 + 1))[: len(password)])
    bits = len(password)
    while bits:
        begin.update(b"\0" if bits & 1 else password[:1])
        bits >>= 1
    digest = begin.digest()
    for number in range(ROUNDS):
        odd = number & 1
        parts = password if odd else digest
        if number % 3:
            parts += encoded_salt
        if number % 7:
            parts += password
        parts += digest if odd else password
        digest = md5(parts, usedforsecurity=False).digest()
    encoded = "".join(
        _base64(digest[high] << 16 | digest[middle] << 8 | digest[low], 4) for high, middle, low in _ORDER
    )
    return f"{PREFIX}{salt}${encoded}{_base64(digest[11], 2)}"


def _base64(value: int, characters: int) -> str:
    return "".join(_ALPHABET[value >> 6 * index & 0x3F] for index in range(characters))
