"""The partitioned topic whose partitions stand for the transaction coordinators.

Coordinator n runs on the broker that owns partition n. Clients find coordinators by partition metadata and
lookups, so the topic exists in metadata; it is never loaded, and no message is stored in it.
"""

from __future__ import annotations

from typing import Final

from magnetar.common.errors import (
    InvalidName,
    TransactionCoordinatorNotFound,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import ABSENT, MetadataStore
from magnetar.common.metadata.values import PartitionedTopic, decode, encode
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

COORDINATORS: Final = TopicName.parse("persistent://pulsar/system/transaction_coordinator_assign")

IN_A_CLUSTER: Final = 16
"""Number of coordinators that a cluster begins with."""

IN_A_STANDALONE: Final = 1
"""Number of coordinators of a standalone."""


def coordinator_partition(coordinator_id: int) -> TopicName:
    """Returns the topic that stands for a coordinator. Raises TransactionCoordinatorNotFound for an id that
    none can have.
    """
    try:
        return COORDINATORS.partition(coordinator_id)
    except InvalidName as error:
        raise TransactionCoordinatorNotFound(f"invalid coordinator id {coordinator_id}") from error


async def coordinator_count(metadata: MetadataStore, keys: Keys) -> int:
    """Returns the number of coordinators of the cluster; 0 before transactions were first on. Raises
    MetadataError.
    """
    found = await metadata.get(keys.partitioned_topic(COORDINATORS))
    return 0 if found is None else decode(PartitionedTopic, found.value).partitions


async def ensure_coordinators(metadata: MetadataStore, keys: Keys, count: int, now_ms: int) -> None:
    """Creates `count` coordinators unless the cluster has some. Raises MetadataError."""
    key = keys.partitioned_topic(COORDINATORS)
    if await metadata.get(key) is not None:
        return
    try:
        await metadata.put(key, encode(PartitionedTopic(partitions=count, created_ms=now_ms)), ABSENT)
    except (VersionMismatch, UnknownOutcome):
        # Another broker had its first start at the same moment, or the response was lost.
        if await metadata.get(key) is None:
            raise
        return
    log.info("transaction coordinators created", coordinators=count)


async def grow_coordinators(metadata: MetadataStore, keys: Keys, count: int) -> bool:
    """Raises the number of coordinators to `count`; returns False, changing nothing, if it is not larger than
    now. Clients find new coordinators when they connect again.

    Raises VersionMismatch during a concurrent change, MetadataError.
    """
    key = keys.partitioned_topic(COORDINATORS)
    found = await metadata.get(key)
    if found is None:
        await metadata.put(key, encode(PartitionedTopic(partitions=count)), ABSENT)
        return True
    value = decode(PartitionedTopic, found.value)
    if count <= value.partitions:
        return False
    value.partitions = count
    await metadata.put(key, encode(value), found.version)
    return True
