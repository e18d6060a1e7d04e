"""Leaves orphans in the metadata of a simulated broker."""

from __future__ import annotations

from magnetar.broker.orphans import orphan as orphans
from magnetar.common.metadata.values import (
    LedgerMetadata,
    PartitionedTopic,
    SchemaRecord,
    TopicHead,
    TopicLedger,
    TopicPolicies,
    decode,
    encode,
)
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.ledger_store import LedgerListener, LedgerRef
from magnetar.ledger.managed_ledger.directory import create_managed_ledgers
from magnetar.ledger.managed_ledger.topic_head import ref_value

from tests.simulation.power_loss import KEYS
from tests.unit.broker.topics.world import Topics

LITTER = TopicName.parse("litter")
"""A topic that is not there, in a namespace that is."""

GONE = TopicName.parse("gone/ns/t")
"""One in a namespace that is not there."""


async def log_ledger(made: Topics, coordinator_id: int) -> LedgerRef:
    """A closed ledger of 1,000 bytes that says it is a coordinator's, and that nothing names."""
    return await _ledger(made, {"coordinator": str(coordinator_id), "kind": "transactions"})


async def ledger(made: Topics, topic: TopicName = LITTER) -> LedgerRef:
    """A closed ledger of 1,000 bytes that says it is the topic's, and that nothing names."""
    return await _ledger(made, {"topic": topic.full, "kind": "entries"})


async def _ledger(made: Topics, properties: dict[str, str]) -> LedgerRef:
    writer = await made.ledgers.ledgers.create(
        LedgerListener(on_confirmed=lambda _: None, on_failed=lambda *_: None),
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        properties=properties,
    )
    await writer.close()
    found = await made.process.metadata.get(KEYS.ledger(writer.ref.id))
    assert found is not None
    value = decode(LedgerMetadata, found.value)
    value.byte_length = 1_000
    await made.process.metadata.put(found.key, encode(value))
    return writer.ref


async def litter(made: Topics, kind: str) -> str:
    """Leave an orphan of that kind; returns its key."""
    metadata = made.process.metadata
    match kind:
        case orphans.LEDGER:
            return KEYS.ledger((await ledger(made)).id)
        case orphans.TOPIC_LEDGER:
            await create_managed_ledgers(made.ledgers, [LITTER.full])
            head = KEYS.topic_head(LITTER)
            found = await metadata.get(head)
            assert found is not None
            creation_id = decode(TopicHead, found.value).creation_id
            await metadata.delete(head)
            key = KEYS.topic_ledger(creation_id, 1)
            await metadata.put(key, encode(TopicLedger(ref=ref_value(LedgerRef(1, 2)))))
        case orphans.TOPIC:
            await create_managed_ledgers(made.ledgers, [GONE.full])
            key = KEYS.topic_head(GONE)
        case orphans.PARTITIONED_TOPIC:
            key = KEYS.partitioned_topic(GONE)
            await metadata.put(key, encode(PartitionedTopic(partitions=2)))
        case orphans.TOPIC_POLICIES:
            key = KEYS.topic_policies(GONE)
            await metadata.put(key, encode(TopicPolicies()))
        case _:
            key = KEYS.schema(LITTER, 0)
            await metadata.put(key, encode(SchemaRecord()))
    return key
