"""Ledgers of which nothing can tell where they end, and an operator's word on them."""

from __future__ import annotations

import pytest
from magnetar.common.errors import NotEnoughBookies
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.quorum.stuck_ledgers import ABSENT, AWAY, TORN, UNKNOWN, examine

from tests.unit.ledger.quorum.replica_world import REF, ReplicaWorld, in_world


async def stuck(world: ReplicaWorld) -> None:
    """Confirmed up to 3; 4 and 5 are on c; a is gone for good, b lost its disk."""
    world.put(range(4))
    world.put(range(4, 6), positions=[2])
    world.lac(3)
    world.bookies["a"].down = True
    world.bookies["b"].limbo = True
    world.bookies["b"].held.clear()
    with pytest.raises(NotEnoughBookies):
        await world.recovery().recover(REF)


def test_stuck_ledger_report_has_certain_entries_found_entries_and_candidates() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await stuck(world)
        before = world.stored()
        found = await examine(before, world)
        assert (found.last_confirmed, found.last_found, found.decided) == (3, 5, False)
        assert found.said == {"a": AWAY, "b": UNKNOWN, "c": ABSENT}
        assert found.in_doubt == ["a", "b"]
        assert world.stored() == before
        world.bookies["b"].torn = True
        assert (await examine(before, world)).said["b"] == TORN

    in_world(scenario, spares=1)


def test_recoverable_ledger_needs_no_operator_decision() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        world.put(range(4))
        world.lac(2)
        world.bookies["a"].down = True
        assert (await examine(world.stored(), world)).decided
        world.bookies["a"].down = False
        for bookie in world.bookies.values():
            bookie.limbo = bookie.torn = True
        found = await examine(world.stored(), world)
        assert (found.last_found, found.decided) == (3, True)

    in_world(scenario)


@pytest.mark.parametrize("at", [3, 4, 5])
def test_a_ledger_ends_where_an_operator_says_with_everything_up_to_there(at: int) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await stuck(world)
        _, closed = await world.recovery().recover(REF, decided_end=at)
        assert closed.last_entry_id == world.stored().last_entry_id == at
        assert world.stored().state == LedgerMetadata.CLOSED
        if at > 3:
            bookies = world.layout().bookies_of(at)
            assert sum(at in world.bookies[name].held for name in bookies) >= 2
        assert world.server.get(world.keys.under_replicated(REF.id)) is not None

    in_world(scenario, spares=1)


@pytest.mark.parametrize(("at", "error"), [(2, "entries up to 3 are confirmed"), (-1, "are confirmed")])
def test_no_ledger_is_ended_below_what_is_confirmed(at: int, error: str) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await stuck(world)
        with pytest.raises(ValueError, match=error):
            await world.recovery().recover(REF, decided_end=at)
        assert world.stored().state == LedgerMetadata.IN_RECOVERY

    in_world(scenario, spares=1)


def test_no_ledger_is_ended_beyond_what_can_be_had() -> None:
    async def scenario(world: ReplicaWorld) -> None:
        await stuck(world)
        with pytest.raises(NotEnoughBookies):
            await world.recovery().recover(REF, decided_end=6)
        world.bookies["a"].down = False
        world.bookies["b"].limbo = False
        with pytest.raises(ValueError, match="certainly ends at 5"):
            await world.recovery().recover(REF, decided_end=6)
        assert world.stored().state == LedgerMetadata.IN_RECOVERY

    in_world(scenario, spares=1)
