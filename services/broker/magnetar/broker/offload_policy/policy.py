"""Offload policy of a topic, resolved from its own policy, its namespace's and the configuration.

Each number comes from the nearest level that sets it, as in Apache Pulsar. A location comes as a whole from
the nearest level that names a driver: parts of two levels would make a third location.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.broker.offload_policy.location import configured_target, policy_target
from magnetar.common.admin_types.offload import OBJECTS_FIRST
from magnetar.common.metadata.values import Policies
from magnetar.ledger.managed_ledger.offload_progress import OffloadRules

EXACT: Final = "magnetarOffloadExact"
"""Key of a policy's extra configurations, with the value "true" or "false"."""


@dataclass(frozen=True, slots=True)
class OffloadPolicy:
    """The offload policy in effect for one topic."""

    location: str | None = None
    """Location of its objects; None: nothing is offloaded."""
    problem: str | None = None
    """The error in a configured location, when that is why `location` is None."""
    threshold_bytes: int = -1
    """Bytes of a topic that stay on bookies; 0: only the open ledger; -1: no limit by size."""
    threshold_s: int = -1
    """Seconds after its closing at which a ledger is offloaded; -1: no limit by age."""
    deletion_lag_ms: int = -1
    """Milliseconds for which bookies keep an offloaded ledger; -1: always."""
    objects_first: bool = False
    """Whether reads prefer objects while bookies still have the ledger."""
    exact: bool = False
    """Whether rows keep the bytes of their entries verbatim."""

    @property
    def missing_location(self) -> str:
        """The reason why `location` is None, and what to do about it."""
        return self.problem or (
            "no offload location is configured: set magnetarOffloadLocation, or the offload policies of the "
            "namespace or topic"
        )

    @property
    def automatic(self) -> bool:
        """Whether ledgers are offloaded without a request."""
        return self.threshold_bytes >= 0 or self.threshold_s >= 0


def resolve_offload(
    config: OffloadConfig, cluster: str, namespace: Policies, topic: Policies
) -> OffloadPolicy:
    """Resolves the policy of a topic from its own level, its namespace's and the configuration."""
    levels = [level.offload for level in (topic, namespace) if level.HasField("offload")]

    def number(name: str, default: int) -> int:
        said = (int(getattr(level, name)) for level in levels if level.HasField(name))  # type: ignore[arg-type]
        return next(said, default)

    places = (policy_target(level, cluster) for level in levels)
    place = next(filter(any, places), None) or configured_target(config, cluster)
    priority = next((level.read_priority for level in levels if level.read_priority), config.read_priority)
    exact = next(
        (
            level.extra_configurations[EXACT] == "true"
            for level in levels
            if EXACT in level.extra_configurations
        ),
        config.exact,
    )
    return OffloadPolicy(
        location=place.location,
        problem=place.problem,
        threshold_bytes=number("threshold_bytes", config.threshold_bytes),
        threshold_s=number("threshold_s", config.threshold_s),
        deletion_lag_ms=number("deletion_lag_ms", config.deletion_lag_ms),
        objects_first=priority == OBJECTS_FIRST,
        exact=exact,
    )


NEVER: Final = OffloadPolicy()
"""The policy that offloads nothing and has no location."""


@lru_cache(maxsize=64)
def rules_of(policy: OffloadPolicy) -> OffloadRules:
    """Returns the rules that a managed ledger needs; topics with equal policies share them."""
    return OffloadRules(policy.deletion_lag_ms, policy.objects_first)
