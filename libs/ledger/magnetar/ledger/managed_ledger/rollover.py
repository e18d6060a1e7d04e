"""The decision when a topic switches to its next ledger, with the meaning of Pulsar's settings. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.ledger.managed_ledger.config import ManagedLedgerConfig

_MEGABYTE = 1024 * 1024
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class RollPlan:
    """Whether to roll now; otherwise the entries, bytes or seconds after which to check again."""

    now: bool
    entries: int = _NEVER
    byte_length: int = _NEVER
    seconds: float = 0.0


def plan(config: ManagedLedgerConfig, entries: int, byte_length: int, age_s: float) -> RollPlan:
    """Plans the rollover: a ledger rolls if it is full and has its minimum age, or has entries and its
    maximum age.
    """
    age_min_s = config.ledger_age_min_minutes * 60.0
    age_max_s = config.ledger_age_max_minutes * 60.0
    bytes_max = config.ledger_megabytes_max * _MEGABYTE
    full = entries >= config.ledger_entries_max or byte_length >= bytes_max
    if entries > 0 and (age_s >= age_max_s or (full and age_s >= age_min_s)):
        return RollPlan(now=True)
    if full:
        return RollPlan(now=False, seconds=age_min_s - age_s)
    if age_s >= age_max_s:
        return RollPlan(now=False, entries=1, seconds=age_max_s)
    return RollPlan(
        now=False, entries=config.ledger_entries_max, byte_length=bytes_max, seconds=age_max_s - age_s
    )
