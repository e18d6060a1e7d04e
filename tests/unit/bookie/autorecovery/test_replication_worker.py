"""The replication worker: what is marked becomes whole again, and nothing else happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from magnetar.bookie.autorecovery.replication_worker import ReplicationWorker
from magnetar.common.metadata.store import Op, WatchEvent
from magnetar.common.metadata.values import Leader, LedgerMetadata, Restoration, decode, encode
from magnetar.sim.disk import SimDisk
from magnetar.sim.metadata import SimMetadataStore

from tests.simulation.power_loss import KEYS
from tests.unit.bookie.autorecovery.cluster import QUICK, Cluster, on_a_cluster, ref_of

ABC = ("b1", "b2", "b3")
LOCKS = KEYS.replication_locks_prefix


def test_a_lost_bookie_s_entries_are_copied_and_its_place_is_taken() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50)
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await cluster.until(lambda: not cluster.marks())
        after = await cluster.metadata_of(1)
        assert [list(f.bookie_ids) for f in after.fragments] == [["b1", "b4", "b3"]]
        await cluster.fully_replicated(1)

    on_a_cluster(act, 4)


def test_only_the_share_of_the_lost_bookie_is_copied_of_a_striped_ledger() -> None:
    async def act(cluster: Cluster) -> None:
        ensemble = ("b1", "b2", "b3", "b4", "b5")
        await cluster.ledger(1, [(0, ensemble)], 40, quorums=(3, 2))
        await cluster.nodes["b3"].stop()
        await cluster.mark(1, "b3")
        await cluster.until(lambda: not cluster.marks())
        await cluster.fully_replicated(1)
        assert {bookie for bookie, _, _ in cluster.appends} == {"b6"}
        assert len(await cluster.entries_at("b6", 1, 0, 39)) == 24

    on_a_cluster(act, 6)


def test_copies_that_were_collected_before_they_were_named_are_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker stands still with its copies made, for longer than their bookie keeps what nothing names."""

    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50)
        core = cluster.nodes["b4"].core
        assert core is not None
        replica = core.garbage._replica
        assert replica is not None
        core.garbage._replica = replace(replica, moved_grace_s=10)
        write = ReplicationWorker._write
        held: list[bool] = []
        """Whether b4 had the copies each time that it was about to be named."""

        async def late(self: ReplicationWorker, *args: Any) -> bool:
            if not held:
                await cluster.ledger(2, [(0, ("b1", "b4", "b3"))], 600)  # seals the segment of the copies
                for _ in range(2):
                    await core.garbage.collect()
                    await asyncio.sleep(11)
            held.append(core.ledgers.find(1, ref_of(1).key) is not None)
            return await write(self, *args)

        monkeypatch.setattr(ReplicationWorker, "_write", late)
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await cluster.until(lambda: not cluster.marks())
        await cluster.fully_replicated(1)
        assert held == [False, True], "it was named once the copies were there again"

    on_a_cluster(act, 4)


def test_a_gap_is_filled_on_its_own_bookie_and_struck_out() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 30, gaps=[("b3", 8, 15)])
        await cluster.mark(1)
        await cluster.until(lambda: not cluster.marks())
        await cluster.fully_replicated(1)
        assert {bookie for bookie, _, _ in cluster.appends} == {"b3"}

    on_a_cluster(act)


@pytest.mark.parametrize("lacking", [range(0), range(24, 30), range(8, 16)])
def test_copy_of_a_gap_starts_at_the_first_missing_entry(lacking: range) -> None:
    """A recovery that did not hear a bookie in time says that it lacks everything."""

    async def act(cluster: Cluster) -> None:
        gaps = [("b3", lacking[0], lacking[-1])] if lacking else []
        value = await cluster.ledger(1, [(0, ABC)], 30, gaps=gaps)
        del value.gaps[:]
        value.gaps.add(bookie_id="b3", first_entry_id=0, last_entry_id=29)
        await cluster.metadata.put(KEYS.ledger(1), encode(value))
        await cluster.mark(1)
        await cluster.until(lambda: not cluster.marks())
        await cluster.fully_replicated(1)
        assert not (await cluster.metadata_of(1)).gaps
        assert await cluster.entries_at("b3", 1, 0, 29) == list(range(30))
        assert all(bookie == "b3" for bookie, _, _ in cluster.appends)
        first = min((first for _, _, first in cluster.appends), default=None)
        assert first == (lacking[0] if lacking else None)

    on_a_cluster(act)


def test_a_gap_with_an_end_is_filled_while_the_ledger_is_open() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 30, gaps=[("b3", 8, 15)], state=LedgerMetadata.OPEN)
        await cluster.mark(1)
        await cluster.until(lambda: not cluster.marks())
        after = await cluster.metadata_of(1)
        assert not after.gaps
        assert after.state == LedgerMetadata.OPEN, "and nobody fenced it"
        assert await cluster.entries_at("b3", 1, 0, 29) == list(range(30))

    on_a_cluster(act)


def test_a_gap_of_a_bookie_that_left_the_fragment_is_only_struck_out() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 30, gaps=[("b4", 8, 15)])
        await cluster.mark(1)
        await cluster.until(lambda: not cluster.marks())
        await cluster.fully_replicated(1)
        assert cluster.appends == []

    on_a_cluster(act, 4)


def test_a_bookie_that_is_back_cancels_what_was_not_begun() -> None:
    async def act(cluster: Cluster) -> None:
        before = await cluster.ledger(1, [(0, ABC)], 30)
        await cluster.mark(1, "b2")
        await cluster.until(lambda: not cluster.marks())
        assert await cluster.metadata_of(1) == before
        assert cluster.appends == []

    on_a_cluster(act, 4)


def test_without_another_bookie_the_ledger_waits_and_the_next_bookie_is_taken_at_once() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 30)
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await asyncio.sleep(300)
        assert cluster.marks() == {1: ["b2"]}
        await cluster.add("b4")
        await cluster.until(lambda: not cluster.marks(), timeout_s=10)
        await cluster.fully_replicated(1)

    on_a_cluster(act)


def test_the_replacement_is_of_another_rack_than_the_others() -> None:
    async def act(cluster: Cluster) -> None:
        for ledger_id in range(1, 6):
            await cluster.ledger(ledger_id, [(0, ABC)], 8)
        await cluster.nodes["b3"].stop()
        for ledger_id in range(1, 6):
            await cluster.mark(ledger_id, "b3")
        await cluster.until(lambda: not cluster.marks())
        for ledger_id in range(1, 6):
            assert (await cluster.metadata_of(ledger_id)).fragments[0].bookie_ids[2] == "b6"

    on_a_cluster(act, ["/x/1", "/x/1", "/x/2", "/x/1", "/x/1", "/x/2"])


def test_a_damaged_replica_is_passed_over() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 30, gaps=[("b1", 4, 19)])
        value = await cluster.metadata_of(1)
        del value.gaps[:]  # nobody knows that b1 lacks them
        await cluster.metadata.put(KEYS.ledger(1), encode(value))
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await cluster.until(lambda: not cluster.marks())
        assert await cluster.entries_at("b4", 1, 0, 29) == list(range(30))

    on_a_cluster(act, 4)


def test_entry_without_a_replica_keeps_the_mark_and_the_lost_bookie() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 30)
        for bookie in ("b1", "b3"):
            cluster.nodes[bookie].unreachable = True
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await asyncio.sleep(60)
        assert cluster.marks() == {1: ["b2"]}
        assert list((await cluster.metadata_of(1)).fragments[0].bookie_ids) == list(ABC)
        for bookie in ("b1", "b3"):
            cluster.nodes[bookie].unreachable = False
        await cluster.until(lambda: not cluster.marks())
        await cluster.fully_replicated(1)

    on_a_cluster(act, 4)


def test_closed_fragments_of_an_open_ledger_are_copied_and_the_last_one_is_its_writer_s() -> None:
    async def act(cluster: Cluster) -> None:
        fragments = [(0, ABC), (20, ("b1", "b4", "b3"))]
        await cluster.ledger(1, fragments, 30, state=LedgerMetadata.OPEN)
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await cluster.until(lambda: not cluster.marks())
        after = await cluster.metadata_of(1)
        assert after.state == LedgerMetadata.OPEN
        assert [list(f.bookie_ids) for f in after.fragments] == [["b1", "b5", "b3"], ["b1", "b4", "b3"]] or [
            list(f.bookie_ids) for f in after.fragments
        ] == [["b1", "b4", "b3"], ["b1", "b4", "b3"]]

    on_a_cluster(act, 5)


def test_a_writer_that_still_appends_is_never_fenced() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 20, state=LedgerMetadata.OPEN)
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        for at in range(20, 60):
            await asyncio.sleep(2)
            await cluster.append("b1", 1, at, at, at - 1)
        assert (await cluster.metadata_of(1)).state == LedgerMetadata.OPEN
        assert not (await cluster.client("b1").read_lac(ref_of(1))).fenced

    on_a_cluster(act, 4)


def test_a_silent_ledger_is_recovered_after_the_grace_period_and_then_copied() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 20, state=LedgerMetadata.OPEN)
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await asyncio.sleep(4)
        assert (await cluster.metadata_of(1)).state == LedgerMetadata.OPEN, "within the grace period"
        await cluster.until(lambda: not cluster.marks())
        after = await cluster.metadata_of(1)
        assert after.last_entry_id == 19
        await cluster.fully_replicated(1)

    on_a_cluster(act, 4)


def test_ledger_is_not_fenced_without_a_replacement_bookie() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 20, state=LedgerMetadata.OPEN)
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await asyncio.sleep(600)
        assert (await cluster.metadata_of(1)).state == LedgerMetadata.OPEN
        assert not (await cluster.client("b1").read_lac(ref_of(1))).fenced
        await cluster.add("b4")
        await cluster.until(lambda: not cluster.marks(), timeout_s=60)
        await cluster.fully_replicated(1)

    on_a_cluster(act)


def test_a_ledger_is_left_alone_while_a_recovery_of_it_is_under_way() -> None:
    """Its recovery ends with a compare-and-set, which a change of any fragment would spoil."""

    async def act(cluster: Cluster) -> None:
        fragments = [(0, ABC), (10, ABC)]
        before = await cluster.ledger(1, fragments, 20, state=LedgerMetadata.IN_RECOVERY)
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await asyncio.sleep(4)
        assert await cluster.metadata_of(1) == before, "within the grace period"
        await cluster.until(lambda: not cluster.marks())
        await cluster.fully_replicated(1)

    on_a_cluster(act, 4)


def test_abandoned_recovery_is_finished() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 20, state=LedgerMetadata.IN_RECOVERY)
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await cluster.until(lambda: not cluster.marks())
        await cluster.fully_replicated(1)

    on_a_cluster(act, 4)


def test_the_mark_of_a_deleted_ledger_goes() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.mark(7, "b2")
        await cluster.until(lambda: not cluster.marks())

    on_a_cluster(act)


def test_a_bookie_that_was_started_anew_while_it_was_copied_to_is_not_believed_to_have_the_copies() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 100)
        node = await cluster.add("b4", config=replace(QUICK, enabled=False))  # others copy to it
        had: list[int] = []

        def slow(store: SimMetadataStore) -> None:
            commit = store.commit

            async def commit_after_a_wipe(ops: Sequence[Op]) -> int:
                if any(op.key == KEYS.ledger(1) for op in ops) and not cluster.killed:
                    # All is copied. Before the ledger says so, the bookie comes back with nothing.
                    cluster.kill("b4")
                    node.disk = SimDisk()
                    await cluster.revive(node)
                    cluster.killed.append(node)
                return await commit(ops)

            store.commit = commit_after_a_wipe  # type: ignore[method-assign]

        def named(events: list[WatchEvent]) -> None:
            if any(event.key == KEYS.ledger(1) for event in events) and "b4" in cluster.named(1):
                ledger = None if node.core is None else node.core.ledgers.find(1, 1001)
                had.append(-1 if ledger is None else ledger.last_entry_id)

        cluster.server.subscribe(named)
        await cluster.nodes["b2"].stop()
        for bookie in ("b1", "b3"):
            metadata = cluster.nodes[bookie].metadata
            assert metadata is not None
            slow(metadata)
        await cluster.mark(1, "b2")
        await cluster.until(lambda: bool(had))
        assert had[0] == 99, "whoever the metadata names has the entries at that moment"
        await cluster.until(lambda: not cluster.marks())
        await cluster.fully_replicated(1)
        assert len(cluster.killed) == 1

    on_a_cluster(act, 3)


@pytest.mark.parametrize("append", [1, 2, 13, 25, 26, 40, 50])
def test_a_worker_that_dies_at_any_append_is_followed_by_another(append: int) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC), (100, ("b1", "b2", "b4"))], 200)

        def die(count: int) -> None:
            if count == append:
                [lock] = [v for k, v in cluster.server.dump().items() if k.startswith(LOCKS)]
                cluster.kill(decode(Leader, lock).id)

        await cluster.nodes["b2"].stop()
        cluster.on_append = die
        await cluster.mark(1, "b2")
        await cluster.until(lambda: len(cluster.killed) == 1)
        [dead] = cluster.killed
        gone = ("b2", dead.bookie_id)  # the dead worker's own entries are copied as well, after the delay
        await cluster.until(lambda: not cluster.marks() and not cluster.named(1).intersection(gone))
        await cluster.fully_replicated(1)

    on_a_cluster(act, 5)


@pytest.mark.parametrize("commit", range(1, 7))
@pytest.mark.parametrize("applied", [True, False])
def test_an_outcome_that_is_lost_is_read_again(commit: int, applied: bool) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50, gaps=[("b3", 8, 15)])
        await cluster.nodes["b2"].stop()
        for node in cluster.nodes.values():
            if node.metadata is not None:
                for _ in range(commit - 1):
                    node.metadata._lose_outcomes.append(False)
                node.metadata.lose_next_outcome(applied=applied)
        await cluster.mark(1, "b2")
        await cluster.until(lambda: not cluster.marks())
        await cluster.fully_replicated(1)

    on_a_cluster(act, 4)


def test_over_restored_metadata_no_ledger_is_closed_before_it_was_compared() -> None:
    """Its last bookies may be others than metadata says: those would be asked where it ends."""

    async def act(cluster: Cluster) -> None:
        await cluster.metadata.put(KEYS.restoration, encode(Restoration(state=Restoration.RESTORED)))
        await cluster.ledger(1, [(0, ABC)], 30, state=LedgerMetadata.OPEN)
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await asyncio.sleep(10 * QUICK.open_ledger_grace_ms / 1000)
        assert (await cluster.metadata_of(1)).state == LedgerMetadata.OPEN
        await cluster.metadata.put(KEYS.restoration, encode(Restoration(state=Restoration.RECONCILED)))
        await cluster.until(lambda: not cluster.marks())
        assert (await cluster.metadata_of(1)).state == LedgerMetadata.CLOSED

    on_a_cluster(act, 4)
