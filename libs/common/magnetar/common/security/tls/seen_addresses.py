"""Addresses about which something was logged, so that it is said once of each."""

from __future__ import annotations

from typing import Final

ADDRESSES_MAX: Final = 1_000


class SeenAddresses:
    """Remembers the last addresses, a bounded number of them."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def add(self, address: str) -> bool:
        """Whether the address is new."""
        if address in self._seen:
            return False
        if len(self._seen) >= ADDRESSES_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[address] = None
        return True
