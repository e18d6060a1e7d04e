"""Bookies that failed and are taken back: when they answer, and not all the time."""

from __future__ import annotations

import asyncio

from magnetar.ledger.bookie_protocol.bookie_pb2 import LOG_FAILED
from magnetar.ledger.quorum.ledger_metadata import OPEN_GAP_END

from tests.unit.ledger.quorum.cluster import Cluster, entries, others, replicated, simulate, until


def test_a_bookie_that_comes_back_takes_its_place_again_and_its_gap_ends() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        writer.append(entries(0, 2))
        await asyncio.sleep(0.1)
        cluster.bookies.take_down("b1")
        writer.append(entries(2, 4))
        await until(lambda: not writer.adds, "the gap is recorded")
        cluster.bookies.bring_up("b1")
        await until(lambda: cluster.gaps(writer.ref) == [("b1", 2, 5)], "the gap has an end")
        writer.append(entries(6, 2))
        await until(lambda: not writer.adds, "everything answered")
        assert cluster.bookies["b1"].entry_ids(writer.ref) == [0, 1, 6, 7]
        assert len(cluster.fragments(writer.ref)) == 1, "the same bookies: no new fragment"
        assert replicated(cluster, writer, 7)

    simulate(act)


def test_a_bookie_that_is_dead_and_still_registered_is_not_taken_back_before_it_answers() -> None:
    async def act(cluster: Cluster) -> None:
        writers = [await cluster.create() for _ in range(3)]
        cluster.bookies["b1"].up = False
        for writer in writers:
            writer.append(entries(0))
        await asyncio.sleep(1)
        revision = cluster.server.revision
        for entry_id in range(1, 60):
            for writer in writers:
                writer.append(entries(entry_id))
            await asyncio.sleep(1)
        assert all(cluster.gaps(writer.ref) == [("b1", 0, OPEN_GAP_END)] for writer in writers)
        assert cluster.server.revision == revision, "nothing changed, so nothing was written"
        assert "b1" not in cluster.store.placement.quarantine, "it failed once"
        cluster.bookies["b1"].up = True
        for writer in writers:
            writer.append(entries(60))
        await asyncio.sleep(5)
        for writer in writers:
            writer.append(entries(61))
        await asyncio.sleep(0.1)
        assert all(61 in cluster.bookies["b1"].entry_ids(writer.ref) for writer in writers), "it is back"

    simulate(act)


def test_failed_bookie_is_probed_once_for_all_ledgers() -> None:
    async def act(cluster: Cluster) -> None:
        writers = [await cluster.create() for _ in range(20)]
        cluster.bookies["b1"].up = False
        for writer in writers:
            writer.append(entries(0))
        await asyncio.sleep(60)
        assert 10 <= cluster.bookies["b1"].asked <= 60

    simulate(act)


def test_a_bookie_that_answers_and_takes_nothing_is_tried_less_and_less_often() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        cluster.bookies["b1"].refusing = LOG_FAILED
        for entry_id in range(60):
            writer.append(entries(entry_id))
            await asyncio.sleep(1)
        assert cluster.gaps(writer.ref) == [("b1", 0, OPEN_GAP_END)], "one gap, however often it was tried"
        assert cluster.server.revision < 12, "tried less and less often"
        assert "b1" in cluster.store.placement.quarantine, "and then no more"

    simulate(act)


def test_another_failure_is_seen_to_while_one_that_stands_still_is_asked() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        one, other, _ = others(writer)
        cluster.bookies[one].up = False
        cluster.bookies[one].answers_after_s = 30.0
        writer.append(entries(0))
        await asyncio.sleep(3)
        cluster.bookies.add("b9")
        await until(lambda: "b9" in cluster.fragments(writer.ref)[-1][1], "replaced")
        cluster.bookies.add("b10")
        cluster.bookies[other].refusing = LOG_FAILED
        writer.append(entries(1))
        await asyncio.sleep(1)
        assert "b10" in cluster.fragments(writer.ref)[-1][1]

    simulate(act)
