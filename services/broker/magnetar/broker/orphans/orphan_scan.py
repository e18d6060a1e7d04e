"""Scans all of metadata for orphans once, in bounded steps.

Keys by id (ledgers, closed ledgers of topics) are read in blocks of `BLOCK` ids, and the owner of each is
looked up. Keys by name are read one family at a time and processed in slices. The scan pauses between steps.

The reads are not at one revision, so a scan only finds candidates: keys created or moved during the scan may
be among them, and are absent or different in the next scan.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final, TypeVar

from magnetar.broker.orphans.orphan import (
    LEDGER,
    PARTITIONED_TOPIC,
    SCHEMA,
    TOPIC,
    TOPIC_LEDGER,
    TOPIC_POLICIES,
    Orphan,
)
from magnetar.common.errors import InvalidName
from magnetar.common.metadata.keys import (
    ID_DIGITS,
    Keys,
    delete_ledger_intent_id,
    delete_namespace_intent_id,
    delete_topic_intent_id,
    encode_id,
)
from magnetar.common.metadata.store import MetadataStore, Versioned
from magnetar.common.metadata.values import (
    CompactedView,
    Counter,
    Intent,
    LedgerMetadata,
    TopicHead,
    TransactionLogHead,
    decode,
)
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import PERSISTENT, TopicName, is_heartbeat_topic
from magnetar.ledger.managed_ledger.view_record import find_view, ledgers_of

T = TypeVar("T")

BLOCK_DIGITS: Final = 3
BLOCK: Final = 10**BLOCK_DIGITS
"""Ids read at a time."""

SLICE: Final = 200
"""Keys of a family processed between two pauses."""

Pause = Callable[[], Awaitable[None]]


class Look:
    """One scan; `orphans` is iterated once."""

    def __init__(self, metadata: MetadataStore, keys: Keys, pause: Pause) -> None:
        """Awaits `pause` between two steps."""
        self._metadata = metadata
        self._keys = keys
        self._pause = pause
        self._creation_ids: set[int] = set()
        self._bases: set[str] = set()
        self._namespaces: set[NamespaceName] = set()
        self._deleted_topics: set[str] = set()
        self.ledgers = 0
        """Number of ledgers scanned."""
        self.topics = 0
        """Number of topics scanned; partitioned topics and their partitions each count."""

    async def orphans(self) -> AsyncIterator[Orphan]:
        """Yields every orphan that one scan can detect. Raises MetadataError, DataCorruption."""
        # Keys created from here on are not scanned.
        ledger_ids = await self._counter(self._keys.ledger_id_counter)
        creation_ids = await self._counter(self._keys.creation_id_counter)
        heads = await self._heads()
        partitioned = await self._family(
            self._keys.partitioned_topics_prefix(), self._keys.topic_of_partitioned
        )
        self._bases.update(name.full for _, name in partitioned)
        self.topics = len(heads) + len(partitioned)
        # Namespaces after their contents: a namespace created during the scan gets its topics later.
        await self._read_namespaces()
        for item, name in [*heads, *partitioned]:
            if name.namespace not in self._namespaces and not is_heartbeat_topic(name):
                kind = TOPIC if item.key.startswith(self._keys.topic_heads_prefix()) else PARTITIONED_TOPIC
                yield self._of_gone_namespace(kind, item, name)
        del heads, partitioned
        policies = await self._family(self._keys.topic_policies_prefix(), self._keys.topic_of_policies)
        schemas = await self._family(self._keys.schemas_family_prefix, self._keys.topic_of_schema)
        for kind, family in ((TOPIC_POLICIES, policies), (SCHEMA, schemas)):
            for item, name in family:
                found = self._said_of_nothing(kind, item, name)
                if found is not None:
                    yield found
        del policies, schemas
        async for block in self._blocks(self._keys.topics_prefix, creation_ids):
            for item in block:
                creation_id, ledger_id = self._keys.topic_ledger_ids_of(item.key)
                # A block may contain topics created after the heads were read.
                known = creation_id in self._creation_ids or creation_id >= creation_ids
                if not known and not await self._is_intended(creation_id):
                    yield Orphan(
                        TOPIC_LEDGER,
                        item.key,
                        item.version,
                        f"ledger {ledger_id} of the topic with creation id {creation_id}",
                        "there is no topic with that creation id",
                    )
        async for block in self._blocks(self._keys.ledgers_prefix, ledger_ids):
            self.ledgers += len(block)
            for item in block:
                orphan = await ledger_orphan(self._metadata, self._keys, item)
                if orphan is not None:
                    yield orphan

    async def _counter(self, key: str) -> int:
        found = await self._metadata.get(key)
        return 1 if found is None else decode(Counter, found.value).next

    async def _heads(self) -> list[tuple[Versioned, TopicName]]:
        heads = await self._family(self._keys.topic_heads_prefix(), self._keys.topic_of_head)
        for number, (item, name) in enumerate(heads):
            self._creation_ids.add(decode(TopicHead, item.value).creation_id)
            self._bases.update((name.full, name.base.full))
            if number % SLICE == SLICE - 1:
                await self._pause()
        return heads

    async def _family(
        self, prefix: str, name_of: Callable[[str], TopicName]
    ) -> list[tuple[Versioned, TopicName]]:
        found = []
        items = (await self._metadata.children(prefix)).items
        await self._pause()
        for some in _sliced(items, SLICE):
            found += [(item, name_of(item.key)) for item in some]
            await self._pause()
        return found

    async def _read_namespaces(self) -> None:
        prefix = self._keys.namespaces_prefix()
        for item in (await self._metadata.children(prefix)).items:
            self._namespaces.add(self._keys.namespace_of(item.key))
        # The deletion of a namespace removes all of its contents.
        for item in (await self._metadata.children(self._keys.intents_prefix)).items:
            intent = decode(Intent, item.value)
            if intent.WhichOneof("target") == "delete_namespace":
                self._namespaces.add(NamespaceName.parse(intent.delete_namespace.name))
        await self._pause()

    async def _is_intended(self, creation_id: int) -> bool:
        return await self._metadata.get(self._keys.intent(delete_topic_intent_id(creation_id))) is not None

    def _of_gone_namespace(self, kind: str, item: Versioned, name: TopicName) -> Orphan:
        return Orphan(kind, item.key, item.version, name.full, f"there is no namespace {name.namespace}")

    def _said_of_nothing(self, kind: str, item: Versioned, name: TopicName) -> Orphan | None:
        if name.namespace not in self._namespaces:
            return self._of_gone_namespace(kind, item, name)
        # Metadata does not list non-persistent topics.
        if name.domain != PERSISTENT or name.full in self._bases:
            return None
        # It may have been set before its topic is created.
        return Orphan(kind, item.key, item.version, name.full, "there is no such topic", ask_first=True)

    async def _blocks(self, prefix: str, end: int) -> AsyncIterator[list[Versioned]]:
        """Yields the keys with ids below `end`, in blocks."""
        for first in range(0, end, BLOCK):
            listing = await self._metadata.children(prefix + encode_id(first)[: ID_DIGITS - BLOCK_DIGITS])
            yield listing.items
            await self._pause()


def _sliced(items: list[T], size: int) -> Iterator[list[T]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]


async def ledger_orphan(metadata: MetadataStore, keys: Keys, item: Versioned) -> Orphan | None:
    """Returns the orphan for a ledger; None when the ledger is referenced, or its metadata names neither a
    topic nor a transaction coordinator.
    """
    value = decode(LedgerMetadata, item.value)
    coordinator_id = coordinator_of_ledger(value)
    if coordinator_id is not None:
        if await names_of_log_ledger(metadata, keys, coordinator_id, value.ref.id) is not None:
            return None
        return Orphan(
            LEDGER,
            item.key,
            item.version,
            f"ledger {value.ref.id} of transaction coordinator {coordinator_id}",
            "neither its coordinator nor a recorded deletion names it",
            value.byte_length,
        )
    name = topic_of_ledger(value)
    if name is None or await names_of_ledger(metadata, keys, name, value.ref.id) is not None:
        return None
    return Orphan(
        LEDGER,
        item.key,
        item.version,
        f"ledger {value.ref.id} of {name}",
        "neither its topic nor a recorded deletion names it",
        value.byte_length,
    )


def topic_of_ledger(value: LedgerMetadata) -> TopicName | None:
    """Returns the topic named in a ledger's metadata; None when it names none."""
    try:
        return TopicName.parse(value.properties.get("topic", ""))
    except InvalidName:
        return None


def coordinator_of_ledger(value: LedgerMetadata) -> int | None:
    """Returns the transaction coordinator named in a ledger's metadata; None when it names none."""
    text = value.properties.get("coordinator", "")
    return int(text) if text.isdecimal() else None


async def names_of_log_ledger(
    metadata: MetadataStore, keys: Keys, coordinator_id: int, ledger_id: int
) -> str | None:
    """Returns the key that references a ledger of a transaction log: its coordinator's head, or an intent to
    delete it; None without one.

    A new ledger moves from its intent to the head, and the old one from the head to an intent, in one
    transaction. So the head is read before and after the intent.
    """
    head_key = keys.transaction_log_head(coordinator_id)
    intent_key = keys.intent(delete_ledger_intent_id(ledger_id))
    for key in (head_key, intent_key, head_key):
        found = await metadata.get(key)
        if found is None:
            continue
        if key == intent_key or decode(TransactionLogHead, found.value).log.id == ledger_id:
            return key
    return None


async def names_of_ledger(metadata: MetadataStore, keys: Keys, name: TopicName, ledger_id: int) -> str | None:
    """Returns the key that references a ledger: its topic's, or an intent to delete it; None without one.

    They are read in this order because references move from the head to the list of closed ledgers, and from
    those and the compacted view to an intent. A ledger of pages moves from its intent to the view, in a
    transaction that changes the head's version.
    """
    head_item = await metadata.get(keys.topic_head(name))
    if head_item is not None:
        head = decode(TopicHead, head_item.value)
        if ledger_id in [ref.id for ref in (*head.open_ledgers, head.cursor_ledger)]:
            return head_item.key
        closed = keys.topic_ledger(head.creation_id, ledger_id)
        if await metadata.get(closed) is not None:
            return closed
        view = await find_view(metadata, keys, head)
        if view is not None:
            named = ledgers_of(decode(CompactedView, view.value))
            if ledger_id in [ref.id for ref in named]:
                return view.key
    intent_key = keys.intent(delete_ledger_intent_id(ledger_id))
    if await metadata.get(intent_key) is not None:
        return intent_key
    for item in (await metadata.children(keys.intents_prefix)).items:
        if decode(Intent, item.value).delete_topic.name == name.full:
            return item.key
    return None


def namespace_intent(keys: Keys, namespace: NamespaceName) -> str:
    """The key of the intent to delete a namespace."""
    return keys.intent(delete_namespace_intent_id(namespace))
