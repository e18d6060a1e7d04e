"""Versions of the control protocol, and the choice of a common one.

A release speaks its own version and the previous one, so consecutive releases always interoperate: upgrade
brokers one after the other, in any order, one release at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.common.control.control_errors import NotInteroperable


@dataclass(frozen=True, slots=True)
class Versions:
    """The range of supported versions, both ends included."""

    oldest: int
    newest: int

    def agree(self, other: Versions, peer: str) -> int:
        """Returns the newest common version. Raises NotInteroperable, naming `peer`."""
        version = min(self.newest, other.newest)
        if version < max(self.oldest, other.oldest):
            raise NotInteroperable(
                f"{peer} speaks versions {other.oldest} to {other.newest} of the control protocol, "
                f"this side {self.oldest} to {self.newest}: upgrade one release at a time"
            )
        return version


VERSION: Final = 1
"""The protocol version of this release; increases with each release that extends proto/control."""

OURS: Final = Versions(max(1, VERSION - 1), VERSION)
