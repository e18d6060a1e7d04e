"""Placement rules in metadata: isolation policies, failure domains and anti-affinity groups.

The leader follows them; a change applies to the next assignment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.broker.load.isolation import IsolationRules
from magnetar.common.cluster.mirror import Mirror
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import Cluster, Namespace, decode
from magnetar.common.naming.namespace_name import NamespaceName


@dataclass(frozen=True, slots=True)
class _ClusterRules:
    isolation: IsolationRules
    domains: Mapping[str, str]
    """Failure domain by broker id."""
    version: int


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    version: int


_NONE: Final = _ClusterRules(IsolationRules({}), {}, 0)


class PlacementRules:
    """A mirror of the placement rules: `start`, query, `close`; all calls on one loop."""

    def __init__(self, metadata: MetadataStore, keys: Keys, cluster: str) -> None:
        self._key = keys.cluster(cluster)
        self._cluster = Mirror[str, _ClusterRules](
            metadata, self._key, "isolation policies", str, _cluster_rules
        )
        self._groups = Mirror[NamespaceName, _Group](
            metadata, keys.namespaces_prefix(), "anti-affinity groups", keys.namespace_of, _group
        )
        self._members: dict[str, set[NamespaceName]] = {}
        self._group_of: dict[NamespaceName, str] = {}
        self._groups.on_change(self._group_changed)

    async def start(self) -> None:
        """Starts following; returns once all rules are loaded. Waits until metadata is reachable."""
        await self._cluster.start()
        await self._groups.start()

    async def close(self) -> None:
        """Stops following. Idempotent."""
        await self._cluster.close()
        await self._groups.close()

    @property
    def isolation(self) -> IsolationRules:
        """The isolation policies of this cluster."""
        return self._now.isolation

    def domain(self, broker_id: str) -> str:
        """Returns the failure domain of a broker; empty when it has none."""
        return self._now.domains.get(broker_id, "")

    @property
    def domains(self) -> Mapping[str, str]:
        """The failure domain of each broker that has one."""
        return self._now.domains

    def others_of_group(self, namespace: NamespaceName) -> Collection[NamespaceName]:
        """Returns the other namespaces of its anti-affinity group."""
        group = self._group_of.get(namespace)
        return () if group is None else self._members[group] - {namespace}

    def has_policies(self, namespace: NamespaceName) -> bool:
        """Whether a policy or a group restricts the placement of this namespace."""
        return namespace in self._group_of or self.isolation.isolates(namespace)

    @property
    def _now(self) -> _ClusterRules:
        return self._cluster.items.get(self._key, _NONE)

    def _group_changed(self, namespace: NamespaceName, found: _Group | None) -> None:
        before = self._group_of.pop(namespace, None)
        if before is not None:
            self._members[before].discard(namespace)
            if not self._members[before]:
                del self._members[before]
        if found is not None and found.name:
            self._group_of[namespace] = found.name
            self._members.setdefault(found.name, set()).add(namespace)


def _cluster_rules(data: bytes, version: int) -> _ClusterRules:
    cluster = decode(Cluster, data)
    domains = {
        broker: name for name, domain in sorted(cluster.failure_domains.items()) for broker in domain.brokers
    }
    return _ClusterRules(IsolationRules(cluster.isolation_policies), domains, version)


def _group(data: bytes, version: int) -> _Group:
    return _Group(decode(Namespace, data).anti_affinity_group, version)
