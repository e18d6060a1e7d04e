"""Topics with offloaded ledgers in real metadata, and object stores that are dictionaries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from magnetar.broker.config import BrokerConfig
from magnetar.broker.offload.object_sweep import ObjectSweep
from magnetar.broker.offload_policy.config import OffloadConfig
from magnetar.common.errors import ConfigError
from magnetar.common.metadata.keys import Keys, delete_objects_intent_id
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.metadata.values import (
    InstanceId,
    Intent,
    LedgerRef,
    Namespace,
    TopicHead,
    TopicLedger,
    encode,
)
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.runtime.clock import Clock
from magnetar.ledger.cold.layout import MANIFEST_NAME, attempt_path, part_name
from magnetar.ledger.cold.marker import MARKER_NAME, encode_marker
from magnetar.ledger.cold.objects import (
    NoSuchObject,
    ObjectStoreError,
    ObjectStoreUnavailable,
    StoredObject,
)
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers

KEYS = Keys("standalone")
TOPIC = TopicName.parse("persistent://public/default/orders")
LOCATION = "mem://cold"
INSTANCE = b"i" * 16
NOW_MS = 2_000_000_000_000
GRACE_S = 3_600
OLD_MS = NOW_MS - GRACE_S * 1000


class StandingClock:
    """It is always now."""

    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return NOW_MS


@dataclass
class DictStore:
    """Objects by path: when each was written. What is `broken` cannot be deleted; one that is `away` does not
    answer."""

    location: str
    mark: bytes | None = encode_marker(INSTANCE)
    objects: dict[str, int] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    away: bool = False
    asked: int = 0
    on_list: Callable[[], None] = lambda: None

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        self.asked += 1
        if self.away:
            raise ObjectStoreUnavailable(f"{self.location} does not answer")
        self.on_list()
        for path, modified_ms in list(self.objects.items()):
            if not prefix or path.startswith(f"{prefix}/"):
                yield StoredObject(path, 10, modified_ms)

    def read(self, path: str, offset: int, length: int) -> bytes:
        if path != MARKER_NAME or self.mark is None:
            raise NoSuchObject(path)
        return self.mark[offset : offset + length]

    def delete(self, path: str) -> None:
        if path in self.broken:
            raise ObjectStoreError(f"{path} cannot be deleted")
        self.objects.pop(path, None)

    def put_attempt(self, path: str, *, whole: bool = True, modified_ms: int = OLD_MS) -> None:
        for name in [part_name(0), *([MANIFEST_NAME] if whole else [])]:
            self.objects[f"{path}/{name}"] = modified_ms

    @property
    def attempts(self) -> set[str]:
        """Directories that have an object."""
        return {path.rpartition("/")[0] for path in self.objects}


@dataclass
class World:
    """One cluster, and its stores by location."""

    metadata: SqliteMetadataStore
    stores: dict[str, DictStore]
    config: BrokerConfig

    @property
    def ledgers(self) -> OffloadLedgers:
        clock: Clock = StandingClock()
        return OffloadLedgers(self.metadata, KEYS, clock)

    @property
    def store(self) -> DictStore:
        return self.stores[LOCATION]

    def sweeping(self) -> ObjectSweep:
        return ObjectSweep(
            self.metadata, KEYS, self.ledgers, self.config.offload, self.config.cluster_name, self.open_store
        )

    def open_store(self, location: str) -> DictStore:
        if location not in self.stores:
            raise ConfigError(f"{location} needs a package that is not here")
        return self.stores[location]

    async def add_ledger(
        self, ledger_id: int, state: Offload.State.ValueType, location: str = LOCATION
    ) -> str:
        """A closed ledger of the topic, whose attempt has its own number; returns the path of its objects."""
        path = path_of(ledger_id)
        ledger = TopicLedger(ref=LedgerRef(id=ledger_id, key=1), last_entry_id=4, entries=5)
        ledger.offload.CopyFrom(
            Offload(state=state, attempt=attempt_of(ledger_id), location=location, path=path)
        )
        await self.metadata.put(KEYS.topic_head(TOPIC), encode(TopicHead(creation_id=1)))
        await self.metadata.put(KEYS.topic_ledger(1, ledger_id), encode(ledger))
        return path

    async def add_deletion(self, ledger_id: int, path: str, location: str = LOCATION) -> str:
        """A recorded deletion; returns its key."""
        intent = Intent(id=delete_objects_intent_id(ledger_id, attempt_of(ledger_id)), created_ms=OLD_MS)
        intent.delete_objects.location = location
        intent.delete_objects.path = path
        key = KEYS.intent(intent.id)
        await self.metadata.put(key, encode(intent))
        return key


def attempt_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def path_of(ledger_id: int, attempt: int | None = None) -> str:
    return attempt_path(TOPIC, ledger_id, attempt_of(ledger_id if attempt is None else attempt))


def in_world(tmp_path: Path, body: Callable[[World], Awaitable[None]]) -> None:
    """Run `body` in a world of its own, whose namespace says that objects go to LOCATION."""

    async def main() -> None:
        metadata = await SqliteMetadataStore.open(tmp_path / "metadata.sqlite")
        try:
            await metadata.put(KEYS.instance_id, encode(InstanceId(uuid=INSTANCE)))
            await metadata.put(KEYS.namespace(NamespaceName("public", "default")), encode(Namespace()))
            config = BrokerConfig(offload=OffloadConfig(location=LOCATION, grace_s=GRACE_S))
            await body(World(metadata, {LOCATION: DictStore(LOCATION)}, config))
        finally:
            await metadata.close()

    asyncio.run(main())
