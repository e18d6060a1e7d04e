"""A recorded intent is finished while it stands, and never after what it names has come to be of use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from magnetar.common.errors import MagnetarError, MetadataError
from magnetar.common.metadata.store import Delete, Listing, Op, Put, Versioned
from magnetar.common.naming.position import EARLIEST
from magnetar.ledger.managed_ledger import delete_managed_ledger, finish_intents, managed_ledger_exists

from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import TOPIC, head_of, keys_of, load, load_again, simulated


def is_intent(op: Op) -> bool:
    return op.key.startswith(KEYS.intents_prefix)


def test_a_cursor_ledger_that_was_adopted_since_intents_were_listed_stays() -> None:
    """Whoever finishes intents was slow, and the ledger in the making is the topic's by now."""

    async def scenario(process: Process) -> None:
        topic = await load(process)
        metadata = process.metadata
        commit, children = metadata.commit, metadata.children
        listed: list[Listing] = []

        async def noting(ops: Sequence[Op]) -> int:
            revision = await commit(ops)
            if any(is_intent(op) and isinstance(op, Put) for op in ops):
                listed.append(await children(KEYS.intents_prefix))
            return revision

        metadata.commit = noting  # type: ignore[method-assign]
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        metadata.commit = commit  # type: ignore[method-assign]
        await topic.publish_confirmed(3)
        assert cursor.name in topic.ledger.cursors
        (then,) = listed
        assert len(then.items) == 1

        async def stale(prefix: str) -> Listing:
            return then if prefix == KEYS.intents_prefix else await children(prefix)

        metadata.children = stale  # type: ignore[method-assign]
        await finish_intents(topic.ctx)
        metadata.children = children  # type: ignore[method-assign]
        again = await load_again(topic.ctx)
        assert "sub" in again.ledger.cursors

    simulated(scenario)


def test_a_cursor_ledger_that_may_have_been_adopted_is_not_deleted() -> None:
    """The answer to the adoption is lost, and metadata cannot be asked what became of it."""

    async def scenario(process: Process) -> None:
        topic = await load(process, cursor_ledger_entries_max=3)
        await topic.publish_confirmed(5)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        before = head_of(process.world).cursor_ledger.id
        metadata = process.metadata
        commit, get = metadata.commit, metadata.get
        lost = 0

        async def once_away(key: str) -> Versioned | None:
            metadata.get = get  # type: ignore[method-assign]
            raise MetadataError("the metadata store cannot be reached")

        async def losing(ops: Sequence[Op]) -> int:
            nonlocal lost
            adopts = any(is_intent(op) and isinstance(op, Delete) for op in ops) and any(
                isinstance(op, Put) and "/topic-heads/" in op.key for op in ops
            )
            if adopts and not lost:
                lost += 1
                metadata.lose_next_outcome(applied=True)
                metadata.get = once_away  # type: ignore[method-assign]
            return await commit(ops)

        metadata.commit = losing  # type: ignore[method-assign]
        with suppress(MagnetarError):
            for _ in range(6):
                await topic.ledger.describe_cursor(topic.ledger.cursors["sub"], {"a": "b"})
        await asyncio.sleep(1)
        metadata.commit = commit  # type: ignore[method-assign]
        assert lost == 1
        assert head_of(process.world).cursor_ledger.id != before
        again = await load_again(topic.ctx)
        assert "sub" in again.ledger.cursors
        assert await again.read_all() == topic.listener.confirmed
        await finish_intents(topic.ctx)
        assert keys_of(process.world, "intents") == []

    simulated(scenario)


def test_a_deletion_whose_answer_was_lost_spares_the_next_topic_of_the_name() -> None:
    """Somebody made the topic anew before whoever deleted it asked what became of that."""

    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed(3)
        await topic.ledger.close()
        ctx, metadata = topic.ctx, process.metadata
        commit = metadata.commit

        async def losing(ops: Sequence[Op]) -> int:
            metadata.commit = commit  # type: ignore[method-assign]
            metadata.lose_next_outcome(applied=True)
            try:
                return await commit(ops)
            finally:
                await (await load_again(ctx, create=True)).publish_confirmed(2)

        metadata.commit = losing  # type: ignore[method-assign]
        await delete_managed_ledger(ctx, TOPIC)
        assert await managed_ledger_exists(ctx, TOPIC)
        again = await load_again(ctx)
        assert len(await again.read_all()) == 2
        await finish_intents(ctx)
        assert keys_of(process.world, "intents") == []

    simulated(scenario)
