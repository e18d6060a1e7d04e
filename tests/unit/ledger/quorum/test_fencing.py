"""Who has to be fenced, and who is waited for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from magnetar.common.errors import NotEnoughBookies
from magnetar.ledger.bookie_protocol.bookie_pb2 import LOG_FAILED, LedgerState
from magnetar.ledger.quorum.fencing import fence_ensemble
from magnetar.ledger.quorum.striping import Striping

from tests.unit.ledger.quorum.replica_world import REF, ReplicaBookie, ReplicaWorld, in_world


async def fence(world: ReplicaWorld, striping: Striping | None = None) -> dict[int, LedgerState]:
    ensemble: Sequence[ReplicaBookie] = [world.bookies[name] for name in world.ensemble]
    return await fence_ensemble(REF, striping or world.striping, ensemble, linger_s=0.05)


def test_e_minus_qa_plus_one_suffice_and_the_rest_is_waited_for_only_shortly() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.bookies["b"].silent = True
        states = await fence(world)
        assert sorted(states) == [0, 2]
        assert 0.05 <= world.loop.time() < 0.06

    in_world(scenario)


def test_all_prompt_fence_responses_are_used() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.bookies["b"].delay_s = 0.03
        assert sorted(await fence(world)) == [0, 1, 2]

    in_world(scenario)


def test_each_write_set_of_a_striped_ledger_must_be_left_fewer_than_qa() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for name in "ab":
            world.bookies[name].down = True
        with pytest.raises(NotEnoughBookies):  # entries of write set {a, b} could be confirmed
            await fence(world)
        world.bookies["b"].down = False
        world.bookies["c"].down = True
        assert sorted(await fence(world)) == [1, 3]  # a and c share no write set

    in_world(scenario, sizes=(4, 2, 2))


def test_a_bookie_that_could_not_make_its_fence_durable_does_not_count() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for name in "ab":
            world.bookies[name].fence_code = LOG_FAILED
        with pytest.raises(NotEnoughBookies, match="LOG_FAILED"):
            await fence(world)

    in_world(scenario)


def test_an_answer_that_does_not_say_fenced_does_not_count() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for name in "ab":
            world.bookies[name].ignores_fences = True
        with pytest.raises(NotEnoughBookies):
            await fence(world)

    in_world(scenario)
