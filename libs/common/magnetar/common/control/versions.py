"""Which versions of the control protocol a release speaks, and which of them two of them use.

A release speaks its own version and the one before, so that two that follow each other always understand
each other: brokers are upgraded one after the other, in any order, one release at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar.common.control.control_errors import NotInteroperable


@dataclass(frozen=True, slots=True)
class Versions:
    """From the oldest to the newest that somebody speaks."""

    oldest: int
    newest: int

    def agree(self, other: Versions, peer: str) -> int:
        """The newest that both speak. Raises NotInteroperable, naming `peer`."""
        version = min(self.newest, other.newest)
        if version < max(self.oldest, other.oldest):
            raise NotInteroperable(
                f"{peer} speaks versions {other.oldest} to {other.newest} of the control protocol, "
                f"this side {self.oldest} to {self.newest}: upgrade one release at a time"
            )
        return version


VERSION: Final = 1
"""Goes up with each release that adds to proto/control."""

OURS: Final = Versions(max(1, VERSION - 1), VERSION)
