"""The mistakes that are planted, one place of one file each."""

from __future__ import annotations

from typing import Final

from tests.mutations.bookie_mistakes import AUTO_RECOVERY, BOOKIE
from tests.mutations.log_mistakes import GARBAGE, LOG
from tests.mutations.mistake import Mistake
from tests.mutations.quorum_mistakes import READING, RECOVERY, WRITING
from tests.mutations.registry_mistakes import REGISTRY
from tests.mutations.schema_mistakes import SCHEMAS
from tests.mutations.security_mistakes import SECURITY
from tests.mutations.topic_mistakes import TOPICS
from tests.mutations.transaction_mistakes import TRANSACTIONS

MISTAKES: Final[tuple[Mistake, ...]] = (
    *LOG,
    *GARBAGE,
    *WRITING,
    *RECOVERY,
    *READING,
    *BOOKIE,
    *AUTO_RECOVERY,
    *TOPICS,
    *SECURITY,
    *SCHEMAS,
    *REGISTRY,
    *TRANSACTIONS,
)

GROUPS: Final[dict[str, tuple[Mistake, ...]]] = {"security": SECURITY, "transactions": TRANSACTIONS}
"""Mistakes that are chosen together by a name that neither they nor their files have."""
