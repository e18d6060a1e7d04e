"""Retention of a topic's ledgers by its policies: time and size of acknowledged entries."""

from __future__ import annotations

from functools import lru_cache

from magnetar.broker.policies.effective_policies import EffectivePolicies
from magnetar.ledger.managed_ledger.trimming import Retention

MINUTE_MS = 60_000


def retention_of(policies: EffectivePolicies) -> Retention:
    """The ledgers' retention; topics with the same one share the object."""
    return _retention(policies.retention_time_min, policies.retention_size_bytes)


@lru_cache(maxsize=1_000)
def _retention(time_min: int, size_bytes: int) -> Retention:
    return Retention(time_min * MINUTE_MS if time_min > 0 else time_min, size_bytes)
