"""Finds the ledgers in metadata that belong to a topic or are being deleted; the others are orphans.

A backup taken while a topic moves to its next ledger may contain that ledger but not yet the topic's
reference to it. Entries confirmed in it since would otherwise be deleted as orphans.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore
from magnetar.common.metadata.values import (
    CompactedView,
    Intent,
    LedgerMetadata,
    TopicHead,
    TransactionLogHead,
    decode,
)


@dataclass(frozen=True, slots=True)
class Claims:
    """A snapshot of the claims on ledgers."""

    ledger_ids: frozenset[int]
    deleted_topics: frozenset[str]

    def lack(self, ledger: LedgerMetadata) -> bool:
        """Returns whether a ledger's metadata names a topic or a transaction coordinator, but neither that
        nor a deletion references it.
        """
        topic = owner_of(ledger)
        return bool(topic) and ledger.ref.id not in self.ledger_ids and topic not in self.deleted_topics


def owner_of(ledger: LedgerMetadata) -> str:
    """Returns the owner that a ledger's metadata names: a topic, or a transaction coordinator in words; empty
    without one.
    """
    coordinator_id = ledger.properties.get("coordinator")
    if coordinator_id is not None:
        return f"transaction coordinator {coordinator_id}"
    return ledger.properties.get("topic", "")


async def read_claims(metadata: MetadataStore, keys: Keys) -> Claims:
    """Reads the claims in the order in which references move: heads of topics and of transaction
    coordinators, closed ledgers, compacted views, deletions. Raises MetadataError, StorageError.
    """
    ledger_ids, deleted_topics = set[int](), set[str]()
    for item in (await metadata.children(keys.topic_heads_prefix())).items:
        head = decode(TopicHead, item.value)
        ledger_ids.update(ref.id for ref in (*head.open_ledgers, head.cursor_ledger))
    for item in (await metadata.children(keys.transactions_prefix)).items:
        ledger_ids.add(decode(TransactionLogHead, item.value).log.id)
    for item in (await metadata.children(keys.topics_prefix)).items:
        ledger_ids.add(keys.topic_ledger_ids_of(item.key)[1])
    for item in (await metadata.children(keys.compacted_views_prefix)).items:
        view = decode(CompactedView, item.value)
        ledger_ids.update(ref.id for ref in (*[each.ref for each in view.segments], view.dead_sets))
    for item in (await metadata.children(keys.intents_prefix)).items:
        intent = decode(Intent, item.value)
        ledger_ids.add(intent.delete_ledger.ref.id)
        deleted_topics.add(intent.delete_topic.name)
    return Claims(frozenset(ledger_ids - {0}), frozenset(deleted_topics - {""}))
