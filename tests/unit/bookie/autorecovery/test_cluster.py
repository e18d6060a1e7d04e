"""The simulated cluster keeps to what real bookies do: or its tests would fail, or pass, for no reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from magnetar.ledger.bookie_protocol.bookie_client import BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK, UNREACHABLE

from tests.unit.bookie.autorecovery.cluster import Cluster, DirectClient, on_a_cluster, ref_of


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_killed_bookie_confirms_no_append_that_was_under_way(comes_back: bool) -> None:
    """Simulation of auto-recovery, seed 273: a copy was confirmed by the dead core, onto a disk that was not
    its bookie's any more; metadata named the bookie for entries that it did not have, for ever."""

    async def act(cluster: Cluster) -> None:
        assert await cluster.send("b1", 1, 0, 0) == OK
        answer = cluster.send("b1", 1, 1, 1)
        cluster.kill("b1")
        if comes_back:
            await cluster.revive(cluster.killed[0])
        assert await answer == UNREACHABLE
        if comes_back:
            assert await cluster.entries_at("b1", 1, 0, 1) == [0], "confirmed is here, the other never was"

    on_a_cluster(act, 1)


ASK: list[Callable[[DirectClient], Awaitable[object]]] = [
    lambda client: client.fence(ref_of(1)),
    lambda client: client.read(ref_of(1), 0, 0, 1 << 20, fence=True),
]


@pytest.mark.parametrize("ask", ASK, ids=["fence", "fencing read"])
def test_a_killed_bookie_promises_nothing_that_was_under_way(
    ask: Callable[[DirectClient], Awaitable[object]],
) -> None:
    async def act(cluster: Cluster) -> None:
        assert await cluster.send("b1", 1, 0, 0) == OK
        asking = asyncio.ensure_future(ask(cluster.client("b1")))
        await asyncio.sleep(0)
        assert not asking.done()
        cluster.kill("b1")
        with pytest.raises(BookieUnreachable):
            await asking

    on_a_cluster(act, 1)
