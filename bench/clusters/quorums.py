"""Settings of both clusters: how many copies there are, and after what time a process is missed."""

from __future__ import annotations

from typing import Final

BOOKIES: Final = 3
SPARE_BOOKIES: Final = 1
"""Runs only while a bookie is killed that it can replace."""

BROKERS: Final = 2
"""The second one runs only while brokers are killed: lookups of the loads need one that serves all topics."""

ENSEMBLE: Final = 3
WRITE_QUORUM: Final = 3
ACK_QUORUM: Final = 2
"""Magnetar's defaults; Apache Pulsar's are 2, 2 and 2."""

SESSION_MS: Final = 10_000
"""Magnetar's default of `metadataStoreSessionTimeoutMillis`; Apache Pulsar's is 30,000."""
