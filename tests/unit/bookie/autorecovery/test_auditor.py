"""The auditor: what is marked, when, and how a bookie leaves for good."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from magnetar.common.metadata.store import ABSENT
from magnetar.common.metadata.values import Decommission, Leader, LedgerMetadata, decode, encode

from tests.simulation.power_loss import KEYS
from tests.unit.bookie.autorecovery.cluster import QUICK, Cluster, on_a_cluster

ABC = ("b1", "b2", "b3")
IDLE = replace(QUICK, copied_ledgers_max=1, retry_after_ms=3_600_000)
"""Nothing is copied in these tests: there is no bookie left to copy to."""


def test_a_lost_bookie_s_ledgers_are_marked_after_the_delay_and_not_before() -> None:
    async def act(cluster: Cluster) -> None:
        for ledger_id in range(1, 200):
            await cluster.ledger(ledger_id, [(0, ABC)], 1)
        await cluster.nodes["b2"].stop()
        await asyncio.sleep(9)
        assert cluster.marks() == {}
        await asyncio.sleep(4)
        assert cluster.marks() == {ledger_id: ["b2"] for ledger_id in range(1, 200)}

    on_a_cluster(act, 3, config=IDLE)


def test_a_bookie_that_comes_back_within_the_delay_costs_nothing() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 10)
        for _ in range(5):
            await cluster.nodes["b2"].stop()
            await asyncio.sleep(8)
            await cluster.nodes["b2"].start()
            await asyncio.sleep(4)
        assert cluster.marks() == {}
        assert cluster.appends == []

    on_a_cluster(act, 4)


def test_lost_data_is_replicated_again_automatically() -> None:
    async def act(cluster: Cluster) -> None:
        for ledger_id in range(1, 31):
            await cluster.ledger(ledger_id, [(0, ABC), (10, ("b4", "b2", "b3"))], 20)
        await cluster.nodes["b3"].stop()
        await asyncio.sleep(12)
        await cluster.until(
            lambda: not cluster.marks() and all("b3" not in cluster.named(i) for i in range(1, 31))
        )
        await cluster.fully_replicated(*range(1, 31))

    on_a_cluster(act, 5)


def test_the_loss_of_the_auditor_itself_is_noticed() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 20)
        leader = cluster.auditor()
        assert leader in cluster.nodes
        cluster.kill(leader)
        await cluster.until(lambda: cluster.auditor() not in (None, leader))
        await cluster.until(lambda: leader not in cluster.named(1) and not cluster.marks())
        await cluster.fully_replicated(1)

    on_a_cluster(act, 4)


def test_gaps_without_a_mark_are_found() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 30, gaps=[("b3", 8, 15)])
        await cluster.until(
            lambda: not list(decode(LedgerMetadata, cluster.server.dump()[KEYS.ledger(1)]).gaps)
        )
        await cluster.until(lambda: not cluster.marks())
        await cluster.fully_replicated(1)

    on_a_cluster(act, config=replace(QUICK, audit_interval_s=60))


def test_started_recovery_is_finished_although_all_bookies_are_healthy() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 30, state=LedgerMetadata.IN_RECOVERY)
        await asyncio.sleep(100)
        await cluster.fully_replicated(1)

    on_a_cluster(act, config=replace(QUICK, audit_interval_s=60))


def test_a_bookie_without_identity_is_lost_too() -> None:
    async def act(cluster: Cluster) -> None:
        value = await cluster.ledger(1, [(0, ABC)], 10)
        assert value.fragments[0].bookie_ids[1] == "b2"
        await cluster.nodes["b2"].stop()
        await cluster.metadata.delete(KEYS.cookie("b2"))
        await cluster.until(lambda: "b2" not in cluster.named(1) and not cluster.marks())
        await cluster.fully_replicated(1)

    on_a_cluster(act, 4, config=replace(QUICK, audit_interval_s=60))


def test_metadata_that_does_not_answer_only_delays() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 20)
        await cluster.nodes["b2"].stop()
        for _ in range(10):
            for node in cluster.nodes.values():
                if node.metadata is not None:
                    node.metadata.faults.unreachable = True
                    node.metadata.lose_watches()
            await asyncio.sleep(1)
            for node in cluster.nodes.values():
                if node.metadata is not None:
                    node.metadata.faults.unreachable = False
            await asyncio.sleep(2)
        await cluster.until(lambda: "b2" not in cluster.named(1) and not cluster.marks())
        await cluster.fully_replicated(1)

    on_a_cluster(act, 4)


def test_outcomes_that_get_lost_again_and_again_only_delay() -> None:
    async def act(cluster: Cluster) -> None:
        for ledger_id in range(1, 11):
            await cluster.ledger(ledger_id, [(0, ABC)], 12, gaps=[("b1", 4, 7)])
        for node in cluster.nodes.values():
            assert node.metadata is not None
            node.metadata.faults.unknown_probability = 0.2
        await cluster.nodes["b3"].stop()
        await cluster.until(
            lambda: not cluster.marks() and all("b3" not in cluster.named(i) for i in range(1, 11)), 2_000
        )
        for node in cluster.nodes.values():
            if node.metadata is not None:
                node.metadata.faults.unknown_probability = 0.0
        await cluster.fully_replicated(*range(1, 11))

    on_a_cluster(act, 5)


# --- decommissioning ---


def test_a_decommissioned_bookie_takes_nothing_more_and_leaves_when_it_holds_nothing() -> None:
    async def act(cluster: Cluster) -> None:
        for ledger_id in range(1, 21):
            await cluster.ledger(ledger_id, [(0, ABC)], 10)
        await cluster.decommission("b2")
        await cluster.until(lambda: KEYS.cookie("b2") not in cluster.server.dump())
        assert KEYS.decommission("b2") not in cluster.server.dump()
        core = cluster.nodes["b2"].core
        assert core is not None
        await asyncio.sleep(5)
        assert core.read_only, "also after it has left"
        await cluster.fully_replicated(*range(1, 21))
        assert all("b2" not in cluster.named(i) for i in range(1, 21))
        assert cluster.marks() == {}

    on_a_cluster(act, 4)


def test_its_progress_is_in_metadata() -> None:
    async def act(cluster: Cluster) -> None:
        for ledger_id in range(1, 8):
            await cluster.ledger(ledger_id, [(0, ABC)], 4)
        await cluster.decommission("b2")  # and nobody is there to take its place
        await asyncio.sleep(30)
        wish = decode(Decommission, cluster.server.dump()[KEYS.decommission("b2")])
        assert wish.ledgers == 7
        assert wish.audited_ms > 0
        assert set(cluster.marks()) == set(range(1, 8))
        assert KEYS.cookie("b2") in cluster.server.dump()
        await cluster.add("b4")
        await cluster.until(lambda: KEYS.cookie("b2") not in cluster.server.dump())

    on_a_cluster(act, 3)


def test_a_bookie_that_is_down_can_be_decommissioned_without_waiting_for_the_delay() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 10)
        await cluster.nodes["b2"].stop()
        await cluster.decommission("b2")
        await cluster.until(lambda: KEYS.cookie("b2") not in cluster.server.dump(), 60)
        await cluster.fully_replicated(1)

    on_a_cluster(act, 4, config=replace(QUICK, lost_bookie_recovery_delay_s=10_000))


def test_a_wish_that_is_withdrawn_makes_the_bookie_writable_and_drops_the_marks() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 10)
        await cluster.decommission("b2")
        await cluster.until(lambda: bool(cluster.marks()))
        core = cluster.nodes["b2"].core
        assert core is not None
        assert core.read_only
        await cluster.metadata.delete(KEYS.decommission("b2"))
        await cluster.until(lambda: not cluster.marks())
        assert not core.read_only
        assert cluster.named(1) == set(ABC)
        assert KEYS.cookie("b2") in cluster.server.dump()

    on_a_cluster(act, 3)


def test_an_empty_bookie_leaves_at_once() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.decommission("b3")
        await cluster.until(lambda: KEYS.cookie("b3") not in cluster.server.dump(), 30)

    on_a_cluster(act, 3)


def test_an_open_ledger_s_last_fragment_keeps_a_bookie_from_leaving_until_it_is_closed() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 10, state=LedgerMetadata.OPEN)
        await cluster.decommission("b2")
        for at in range(10, 30):
            await asyncio.sleep(1)
            await cluster.append("b1", 1, at, at, at - 1)
        assert KEYS.cookie("b2") in cluster.server.dump()
        assert (await cluster.metadata_of(1)).state == LedgerMetadata.OPEN
        await cluster.until(lambda: KEYS.cookie("b2") not in cluster.server.dump())
        await cluster.fully_replicated(1)  # silent for the grace period: recovered, then copied

    on_a_cluster(act, 4)


def test_without_auto_recovery_a_bookie_still_obeys_the_wish() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 10)
        await cluster.decommission("b2")
        await asyncio.sleep(60)
        core = cluster.nodes["b2"].core
        assert core is not None
        assert core.read_only
        assert cluster.marks() == {}
        assert cluster.auditor() is None

    on_a_cluster(act, 4, config=replace(QUICK, enabled=False))


def test_an_office_held_by_another_stops_the_auditor_s_writes() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 10)
        leader = cluster.auditor()
        assert leader is not None
        # Somebody took the office away; the old auditor does not know before it writes.
        await cluster.metadata.delete(KEYS.auditor)
        await cluster.metadata.put(KEYS.auditor, encode(Leader(id="another", epoch=99)), ABSENT)
        await cluster.nodes["b2"].stop()
        await asyncio.sleep(100)
        assert cluster.marks() == {}

    on_a_cluster(act, 4)
