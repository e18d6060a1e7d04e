"""An orphan: a key of metadata that belongs to something that is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEDGER: Final = "ledger"
TOPIC_LEDGER: Final = "topic-ledger"
TOPIC: Final = "topic"
PARTITIONED_TOPIC: Final = "partitioned-topic"
TOPIC_POLICIES: Final = "topic-policies"
SCHEMA: Final = "schema"

KINDS: Final = (LEDGER, TOPIC_LEDGER, TOPIC, PARTITIONED_TOPIC, TOPIC_POLICIES, SCHEMA)


@dataclass(frozen=True, slots=True)
class Orphan:
    """One look's finding; another look may find it to be none."""

    kind: str
    """One of KINDS."""
    key: str
    version: int
    """Of the key, when it was looked at: what was written since is something else."""
    what: str
    """For people."""
    reason: str
    byte_count: int = 0
    """Of the messages that it keeps, as far as metadata knows: an open ledger's are not known."""
    ask_first: bool = False
    """Only an operator clears it: somebody may have meant it to be there."""
