"""Conditions in metadata at the moment of a topic's creation.

The creator has checked that the namespace exists, and that the name is free or a partition's. The guards
read that again within the creating transaction, so that a concurrent deletion or creation leaves neither a
topic without a namespace, nor one beside a partitioned topic of its name.
"""

from __future__ import annotations

from magnetar.common.errors import NamespaceNotFound, TopicExists, TopicNotFound
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, Check, MetadataStore
from magnetar.common.naming.topic_name import TopicName


async def guards_of(metadata: MetadataStore, keys: Keys, name: TopicName, *, partition: bool) -> list[Check]:
    """Returns the guards for creating a topic; with `partition`, for a partition of an existing partitioned
    topic.

    Raises NamespaceNotFound, TopicExists when the name is a partitioned topic's, TopicNotFound when the
    partition's topic does not exist.
    """
    namespace = await metadata.get(keys.namespace(name.namespace))
    if namespace is None:
        raise NamespaceNotFound(f"namespace {name.namespace} does not exist; create it first")
    key = keys.partitioned_topic(name.base if partition else name)
    found = await metadata.get(key)
    if partition and found is None:
        raise TopicNotFound(f"partitioned topic {name.base} does not exist")
    if not partition and found is not None:
        raise TopicExists(f"topic {name} already exists and is partitioned")
    return [
        Check(namespace.key, namespace.version),
        Check(key, ABSENT if found is None else found.version),
    ]
