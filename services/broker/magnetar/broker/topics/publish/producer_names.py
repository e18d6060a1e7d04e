"""Generated producer names: `<cluster>-<instance>-<counter>`, unique in the cluster."""

from __future__ import annotations

import itertools

from magnetar.common.errors import VersionMismatch
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.metadata_pb2 import Counter
from magnetar.common.metadata.store import ABSENT, MetadataStore
from magnetar.common.metadata.values import decode, encode


class ProducerNames:
    """Generates names with an instance number that no other start of any broker has used."""

    def __init__(self, cluster: str, instance: int) -> None:
        self._prefix = f"{cluster}-{instance}-"
        self._counter = itertools.count()

    @classmethod
    async def open(cls, cluster: str, metadata: MetadataStore, keys: Keys) -> ProducerNames:
        """Takes the next instance number from its counter in metadata, by compare-and-set."""
        key = keys.producer_name_counter
        while True:
            found = await metadata.get(key)
            instance = decode(Counter, found.value).next if found else 0
            try:
                await metadata.put(
                    key, encode(Counter(next=instance + 1)), found.version if found else ABSENT
                )
            except VersionMismatch:
                continue
            return cls(cluster, instance)

    def next(self) -> str:
        return self._prefix + str(next(self._counter))
