"""What both clusters have in common: how many copies there are, and after what time a process is missed."""

from __future__ import annotations

from typing import Final

BOOKIES: Final = 3
ENSEMBLE: Final = 3
WRITE_QUORUM: Final = 3
ACK_QUORUM: Final = 2
"""Magnetar's defaults; Apache Pulsar's are 2, 2 and 2."""

SESSION_MS: Final = 10_000
"""Magnetar's default of `metadataStoreSessionTimeoutMillis`; Apache Pulsar's is 30,000."""
