"""Topics that are made without being loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from magnetar.common.metadata.store import Op
from magnetar.common.metadata.values import TopicHead, decode
from magnetar.ledger.managed_ledger import create_managed_ledgers, delete_managed_ledger, list_managed_ledgers

from tests.simulation.power_loss import Process
from tests.unit.ledger.managed_ledger.harness import TOPIC, keys_of, load, load_again, simulated

NAMES = [f"{TOPIC}-{number:03}" for number in range(230)]


def test_topics_are_made_with_ids_of_their_own_and_only_where_there_are_none() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed(3)
        await create_managed_ledgers(topic.ctx, [TOPIC, *NAMES])
        await create_managed_ledgers(topic.ctx, NAMES)
        assert [str(name) for name in await list_managed_ledgers(topic.ctx)] == [TOPIC, *NAMES]
        dump = process.world.metadata.dump()
        ids = [decode(TopicHead, dump[key]).creation_id for key in keys_of(process.world, "topic-heads")]
        assert len(set(ids)) == len(ids)
        assert decode(TopicHead, dump[keys_of(process.world, "topic-heads")[0]]).creation_id == 1
        await topic.publish_confirmed(3)
        await topic.ledger.close()
        again = await load_again(topic.ctx)
        assert len(await again.read_all()) == 6
        await delete_managed_ledger(topic.ctx, NAMES[0])
        assert len(await list_managed_ledgers(topic.ctx)) == len(NAMES)

    simulated(scenario)


def test_two_who_make_the_same_topics_at_once_both_succeed() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        commit = process.metadata.commit
        commits: list[int] = []

        async def late(ops: Sequence[Op]) -> int:
            if not commits:
                commits.append(1)
                await create_managed_ledgers(other, NAMES[:3])
            return await commit(ops)

        other = topic.ctx
        process.metadata.commit = late  # type: ignore[method-assign]
        await create_managed_ledgers(replace(topic.ctx), NAMES[:3])
        assert len(await list_managed_ledgers(topic.ctx)) == 4

    simulated(scenario)
