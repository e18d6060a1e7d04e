"""The topics that a broker has loaded, by namespace and bundle.

There may be ten thousand topics: the iteration yields to the event loop so that messages are not delayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from magnetar.broker.admin.edge.broker_view import BrokerView
from magnetar.broker.metrics.views import TopicView
from magnetar.common.cluster.bundles import bundle_at, bundles_of
from magnetar.common.errors import NamespaceNotFound
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively

Bundles: TypeAlias = Mapping[NamespaceName, Mapping[str, list[TopicView]]]
"""Topics by namespace and bundle, in hash-range order; bundles without topics are omitted."""


async def topics_by_bundle(broker: BrokerView) -> Bundles:
    """Returns the loaded topics, omitting namespaces that are deleted meanwhile."""
    by_namespace: dict[NamespaceName, list[TopicView]] = {}
    async for topic in iterate_cooperatively(list(broker.topics.values())):
        by_namespace.setdefault(topic.name.namespace, []).append(topic)
    found: dict[NamespaceName, Mapping[str, list[TopicView]]] = {}
    for name in sorted(by_namespace):
        try:
            bundles = bundles_of(await broker.policy_writer.namespace(name))
        except NamespaceNotFound:
            continue
        found[name] = await _by_bundle(by_namespace[name], bundles)
    return found


async def _by_bundle(topics: list[TopicView], bundles: list[BundleRange]) -> Mapping[str, list[TopicView]]:
    parts: list[list[TopicView]] = [[] for _ in bundles]
    async for topic in iterate_cooperatively(topics):
        parts[bundle_at(bundles, topic.name.hash)].append(topic)
    return {
        str(bundle): sorted(part, key=lambda topic: topic.name.full)
        for bundle, part in zip(bundles, parts, strict=True)
        if part
    }
