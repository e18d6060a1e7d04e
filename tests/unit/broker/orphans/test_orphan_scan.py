"""A look finds what nothing names, and nothing else."""

from __future__ import annotations

import pytest
from magnetar.broker.orphans import orphan as orphans
from magnetar.broker.orphans.orphan import Orphan
from magnetar.broker.orphans.orphan_scan import BLOCK, Look
from magnetar.common.metadata.keys import delete_ledger_intent_id, delete_topic_intent_id
from magnetar.common.metadata.store import Listing
from magnetar.common.metadata.values import (
    Counter,
    Intent,
    LedgerMetadata,
    SchemaRecord,
    TopicHead,
    TopicLedger,
    TopicPolicies,
    TransactionLogHead,
    decode,
    encode,
)
from magnetar.common.metadata.values import LedgerRef as LedgerRefValue
from magnetar.common.naming.topic_name import TopicName
from magnetar.ledger.managed_ledger.directory import create_managed_ledgers
from magnetar.ledger.managed_ledger.topic_head import ref_value

from tests.simulation.power_loss import KEYS
from tests.unit.broker.orphans.litter import LITTER, ledger, litter, log_ledger
from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, subscribed


async def found_in(made: Topics) -> list[Orphan]:
    async def pause() -> None: ...

    return [each async for each in Look(made.process.metadata, KEYS, pause).orphans()]


def test_a_broker_in_use_has_none() -> None:
    async def scenario(made: Topics) -> None:
        for name in ("a", "persistent://public/default/b", "non-persistent://public/default/n"):
            await subscribed(await made.load(name), ListeningPeer())
        await made.partitioned.create_partitioned(TopicName.parse("p"), 3, {})
        await made.load("p-partition-1")
        await made.registry.unload(TopicName.parse("a"))
        await made.load("a")
        await create_managed_ledgers(made.ledgers, ["persistent://pulsar/b1:8080/healthcheck"])
        assert await found_in(made) == []

    in_a_broker(scenario)


@pytest.mark.parametrize("kind", orphans.KINDS)
def test_each_kind_is_found_with_its_key(kind: str) -> None:
    async def scenario(made: Topics) -> None:
        await subscribed(await made.load("used"), ListeningPeer())
        key = await litter(made, kind)
        (found,) = await found_in(made)
        stored = await made.process.metadata.get(key)
        assert stored is not None
        assert (found.kind, found.key, found.version) == (kind, key, stored.version)
        assert found.byte_count == (1_000 if kind == orphans.LEDGER else 0)

    in_a_broker(scenario)


def test_ledger_named_by_an_intent_is_no_orphan() -> None:
    async def scenario(made: Topics) -> None:
        metadata = made.process.metadata
        await litter(made, orphans.LEDGER)
        await litter(made, orphans.TOPIC_LEDGER)
        (ledger, closed) = sorted(await found_in(made), key=lambda each: each.kind)
        one, other = KEYS.ledger_id_of(ledger.key), KEYS.topic_ledger_ids_of(closed.key)[0]
        intents = {
            delete_ledger_intent_id(one): Intent(delete_ledger=Intent.DeleteLedger()),
            delete_topic_intent_id(other): Intent(delete_topic=Intent.DeleteTopic(creation_id=other)),
        }
        for intent_id, intent in intents.items():
            await metadata.put(KEYS.intent(intent_id), encode(intent))
        assert await found_in(made) == []

    in_a_broker(scenario)


def test_a_ledger_of_a_coordinator_is_an_orphan_unless_its_head_or_an_intent_names_it() -> None:
    async def scenario(made: Topics) -> None:
        metadata = made.process.metadata
        named, intended, lost = [await log_ledger(made, 3) for _ in range(3)]
        head = TransactionLogHead(log=ref_value(named))
        await metadata.put(KEYS.transaction_log_head(3), encode(head))
        intent = Intent(delete_ledger=Intent.DeleteLedger())
        await metadata.put(KEYS.intent(delete_ledger_intent_id(intended.id)), encode(intent))
        (found,) = await found_in(made)
        assert found.key == KEYS.ledger(lost.id)
        assert found.what == f"ledger {lost.id} of transaction coordinator 3"
        assert found.byte_count == 1_000

    in_a_broker(scenario)


def test_ledgers_of_a_topic_that_is_being_deleted_are_none() -> None:
    async def scenario(made: Topics) -> None:
        await litter(made, orphans.LEDGER)
        intent = Intent(delete_topic=Intent.DeleteTopic(name=LITTER.full, creation_id=77))
        await made.process.metadata.put(KEYS.intent(delete_topic_intent_id(77)), encode(intent))
        assert await found_in(made) == []

    in_a_broker(scenario)


def test_a_namespace_that_is_being_deleted_has_none() -> None:
    async def scenario(made: Topics) -> None:
        for kind in (orphans.TOPIC, orphans.PARTITIONED_TOPIC):
            key = await litter(made, kind)
            assert len(await found_in(made)) == 1
            name = "gone/ns"
            intent = Intent(delete_namespace=Intent.DeleteNamespace(name=name, force=True))
            intent_key = KEYS.intent(f"delete-namespace-{name}")
            await made.process.metadata.put(intent_key, encode(intent))
            assert await found_in(made) == []
            await made.process.metadata.delete(key)
            await made.process.metadata.delete(intent_key)

    in_a_broker(scenario)


def test_schemas_and_policies_of_a_partition_belong_to_its_base() -> None:
    async def scenario(made: Topics) -> None:
        await made.load("odd-partition-3")
        base, metadata = TopicName.parse("odd"), made.process.metadata
        await metadata.put(KEYS.schema(base, 0), encode(SchemaRecord()))
        await metadata.put(KEYS.topic_policies(base), encode(TopicPolicies()))
        assert await found_in(made) == []

    in_a_broker(scenario)


def test_ledgers_that_do_not_say_whose_they_are_are_left_alone() -> None:
    async def scenario(made: Topics) -> None:
        nameless = LedgerMetadata(ref=LedgerRefValue(id=1, key=1))
        await made.process.metadata.put(KEYS.ledger_id_counter, encode(Counter(next=2)))
        await made.process.metadata.put(KEYS.ledger(1), encode(nameless))
        assert await found_in(made) == []

    in_a_broker(scenario)


def test_ids_beyond_one_block_are_found() -> None:
    async def scenario(made: Topics) -> None:
        metadata = made.process.metadata
        counter = await metadata.get(KEYS.ledger_id_counter)
        assert counter is None
        await metadata.put(KEYS.ledger_id_counter, encode(Counter(next=3 * BLOCK + 7)))
        key = await litter(made, orphans.LEDGER)
        assert KEYS.ledger_id_of(key) == 3 * BLOCK + 7
        assert [each.key for each in await found_in(made)] == [key]

    in_a_broker(scenario)


def test_a_topic_that_is_made_during_a_look_is_none() -> None:
    """Its head came after the heads were read, and its first ledger is closed before those are."""

    async def scenario(made: Topics) -> None:
        await made.load("before")
        metadata = made.process.metadata
        children = metadata.children

        async def late(prefix: str) -> Listing:
            listing = await children(prefix)
            if prefix == KEYS.topic_heads_prefix():
                await create_managed_ledgers(made.ledgers, [LITTER.full])
                head = await metadata.get(KEYS.topic_head(LITTER))
                assert head is not None
                creation_id = decode(TopicHead, head.value).creation_id
                ref = await ledger(made)
                closed = encode(TopicLedger(ref=ref_value(ref)))
                await metadata.put(KEYS.topic_ledger(creation_id, ref.id), closed)
            return listing

        metadata.children = late  # type: ignore[method-assign]
        assert await found_in(made) == []

    in_a_broker(scenario)
