"""What bookies lack of the entries that an old writer had confirmed is recorded by the recovery."""

from __future__ import annotations

import pytest
from magnetar.ledger.quorum.striping import Fragment

from tests.unit.ledger.quorum.replica_world import REF, ReplicaWorld, in_world


async def gaps_after_recovery(world: ReplicaWorld) -> list[tuple[str, int, int]]:
    await world.recovery().recover(REF)
    return [(gap.bookie_id, gap.first_entry_id, gap.last_entry_id) for gap in world.stored().gaps]


@pytest.mark.parametrize("listed_at_once", [1 << 30, 4])
def test_an_entry_that_a_bookie_refused_before_it_took_later_ones_is_recorded_as_missing(
    listed_at_once: int,
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        del world.bookies["c"].held[5]
        world.lac(9, "a", "b")
        for bookie in world.bookies.values():
            bookie.listed_at_once = listed_at_once
        assert await gaps_after_recovery(world) == [("c", 5, 5)]
        assert world.server.get(world.keys.under_replicated(REF.id)) is not None

    in_world(scenario)


def test_a_bookie_that_saw_every_entry_come_is_not_asked_for_them() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        world.lac(9)
        world.bookies["a"].row = (0, 10)
        world.bookies["b"].row = (4, 10)  # it was started when entry 4 came
        del world.bookies["c"].held[5]
        world.bookies["c"].row = (6, 10)
        assert await gaps_after_recovery(world) == [("c", 5, 5)]
        asked = {name: bookie.listings for name, bookie in world.bookies.items()}
        assert asked == {"a": [], "b": [(0, 3)], "c": [(0, 5)]}

    in_world(scenario)


def test_missing_entries_of_earlier_fragments_are_recorded() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        value = world.stored()
        world.set_fragments(value, Fragment(0, ("a", "b", "c")), Fragment(6, ("a", "b", "d")))
        for n in range(6, 10):
            world.bookies["d"].held[n] = world.bookies["c"].held.pop(n)
        del world.bookies["c"].held[3]
        world.lac(9, "a")
        assert await gaps_after_recovery(world) == [("c", 3, 3)]

    in_world(scenario, spares=1)


def test_a_bookie_that_was_fenced_and_does_not_say_what_it_has_counts_as_lacking_it() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(10))
        world.lac(9)
        world.bookies["b"].lists_entries = False
        assert await gaps_after_recovery(world) == [("b", 0, 9)]

    in_world(scenario)


def test_only_the_share_of_a_bookie_is_missing_in_a_striped_ledger() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(12))
        del world.bookies["b"].held[5]
        world.lac(11)
        assert await gaps_after_recovery(world) == [("b", 5, 5)]

    in_world(scenario, sizes=(4, 3, 2))


def test_very_many_holes_of_a_bookie_are_one_gap() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(1000))
        for n in range(10, 900, 2):
            del world.bookies["a"].held[n]
        world.lac(999)
        assert await gaps_after_recovery(world) == [("a", 10, 898)]

    in_world(scenario)
