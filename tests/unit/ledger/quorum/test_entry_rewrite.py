"""Re-writing a batch: who has it, who is replaced, who is given up."""

from __future__ import annotations

import pytest
from magnetar.common.errors import NotEnoughBookies
from magnetar.ledger.bookie_protocol.bookie_pb2 import BACKPRESSURE, UNREACHABLE, Code
from magnetar.ledger.quorum.entry_rewrite import Gap, Rewriter
from magnetar.ledger.quorum.striping import Fragment

from tests.unit.ledger.quorum.replica_world import REF, ReplicaWorld, a_run, entry, in_world


def rewriter(world: ReplicaWorld) -> Rewriter:
    return Rewriter(REF, world.layout(), world, world.replace, lac=1, grace_s=0.3)


def held(world: ReplicaWorld, bookie_id: str) -> list[int]:
    return sorted(world.bookies[bookie_id].held)


@pytest.mark.parametrize(("code", "times"), [(BACKPRESSURE, 20), (UNREACHABLE, 2)])
def test_a_bookie_that_has_no_room_or_lost_its_stream_is_sent_the_batch_again(
    code: Code.ValueType, times: int
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for name in "ab":
            world.bookies[name].refusals = [code] * times
        writing = rewriter(world)
        await writing.write([a_run(2, 5)])
        assert all(held(world, name) == [2, 3, 4, 5] for name in "abc")
        assert writing.gaps(5) == []

    in_world(scenario)


def test_a_straggler_is_replaced_once_the_others_have_the_batch() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.bookies["b"].silent = True
        writing = rewriter(world)
        await writing.write([a_run(2, 3)])
        await writing.write([a_run(4, 5)])
        assert writing.layout.fragments == [Fragment(0, ("a", "b", "c")), Fragment(2, ("a", "d", "c"))]
        assert held(world, "d") == [2, 3, 4, 5]
        assert world.loop.time() < 0.4

    in_world(scenario, spares=1)


@pytest.mark.parametrize("spares", [1, 2])
def test_a_replacement_that_does_not_answer_is_no_longer_waited_for_than_whom_it_replaces(
    spares: int,
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.bookies["b"].silent = world.bookies["d"].silent = True
        writing = rewriter(world)
        await writing.write([a_run(2, 5)])
        await writing.write([a_run(6, 7)])
        assert world.loop.time() < 0.7
        gaps = writing.gaps(7)
        if spares == 1:
            assert gaps == [Gap("d", 2, 7)]
        else:
            assert writing.layout.last_fragment == Fragment(2, ("a", "e", "c"))
            assert not gaps

    in_world(scenario, spares=spares)


def test_a_replacement_that_fails_as_well_is_replaced() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.bookies["b"].takes_appends = world.bookies["d"].takes_appends = False
        writing = rewriter(world)
        await writing.write([a_run(2, 5)])
        assert writing.layout.last_fragment == Fragment(2, ("a", "e", "c"))
        assert held(world, "e") == [2, 3, 4, 5]

    in_world(scenario, spares=2)


def test_only_what_comes_from_the_failure_on_is_in_the_new_fragment() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        writing = rewriter(world)
        await writing.write([a_run(2, 3)])
        world.bookies["b"].takes_appends = False
        await writing.write([a_run(4, 5)])
        assert writing.layout.fragments == [Fragment(0, ("a", "b", "c")), Fragment(4, ("a", "d", "c"))]
        assert held(world, "b") == [2, 3]
        assert held(world, "d") == [4, 5]

    in_world(scenario, spares=1)


def test_a_bookie_without_replacement_is_given_up_and_not_sent_to_again() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        writing = rewriter(world)
        await writing.write([a_run(2, 3)])
        world.bookies["b"].takes_appends = False
        await writing.write([a_run(4, 5)])
        world.bookies["b"].takes_appends = True
        await writing.write([a_run(6, 7)])
        assert writing.gaps(7) == [Gap("b", 4, 7)]
        assert held(world, "b") == [2, 3]

    in_world(scenario)


def test_fewer_than_qa_stop_the_recovery() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        for name in "bc":
            world.bookies[name].takes_appends = False
        with pytest.raises(NotEnoughBookies, match="LOG_FAILED no disk"):
            await rewriter(world).write([a_run(2, 5)])

    in_world(scenario)


def test_each_bookie_of_a_striped_ledger_gets_its_share() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await rewriter(world).write([a_run(2, 6), a_run(7, 20)])
        for position, name in enumerate(world.ensemble):
            expected = [n for n in range(2, 21) if position in world.striping.write_set(n)]
            assert held(world, name) == expected
            assert all(data == entry(n) for n, data in world.bookies[name].held.items())

    in_world(scenario, sizes=(4, 2, 2))
