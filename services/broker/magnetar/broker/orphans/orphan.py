"""An orphan: a metadata key whose owner does not exist."""

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
    """An orphan found by one scan; a later scan may find that it has an owner."""

    kind: str
    """One of KINDS."""
    key: str
    version: int
    """Version of the key at the scan; a key written since is not cleared."""
    what: str
    """A description for operators."""
    reason: str
    byte_count: int = 0
    """Bytes of the messages that it holds, according to metadata; 0 for an open ledger."""
    ask_first: bool = False
    """Whether only an operator may clear it, because it may be intended."""
