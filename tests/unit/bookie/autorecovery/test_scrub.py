"""Scrub and doubts: what this bookie should have is there, sound, or comes back from its peers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from magnetar.bookie.autorecovery.metrics import SCRUB_FINDINGS
from magnetar.common.metadata.values import LedgerMetadata, Restoration, encode
from magnetar.sim.disk import SimDisk

from tests.simulation.power_loss import KEYS
from tests.unit.bookie.autorecovery.cluster import Cluster, Node, on_a_cluster, ref_of

ABC = ("b1", "b2", "b3")


def findings(kind: str) -> float:
    value = SCRUB_FINDINGS.labels(finding=kind)._value.get()
    assert isinstance(value, float)
    return value


async def forget_gaps(cluster: Cluster, ledger_id: int) -> None:
    """What was left out when the ledger was written is known to nobody."""
    value = await cluster.metadata_of(ledger_id)
    del value.gaps[:]
    await cluster.metadata.put(KEYS.ledger(ledger_id), encode(value))


async def scrub(cluster: Cluster, bookie: str) -> bool:
    recovery = cluster.nodes[bookie].recovery
    assert recovery is not None
    return await recovery.scrub.scrub()


def test_sound_data_is_only_read() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC), (20, ("b1", "b2", "b4"))], 40)
        assert await scrub(cluster, "b1")
        assert cluster.appends == []

    on_a_cluster(act, 4)


@pytest.mark.parametrize(("first", "last"), [(0, 3), (8, 8), (8, 35), (36, 39), (0, 39)])
def test_missing_entries_are_found_and_copied_from_peers(first: int, last: int) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 40, gaps=[("b2", first, last)], run_length=1)
        await forget_gaps(cluster, 1)
        before = findings("missing")
        assert await scrub(cluster, "b2")
        assert findings("missing") == before + 1, "one finding, however many entries"
        await cluster.fully_replicated(1)
        assert {bookie for bookie, _, _ in cluster.appends} == {"b2"}

    on_a_cluster(act)


def test_scrub_of_a_striped_ledger_expects_only_this_bookies_share() -> None:
    async def act(cluster: Cluster) -> None:
        ensemble = ("b1", "b2", "b3", "b4", "b5")
        await cluster.ledger(1, [(0, ensemble)], 43, quorums=(2, 2))
        assert await scrub(cluster, "b2")
        assert cluster.appends == []

    on_a_cluster(act, 5)


def test_bytes_that_rot_are_found_and_mended() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 60)
        node = cluster.nodes["b2"]
        flipped = rot(node, b"1/17/")
        assert flipped == 1
        assert await cluster.entries_at("b2", 1, 17, 17) == []
        before = findings("damaged")
        assert await scrub(cluster, "b2")
        assert findings("damaged") == before + 1
        await cluster.fully_replicated(1)

    on_a_cluster(act)


def test_a_sector_that_cannot_be_read_is_found_and_mended() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 60)
        disk = cluster.nodes["b2"].disk
        for path in [each for each in disk.paths() if b"1/17/" in disk.content(each)]:
            disk.spoil(path, disk.content(path).index(b"1/17/"))
        assert await cluster.entries_at("b2", 1, 17, 17) == []
        assert await scrub(cluster, "b2")
        await cluster.fully_replicated(1)

    on_a_cluster(act)


def test_entry_missing_on_all_peers_is_reported_and_repaired_later() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 40, gaps=[("b2", 8, 15)])
        await forget_gaps(cluster, 1)
        for peer in ("b1", "b3"):
            cluster.nodes[peer].unreachable = True
        assert not await scrub(cluster, "b2")
        for peer in ("b1", "b3"):
            cluster.nodes[peer].unreachable = False
        assert await scrub(cluster, "b2")
        await cluster.fully_replicated(1)

    on_a_cluster(act)


def test_entries_of_an_open_ledger_s_last_fragment_may_be_under_way() -> None:
    async def act(cluster: Cluster) -> None:
        gaps = [("b2", 8, 15), ("b2", 28, 31)]
        fragments = [(0, ABC), (20, ("b1", "b2", "b4"))]
        await cluster.ledger(1, fragments, 40, gaps=gaps, state=LedgerMetadata.OPEN)
        await forget_gaps(cluster, 1)
        assert await scrub(cluster, "b2")
        assert await cluster.entries_at("b2", 1, 0, 19) == list(range(20))
        assert await cluster.entries_at("b2", 1, 28, 31) == []

    on_a_cluster(act, 4)


def rot(node: Node, needle: bytes) -> int:
    """Flip a bit in each place on a bookie's disk that holds these bytes; returns how many there are."""
    count = 0
    for path in node.disk.paths():
        if not path.endswith(".seg"):
            continue
        file = node.disk.open(path, writable=False)
        data = file.pread(1 << 24, 0)
        at = data.find(needle)
        while at >= 0:
            node.disk.flip_bit(path, 8 * (at + len(needle)))
            count += 1
            at = data.find(needle, at + 1)
        file.close()
    return count


# --- doubts ---


async def wipe(cluster: Cluster, bookie: str) -> None:
    """A bookie gets a new, empty disk, and an operator says that this is meant."""
    node = cluster.nodes[bookie]
    await node.stop()
    node.disk = SimDisk()
    await node.start()


async def in_doubt(cluster: Cluster, bookie: str) -> list[int]:
    page = await cluster.client(bookie).list_ledgers(only_limbo=True)
    return [state.ledger.id for state in page.ledgers]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(600):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.5)


def test_an_emptied_disk_is_filled_again_with_what_metadata_says_belongs_there() -> None:
    async def act(cluster: Cluster) -> None:
        for ledger_id in range(1, 11):
            await cluster.ledger(ledger_id, [(0, ABC)], 20)
        await wipe(cluster, "b2")

        async def full() -> bool:
            have = [await cluster.entries_at("b2", ledger_id, 0, 19) for ledger_id in range(1, 11)]
            return have == [list(range(20))] * 10

        await until(full)
        await cluster.fully_replicated(*range(1, 11))

    on_a_cluster(act)


def test_a_doubt_about_a_ledger_that_is_closed_meanwhile_ends_when_all_is_there() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 20, state=LedgerMetadata.OPEN)
        await wipe(cluster, "b2")
        assert await in_doubt(cluster, "b2") == [1]
        value = await cluster.metadata_of(1)
        value.state, value.last_entry_id = LedgerMetadata.CLOSED, 19
        await cluster.metadata.put(KEYS.ledger(1), encode(value))

        async def resolved() -> bool:
            return await in_doubt(cluster, "b2") == []

        await until(resolved)
        await cluster.fully_replicated(1)

    on_a_cluster(act)


def test_a_doubt_stays_while_entries_that_belong_here_can_be_had_from_no_peer() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 20, state=LedgerMetadata.OPEN)
        await wipe(cluster, "b2")
        for peer in ("b1", "b3"):
            cluster.nodes[peer].unreachable = True
        value = await cluster.metadata_of(1)
        value.state, value.last_entry_id = LedgerMetadata.CLOSED, 19
        await cluster.metadata.put(KEYS.ledger(1), encode(value))
        recovery = cluster.nodes["b2"].recovery
        assert recovery is not None
        assert await recovery.limbo_repair.repair() == 1
        assert await in_doubt(cluster, "b2") == [1]
        for peer in ("b1", "b3"):
            cluster.nodes[peer].unreachable = False

        async def resolved() -> bool:
            return await in_doubt(cluster, "b2") == []

        await until(resolved)
        await cluster.fully_replicated(1)

    on_a_cluster(act)


def test_doubt_about_an_open_ledger_stays_while_it_is_written() -> None:
    async def act(cluster: Cluster) -> None:
        fragments = [(0, ABC), (20, ABC)]
        await cluster.ledger(1, fragments, 30, state=LedgerMetadata.OPEN)
        await wipe(cluster, "b2")
        for at in range(30, 60):
            await asyncio.sleep(2)
            await cluster.append("b1", 1, at, at, at - 1)
        assert await in_doubt(cluster, "b2") == [1]
        assert (await cluster.metadata_of(1)).state == LedgerMetadata.OPEN
        assert await cluster.entries_at("b2", 1, 0, 19) == list(range(20)), (
            "what has its final place is there"
        )

    on_a_cluster(act)


def test_a_doubt_about_a_silent_ledger_ends_with_its_recovery() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 30, state=LedgerMetadata.OPEN)
        await wipe(cluster, "b2")

        async def resolved() -> bool:
            return await in_doubt(cluster, "b2") == []

        await until(resolved)
        assert (await cluster.metadata_of(1)).last_entry_id == 29
        await until(lambda: _is_whole(cluster))

    on_a_cluster(act)


def test_a_doubt_that_is_looked_at_often_fences_no_writer_within_the_grace_period() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 30, state=LedgerMetadata.OPEN)
        await wipe(cluster, "b2")
        recovery = cluster.nodes["b2"].recovery
        assert recovery is not None
        for _ in range(3):
            assert await recovery.limbo_repair.repair() == 1
        assert (await cluster.metadata_of(1)).state == LedgerMetadata.OPEN
        assert not (await cluster.client("b1").read_lac(ref_of(1))).fenced

    on_a_cluster(act)


def test_over_restored_metadata_a_doubt_closes_no_ledger_before_it_was_compared() -> None:
    """The copy may name other bookies than those that the ledger went on with."""

    async def act(cluster: Cluster) -> None:
        await cluster.metadata.put(KEYS.restoration, encode(Restoration(state=Restoration.RESTORED)))
        await cluster.ledger(1, [(0, ABC)], 30, state=LedgerMetadata.OPEN)
        await wipe(cluster, "b2")
        await asyncio.sleep(1_000)
        assert (await cluster.metadata_of(1)).state == LedgerMetadata.OPEN
        assert await in_doubt(cluster, "b2") == [1]
        await cluster.metadata.put(KEYS.restoration, encode(Restoration(state=Restoration.RECONCILED)))

        async def resolved() -> bool:
            return await in_doubt(cluster, "b2") == []

        await until(resolved)
        assert (await cluster.metadata_of(1)).last_entry_id == 29

    on_a_cluster(act)


async def _is_whole(cluster: Cluster) -> bool:
    try:
        await cluster.fully_replicated(1)
    except AssertionError:
        return False
    return True


def test_doubt_about_a_deleted_ledger_is_dropped() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 30, state=LedgerMetadata.OPEN)
        await wipe(cluster, "b2")
        await cluster.metadata.delete(KEYS.ledger(1))
        recovery = cluster.nodes["b2"].recovery
        assert recovery is not None
        assert await recovery.limbo_repair.repair() == 0
        state = await cluster.client("b2").read_lac(ref_of(1))
        assert state.limbo, "nobody said that it is certain"

    on_a_cluster(act)
