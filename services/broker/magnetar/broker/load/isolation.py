"""Isolation policies: which brokers may serve a namespace. A pure function of metadata.

A namespace that matches a policy goes to the policy's primary brokers. When fewer of them are available than
the policy's limit, the secondary ones may serve it, too; a primary broker whose load has reached the policy's
threshold counts as unavailable. A namespace that matches no policy goes to brokers that are primary in no
policy. If several policies match a namespace, the first by name applies. Policies match brokers by host and
by id (messaging contract, isolation; Pulsar's rules).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from magnetar.broker.topics.watch.topic_pattern import linear_pattern
from magnetar.common.errors import NotAllowed
from magnetar.common.metadata.values import Cluster
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

_MIN_LIMIT: Final = "min_limit"
_USAGE_THRESHOLD: Final = "usage_threshold"


@dataclass(frozen=True, slots=True)
class _Policy:
    name: str
    namespaces: list[Any]
    primary: list[Any]
    secondary: list[Any]
    min_limit: int
    usage_threshold: float


class IsolationRules:
    """The compiled isolation policies of one cluster."""

    def __init__(self, policies: Mapping[str, Cluster.IsolationPolicy]) -> None:
        """Compiles the policies; an invalid pattern, which the admin API rejects, matches nothing."""
        self._policies = [_policy(name, policy) for name, policy in sorted(policies.items())]

    def __bool__(self) -> bool:
        """Whether there is a policy."""
        return bool(self._policies)

    def isolates(self, namespace: NamespaceName) -> bool:
        """Whether a policy names the namespace."""
        return self._of(namespace) is not None

    def allowed(self, namespace: NamespaceName, usage: Mapping[str, float]) -> set[str]:
        """Returns the ids of those brokers, given with their load in percent, that may serve the
        namespace.
        """
        policy = self._of(namespace)
        if policy is None:
            return {broker for broker in usage if not self._is_primary_somewhere(broker)}
        primary = {broker for broker in usage if _names(policy.primary, broker)}
        able = [broker for broker in primary if usage[broker] < policy.usage_threshold]
        if len(able) >= policy.min_limit:
            return primary
        return primary | {broker for broker in usage if _names(policy.secondary, broker)}

    def _of(self, namespace: NamespaceName) -> _Policy | None:
        text = str(namespace)
        return next((each for each in self._policies if _matches(each.namespaces, text)), None)

    def _is_primary_somewhere(self, broker: str) -> bool:
        return any(_names(policy.primary, broker) for policy in self._policies)


def _policy(name: str, policy: Cluster.IsolationPolicy) -> _Policy:
    return _Policy(
        name,
        _compiled(name, policy.namespaces),
        _compiled(name, policy.primary),
        _compiled(name, policy.secondary),
        _number(policy.parameters.get(_MIN_LIMIT, ""), 1),
        _number(policy.parameters.get(_USAGE_THRESHOLD, ""), 100),
    )


def _compiled(name: str, patterns: Iterable[str]) -> list[Any]:
    found = []
    for pattern in patterns:
        try:
            found.append(linear_pattern(pattern, repr(pattern)))
        except NotAllowed as error:
            log.error("invalid pattern in an isolation policy", policy=name, reason=str(error))
    return found


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() else default


def _names(patterns: list[Any], broker: str) -> bool:
    host = broker.rpartition(":")[0] or broker
    return _matches(patterns, broker) or _matches(patterns, host)


def _matches(patterns: list[Any], text: str) -> bool:
    return any(pattern.fullmatch(text) is not None for pattern in patterns)
