"""Whether anything can be stored on bookies, told from what writers see."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.errors import NotEnoughBookies

from tests.unit.ledger.quorum.cluster import Cluster, entries, simulate, until

QUORUM = 2


def why(cluster: Cluster) -> str | None:
    obstacle = cluster.store.obstacle(QUORUM)
    return None if obstacle is None else obstacle.reason


def test_fewer_writable_bookies_than_an_ack_quorum_are_told_at_once() -> None:
    async def act(cluster: Cluster) -> None:
        assert why(cluster) is None
        cluster.bookies.take_down("b1")
        assert why(cluster) is None, "entries of open ledgers can be confirmed"
        cluster.bookies.take_down("b2")
        assert why(cluster) == ("an entry needs 2 bookies to be confirmed, and 1 are up and writable")
        cluster.bookies.bring_up("b2")
        assert why(cluster) is None

    simulate(act)


def test_registrations_that_are_gone_say_nothing_while_entries_are_confirmed() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        for bookie_id in ("b1", "b2", "b3"):
            cluster.bookies.all[bookie_id].up = True
        cluster.bookies.writable = list  # type: ignore[method-assign]
        writer.append(entries(0))
        await until(lambda: writer.last_confirmed == 0, "the entry is confirmed")
        assert why(cluster) is None
        await asyncio.sleep(6.0)
        assert why(cluster) is not None, "nothing was confirmed for a while"

    simulate(act)


def test_a_quorum_that_does_not_answer_is_told_and_taken_back_by_the_next_confirmation() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        for bookie_id in ("b1", "b2"):
            cluster.bookies[bookie_id].holding = True
        writer.append(entries(0))
        await asyncio.sleep(3.0)
        assert why(cluster) is None, "slow is not yet silent"
        await asyncio.sleep(4.0)
        said = why(cluster)
        assert said is not None
        assert said.startswith(f"ledger {writer.ref.id}: no quorum of ")
        await asyncio.sleep(10.0)
        assert writer.failed
        assert why(cluster) is not None
        for bookie_id in ("b1", "b2"):
            cluster.bookies[bookie_id].release()
        assert why(cluster) is not None, "as long as nothing is written"
        again = await cluster.create()
        again.append(entries(0))
        await until(lambda: again.last_confirmed == 0, "the entry is confirmed")
        assert why(cluster) is None

    simulate(act)


def test_one_ledger_without_its_quorum_says_nothing_of_the_others() -> None:
    async def act(cluster: Cluster) -> None:
        stuck = await cluster.create()
        on = sorted(stuck.layout.last_fragment.bookie_ids)
        working = await cluster.create(e=2, qw=2, qa=1)
        for bookie_id in on[:2]:
            cluster.bookies[bookie_id].holding = True
        stuck.append(entries(0))
        for number in range(12):
            working.append(entries(number))
            if set(working.layout.last_fragment.bookie_ids) <= set(on[:2]):
                return  # chance has put it on the silent ones alone
            await asyncio.sleep(1.0)
            assert why(cluster) is None, number

    simulate(act)


def test_a_ledger_that_cannot_be_made_is_told_only_where_no_other_goes_on() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        writer.append(entries(0))
        await until(lambda: writer.last_confirmed == 0, "the entry is confirmed")
        cluster.bookies.take_down("b1")
        with pytest.raises(NotEnoughBookies):
            await cluster.create()
        assert why(cluster) is None
        await asyncio.sleep(6.0)
        with pytest.raises(NotEnoughBookies):
            await cluster.create()
        assert "a ledger needs 3 bookies and 2 are up" in (why(cluster) or "")
        writer.append(entries(1))
        await until(lambda: writer.last_confirmed == 1, "the entry is confirmed")
        assert why(cluster) is None

    simulate(act)
