"""The list of revoked tokens: single tokens by `jti`, and all tokens of a subject issued before a time.

{"jti": ["a5c1..."], "sub": {"alice": 1764180000, "bob": "2026-11-26T18:00:00Z"}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Revocations:
    """Revoked tokens."""

    token_ids: frozenset[str] = frozenset()
    subjects: Mapping[str, float] | None = None
    """By subject: seconds since 1970 UTC; tokens issued before, or at an unknown time, are revoked."""

    def includes(self, token_id: object, subject: object, issued_at: object) -> bool:
        """Return whether a token with these claims (jti, sub, iat) is revoked."""
        if isinstance(token_id, str) and token_id in self.token_ids:
            return True
        before = self.subjects.get(subject) if self.subjects and isinstance(subject, str) else None
        if before is None:
            return False
        is_time = isinstance(issued_at, int | float) and not isinstance(issued_at, bool)
        return not is_time or issued_at < before  # type: ignore[operator]


def parse_revocations(content: bytes) -> Revocations:
    """Return the list of a file. Raises ValueError."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError("the revocation list is not JSON") from error
    if not isinstance(value, dict) or not value.keys() <= {"jti", "sub"}:
        raise ValueError('the revocation list must be an object with "jti" and "sub" only')
    token_ids, subjects = value.get("jti", []), value.get("sub", {})
    if not isinstance(token_ids, list) or not all(isinstance(each, str) for each in token_ids):
        raise ValueError('"jti" of the revocation list must be a list of texts')
    if not isinstance(subjects, dict):
        raise ValueError('"sub" of the revocation list must map subjects to times')
    return Revocations(frozenset(token_ids), {name: _time(name, each) for name, each in subjects.items()})


def _time(subject: str, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the time of {subject!r} in the revocation list is neither seconds since 1970 nor ISO 8601"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
