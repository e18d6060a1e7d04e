"""Options of a producer in its metadata; brokers ignore unknown keys."""

from __future__ import annotations

from typing import Final

DEDUPLICATION: Final = "magnetar.deduplication"
"""Option whose value REQUIRED refuses the producer if the topic would accept a sequence id twice."""

REQUIRED: Final = "required"

NOT_DEDUPLICATED: Final = "does not deduplicate messages"
"""Text in the broker's error for that refusal."""
