"""Split points of a bundle, by the algorithms that operators can name."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.broker.load.load_report import load_of, work
from magnetar.broker.load.reporter import NamedTopic
from magnetar.broker.load.splitting import balanced_cut
from magnetar.broker.topics.registry.topic_registry import TopicRegistry
from magnetar.common.cluster.bundles import (
    ALGORITHMS,
    BY_LOAD,
    BY_TOPIC_COUNT,
    EQUAL_RANGES,
    by_topic_count,
    halves,
)
from magnetar.common.errors import NotAllowed
from magnetar.common.naming.bundle_range import BundleRange
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.cooperative_iteration import iterate_cooperatively


async def cuts_of(
    topics: TopicRegistry, namespace: NamespaceName, bundle: BundleRange, algorithm: str
) -> list[int]:
    """Returns the split points as hashes, at least one.

    Raises NotAllowed when the bundle cannot be split by this algorithm, NamespaceNotFound, MetadataError.
    """
    if algorithm == EQUAL_RANGES:
        found, reason = halves(bundle), "it has a single hash"
    elif algorithm == BY_TOPIC_COUNT:
        names = await topics.list(namespace, persistent=True)
        names += await topics.list(namespace, persistent=False)
        hashes = [TopicName.parse(name).hash for name in names]
        found = by_topic_count(bundle, [each for each in hashes if each in bundle])
        reason = "it has fewer than two topics, or all have the same hash"
    elif algorithm == BY_LOAD:
        found = await cut_by_load(topics.loaded.values(), namespace, bundle)
        reason = "fewer than two of its topics are loaded, or all have the same hash"
    else:
        raise NotAllowed(
            f"bundles are split by {', '.join(ALGORITHMS)}; the positions of specified_positions_divide have "
            "to be given, and be within the bundle"
        )
    if not found:
        raise NotAllowed(f"bundle {bundle} of {namespace} cannot be split by {algorithm}: {reason}")
    return found


async def cut_by_load(
    loaded: Iterable[NamedTopic], namespace: NamespaceName, bundle: BundleRange
) -> list[int]:
    """Returns the split point that best balances the recent work (messages and bytes) of the loaded
    topics.
    """
    measured = [
        (topic.name.hash, work(load_of(topic)))
        async for topic in iterate_cooperatively(list(loaded))
        if topic.name.namespace == namespace and topic.name.hash in bundle
    ]
    return balanced_cut(bundle, measured)
