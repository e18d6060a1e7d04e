"""What is cleared is gone with all of it; what has come to belong to something stays."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
from magnetar.broker.orphans import orphan as orphans
from magnetar.broker.orphans.orphan import Orphan
from magnetar.broker.orphans.orphan_removal import Clearing
from magnetar.common.metadata.keys import delete_topic_intent_id
from magnetar.common.metadata.store import Op
from magnetar.common.metadata.values import (
    Intent,
    LedgerMetadata,
    Namespace,
    TopicHead,
    TopicLedger,
    TransactionLogHead,
    decode,
    encode,
)
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.directory import create_managed_ledgers
from magnetar.ledger.managed_ledger.topic_head import ref_value

from tests.simulation.power_loss import KEYS
from tests.unit.broker.orphans.litter import GONE, LITTER, ledger, litter, log_ledger
from tests.unit.broker.orphans.test_orphan_scan import found_in
from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, subscribed


def clearing_of(made: Topics) -> Clearing:
    return Clearing(made.ledgers, made.registry)


@pytest.mark.parametrize("kind", orphans.KINDS)
def test_each_kind_is_cleared_and_nothing_else_with_it(kind: str) -> None:
    async def scenario(made: Topics) -> None:
        await subscribed(await made.load("used"), ListeningPeer())
        before = made.keys()
        await litter(made, kind)
        (found,) = await found_in(made)
        assert await clearing_of(made).clear(found)
        assert await found_in(made) == []
        assert made.keys() == before
        assert not await clearing_of(made).clear(found), "once is enough"

    in_a_broker(scenario)


def test_ledger_written_since_the_scan_stays() -> None:
    async def scenario(made: Topics) -> None:
        for kind in orphans.KINDS:
            key = await litter(made, kind)
            (found,) = [each for each in await found_in(made) if each.key == key]
            stored = await made.process.metadata.get(key)
            assert stored is not None
            await made.process.metadata.put(key, stored.value)
            assert not await clearing_of(made).clear(found)
            assert await made.process.metadata.get(key) is not None

    in_a_broker(scenario)


async def name_ledger(made: Topics, key: str) -> None:
    """A topic comes to be that has it."""
    found = await made.process.metadata.get(key)
    assert found is not None
    head = TopicHead(creation_id=50, open_ledgers=[decode(LedgerMetadata, found.value).ref])
    await made.process.metadata.put(KEYS.topic_head(LITTER), encode(head))


async def intend(made: Topics, key: str) -> None:
    creation_id, _ = KEYS.topic_ledger_ids_of(key)
    await made.process.metadata.put(KEYS.intent(delete_topic_intent_id(creation_id)), encode(Intent()))


async def make_topic(made: Topics, key: str) -> None:
    await made.process.metadata.put(KEYS.topic_head(LITTER), encode(TopicHead(creation_id=50)))


async def make_namespace(made: Topics, key: str) -> None:
    await made.process.metadata.put(KEYS.namespace(GONE.namespace), encode(Namespace()))


async def make_namespace_and_topic(made: Topics, key: str) -> None:
    await make_namespace(made, key)
    await made.process.metadata.put(KEYS.topic_head(GONE), encode(TopicHead(creation_id=50)))


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        (orphans.LEDGER, name_ledger),
        (orphans.TOPIC_LEDGER, intend),
        (orphans.TOPIC, make_namespace),
        (orphans.PARTITIONED_TOPIC, make_namespace),
        (orphans.TOPIC_POLICIES, make_namespace_and_topic),
        (orphans.SCHEMA, make_topic),
    ],
)
@pytest.mark.parametrize("last_moment", [False, True])
def test_ledger_that_gained_an_owner_stays(
    kind: str, act: Callable[[Topics, str], Awaitable[None]], last_moment: bool
) -> None:
    """Between the look and the clearing, or between the clearing's own look and its transaction."""

    async def scenario(made: Topics) -> None:
        metadata = made.process.metadata
        key = await litter(made, kind)
        (found,) = await found_in(made)
        commit = metadata.commit

        async def late(ops: Sequence[Op]) -> int:
            metadata.commit = commit  # type: ignore[method-assign]
            await act(made, key)
            return await commit(ops)

        if last_moment:
            metadata.commit = late  # type: ignore[method-assign]
        else:
            await act(made, key)
        assert not await clearing_of(made).clear(found)
        assert await metadata.get(key) is not None

    in_a_broker(scenario)


@pytest.mark.parametrize("last_moment", [False, True])
def test_a_log_ledger_is_cleared_unless_its_coordinator_names_it_meanwhile(last_moment: bool) -> None:
    async def scenario(made: Topics) -> None:
        metadata = made.process.metadata
        before = made.keys()
        await log_ledger(made, 3)
        (found,) = await found_in(made)
        assert await clearing_of(made).clear(found)
        assert made.keys() == before
        ref = await log_ledger(made, 3)
        (found,) = await found_in(made)
        commit = metadata.commit
        head = encode(TransactionLogHead(log=ref_value(ref)))

        async def late(ops: Sequence[Op]) -> int:
            metadata.commit = commit  # type: ignore[method-assign]
            await metadata.put(KEYS.transaction_log_head(3), head)
            return await commit(ops)

        if last_moment:
            metadata.commit = late  # type: ignore[method-assign]
        else:
            await metadata.put(KEYS.transaction_log_head(3), head)
        assert not await clearing_of(made).clear(found)
        assert await metadata.get(KEYS.ledger(ref.id)) is not None

    in_a_broker(scenario)


def test_a_ledger_that_is_taken_over_by_its_topic_meanwhile_stays() -> None:
    """A cursor ledger in the making is named by an intent first, and then by the head."""

    async def scenario(made: Topics) -> None:
        metadata = made.process.metadata
        await make_topic(made, "")
        ref = await ledger(made)
        (found,) = await found_in(made)
        await metadata.put(
            KEYS.topic_head(LITTER), encode(TopicHead(creation_id=50, cursor_ledger=ref_value(ref)))
        )
        assert not await clearing_of(made).clear(found)
        assert await found_in(made) == []

    in_a_broker(scenario)


def test_a_closed_ledger_of_a_topic_that_is_there_stays_whatever_the_look_was_told() -> None:
    """A listing that lacked the topic's head is no reason to delete its messages."""

    async def scenario(made: Topics) -> None:
        metadata = made.process.metadata
        await create_managed_ledgers(made.ledgers, [LITTER.full])
        head = await metadata.get(KEYS.topic_head(LITTER))
        assert head is not None
        ref = await ledger(made)
        key = KEYS.topic_ledger(decode(TopicHead, head.value).creation_id, ref.id)
        await metadata.put(key, encode(TopicLedger(ref=ref_value(ref))))
        item = await metadata.get(key)
        assert item is not None
        found = Orphan(orphans.TOPIC_LEDGER, key, item.version, "a closed ledger", "it seemed so")
        assert not await clearing_of(made).clear(found)
        assert await metadata.get(key) is not None
        assert await metadata.get(KEYS.ledger(ref.id)) is not None

    in_a_broker(scenario)


@pytest.mark.parametrize("has_a_topic", [True, False])
def test_a_ledger_that_left_bookies_is_cleared_with_its_objects_and_only_if_no_topic_has_it(
    has_a_topic: bool,
) -> None:
    """Nothing but its key names it: every topic is asked."""

    async def scenario(made: Topics) -> None:
        metadata = made.process.metadata
        await create_managed_ledgers(made.ledgers, [LITTER.full])
        head = await metadata.get(KEYS.topic_head(LITTER))
        assert head is not None
        key = KEYS.topic_ledger(decode(TopicHead, head.value).creation_id, 5)
        value = TopicLedger(ref=ref_value(LedgerRef(5, 6)))
        value.offload.attempt, value.offload.path, value.offload.location = b"a" * 16, "path", "file:///x"
        value.offload.left_bookies_ms = 1
        await metadata.put(key, encode(value))
        item = await metadata.get(key)
        assert item is not None
        if not has_a_topic:
            await metadata.delete(head.key)
        found = Orphan(orphans.TOPIC_LEDGER, key, item.version, "a closed ledger", "it seemed so")
        assert await clearing_of(made).clear(found) == (not has_a_topic)
        assert (await metadata.get(key) is None) == (not has_a_topic)
        listing = await metadata.children(KEYS.intents_prefix)
        paths = [decode(Intent, each.value).delete_objects.path for each in listing.items]
        assert paths == ([] if has_a_topic else ["path"])

    in_a_broker(scenario)
