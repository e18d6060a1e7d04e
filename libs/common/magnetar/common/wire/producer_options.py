"""Options of a producer in its metadata; brokers ignore unknown keys."""

from __future__ import annotations

from typing import Final

DEDUPLICATION: Final = "magnetar.deduplication"
"""With the value REQUIRED: refuse the producer where the topic would take a sequence id twice."""

REQUIRED: Final = "required"

NOT_DEDUPLICATED: Final = "does not deduplicate messages"
"""In what the broker answers then."""
