"""What a recovery makes of bookies whose doubt is a torn last group."""

from __future__ import annotations

import pytest
from magnetar.common.errors import NotEnoughBookies

from tests.unit.ledger.quorum.replica_world import REF, ReplicaWorld, in_world
from tests.unit.ledger.quorum.test_recovery import recovered


@pytest.mark.parametrize(
    ("sizes", "torn", "away", "ends"),
    [
        ((3, 3, 1), "a", "", True),  # a power loss of one bookie
        ((3, 3, 1), "abc", "", True),  # of all of them
        ((3, 3, 1), "a", "c", False),
        ((3, 3, 2), "abc", "", True),
        ((3, 3, 2), "ab", "", True),
        ((3, 3, 2), "ab", "c", False),  # on c and, if its disk lost what it had synced, on a or b
        ((3, 3, 2), "a", "c", False),
        ((4, 3, 3), "abcd", "", True),
        ((3, 3, 3), "ab", "c", False),
    ],
)
def test_torn_group_entries_were_acknowledged_by_at_most_qa_minus_1_such_bookies(
    sizes: tuple[int, int, int], torn: str, away: str, ends: bool
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(6))
        world.lac(3)
        for name in torn:
            world.bookies[name].limbo = world.bookies[name].torn = True
        for name in away:
            world.bookies[name].down = True
        if ends:
            await recovered(world, 5)
        else:
            with pytest.raises(NotEnoughBookies):
                await world.recovery().recover(REF)

    in_world(scenario, sizes=sizes)


@pytest.mark.parametrize("other", ["emptied", "damaged"])
def test_a_torn_group_beside_a_greater_doubt_decides_nothing(other: str) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(6))
        world.put(range(6, 7), positions=[1])
        world.lac(3)
        world.bookies["a"].limbo = world.bookies["a"].torn = True
        if other == "emptied":
            del world.bookies["b"].held[6]
            world.bookies["b"].limbo = True
        else:
            world.bookies["b"].damaged.add(6)
        with pytest.raises(NotEnoughBookies):
            await world.recovery().recover(REF)

    in_world(scenario)
