"""Offload steps on closed ledgers, independent of their topics' owners: lookup, listing and state changes.

A step is committed by the version of the ledger's own key. After a concurrent change, or a write with unknown
outcome, the key is read again: the steps of `offload_state` are idempotent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import (
    DataCorruption,
    MetadataError,
    TopicNotFound,
    UnknownOutcome,
    UnsupportedFormat,
    VersionMismatch,
)
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.restoration import holds_deletion, read_restoration
from magnetar.common.metadata.store import MetadataStore, Op, Put, Versioned
from magnetar.common.metadata.values import TopicHead, TopicLedger, decode, encode
from magnetar.common.naming.namespace_name import NamespaceName
from magnetar.common.naming.topic_name import PERSISTENT, TopicName
from magnetar.common.obs.logs import get_logger
from magnetar.common.offload.offload_refusals import NoLedgerToOffload
from magnetar.common.runtime.clock import Clock

log = get_logger(__name__)

LISTED_AT_ONCE: Final = 32
"""Number of topics whose ledgers are read concurrently."""

DECODED_AT_ONCE: Final = 500
"""Ledgers of a topic decoded between two turns of the event loop."""

_ATTEMPTS_MAX: Final = 10

Step = Callable[[TopicLedger], TopicLedger]
"""A step of `offload_state` with all arguments but the ledger; may run again on a newer value."""

WithOps = Callable[[TopicLedger], Sequence[Op]]
"""Returns further writes for the transaction of a step, given the ledger's new state."""


@dataclass(frozen=True, slots=True)
class TopicLedgers:
    """The closed ledgers of one incarnation of a topic, in order."""

    topic: TopicName
    creation_id: int
    ledgers: list[TopicLedger]
    unreadable: int = 0
    """Ledgers whose metadata this release cannot read."""


class OffloadLedgers:
    """The closed ledgers of a cluster, accessed through metadata alone."""

    def __init__(self, metadata: MetadataStore, keys: Keys, clock: Clock) -> None:
        self._metadata = metadata
        self._keys = keys
        self.clock = clock

    async def knows_all(self) -> bool:
        """Returns whether metadata knows every offloaded ledger; not if it was restored from a backup older
        than some offloads. Raises MetadataError, StorageError.
        """
        return not holds_deletion(await read_restoration(self._metadata, self._keys))

    async def creation_id(self, topic: TopicName) -> int:
        """Returns the creation id of the topic's current incarnation. Raises TopicNotFound, MetadataError."""
        found = await self._metadata.get(self._keys.topic_head(topic))
        if found is None:
            raise TopicNotFound(f"topic {topic} does not exist")
        return decode(TopicHead, found.value).creation_id

    async def of_topic(self, topic: TopicName) -> TopicLedgers:
        """Returns the topic's closed ledgers. Raises TopicNotFound, MetadataError."""
        return await self._ledgers_of(topic, await self.creation_id(topic))

    async def find(self, topic: TopicName, creation_id: int, ledger_id: int) -> TopicLedger:
        """Returns a closed ledger's current state. Raises NoLedgerToOffload, MetadataError."""
        return decode(TopicLedger, (await self._get(topic, creation_id, ledger_id)).value)

    async def change(
        self,
        topic: TopicName,
        creation_id: int,
        ledger_id: int,
        step: Step,
        with_ops: WithOps | None = None,
    ) -> TopicLedger:
        """Takes a step; returns the ledger's new state. A step that changes nothing is not written.

        Raises the step's refusal, NoLedgerToOffload, MetadataError if concurrent changes persist or the store
        does not answer.
        """
        for _ in range(_ATTEMPTS_MAX):
            found = await self._get(topic, creation_id, ledger_id)
            after = step(decode(TopicLedger, found.value))
            value = encode(after)
            if value == found.value:
                return after
            ops: list[Op] = [Put(found.key, value, found.version)]
            if with_ops is not None:
                ops += with_ops(after)
            try:
                await self._metadata.commit(ops)
            except (VersionMismatch, UnknownOutcome):
                continue
            return after
        raise MetadataError(f"ledger {ledger_id} of {topic} keeps being changed by others; try again")

    async def everywhere(
        self,
        after: TopicName | None = None,
        namespace: NamespaceName | None = None,
        *,
        rest: float = 0.0,
    ) -> AsyncIterator[TopicLedgers]:
        """Yields topics with a closed ledger, of one namespace or of all, in key order, after `after`.

        Not a snapshot: concurrent changes may or may not appear. Holds the heads of one namespace and the
        ledgers of some topics in memory. `rest` is the pause in seconds after each second of reading, for
        callers without urgency. Raises MetadataError.
        """
        keys = self._keys
        behind = "" if after is None else keys.topic_head(after)
        if namespace is None:
            items = (await self._metadata.children(keys.namespaces_prefix())).items
            namespaces = [keys.namespace_of(item.key) for item in items]
        else:
            namespaces = [namespace]
        # In the order of the heads, which differs from that of the namespaces' own keys: '-' sorts before
        # '/'.
        for prefix in sorted(keys.topic_heads_prefix(PERSISTENT, each) for each in namespaces):
            if prefix < behind and not behind.startswith(prefix):
                continue
            heads = [item for item in (await self._metadata.children(prefix)).items if item.key > behind]
            for first in range(0, len(heads), LISTED_AT_ONCE):
                some = heads[first : first + LISTED_AT_ONCE]
                begun_s = self.clock.monotonic()
                for found in await asyncio.gather(*map(self._of_head, some)):
                    if found.ledgers or found.unreadable:
                        yield found
                if rest:
                    await asyncio.sleep(rest * (self.clock.monotonic() - begun_s))

    # --- internal ---

    async def _get(self, topic: TopicName, creation_id: int, ledger_id: int) -> Versioned:
        found = await self._metadata.get(self._keys.topic_ledger(creation_id, ledger_id))
        if found is None:
            raise NoLedgerToOffload(
                f"topic {topic} (creation id {creation_id}) has no closed ledger {ledger_id}: it is open, or "
                "was trimmed, or the topic was deleted"
            )
        return found

    async def _of_head(self, head: Versioned) -> TopicLedgers:
        topic = self._keys.topic_of_head(head.key)
        try:
            creation_id = decode(TopicHead, head.value).creation_id
        except (DataCorruption, UnsupportedFormat) as error:
            log.error("the head of a topic cannot be read", topic=topic.full, reason=str(error))
            return TopicLedgers(topic, 0, [], unreadable=1)
        return await self._ledgers_of(topic, creation_id)

    async def _ledgers_of(self, topic: TopicName, creation_id: int) -> TopicLedgers:
        ledgers, unreadable = [], 0
        items = (await self._metadata.children(self._keys.topic_ledgers_prefix(creation_id))).items
        for number, item in enumerate(items, 1):
            if number % DECODED_AT_ONCE == 0:
                await asyncio.sleep(0)  # a topic may have tens of thousands, and messages come first
            try:
                ledgers.append(decode(TopicLedger, item.value))
            except (DataCorruption, UnsupportedFormat) as error:
                unreadable += 1
                log.error("a ledger's metadata cannot be read", topic=topic.full, reason=str(error))
        return TopicLedgers(topic, creation_id, ledgers, unreadable)
