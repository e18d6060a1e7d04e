"""Each reason why a bookie gets no entries, from bookies that produce it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from magnetar.broker.admin.stats.bookie_explanation import (
    BookieCode,
    BookieSituation,
    Space,
    bookie_explanation,
    local_explanation,
)
from magnetar.common.cluster.bookie_states import bookie_doubts, bookie_states
from magnetar.common.cluster.under_replication import read_auditor, read_under_replication
from magnetar.common.metadata.values import BookieMark, Leader, encode
from magnetar.ledger.bookie_protocol.bookie_client import BookieUnreachable
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.ledger.quorum.quarantine import Quarantine
from magnetar.sim.loop import SimClock

from tests.simulation.power_loss import KEYS
from tests.unit.bookie.autorecovery.cluster import QUICK, Cluster, on_a_cluster

ABC = ("b1", "b2", "b3")
OFF = replace(QUICK, enabled=False)


async def explained(
    cluster: Cluster, bookie_id: str, quarantines: Mapping[str, tuple[float, str]] | None = None
) -> dict[str, Any]:
    metadata = cluster.metadata
    (state,) = [each for each in await bookie_states(metadata, KEYS) if each.bookie_id == bookie_id]
    try:
        described = await cluster.client(bookie_id).describe()
        space = Space(described.free_bytes, described.total_bytes)
    except BookieUnreachable:
        space = None
    situation = BookieSituation(
        state=state,
        doubt=(await bookie_doubts(metadata, KEYS)).get(bookie_id),
        auditor=await read_auditor(metadata, KEYS),
        marked=(await read_under_replication(metadata, KEYS)).ledgers,
        space=space,
        quarantines=quarantines or {},
    )
    found = bookie_explanation(situation)
    assert all(each["next"] for each in found["reasons"])
    assert all(each["code"] in list(BookieCode) for each in found["reasons"])
    return found


async def codes(cluster: Cluster, bookie_id: str = "b2") -> list[str]:
    return [each["code"] for each in (await explained(cluster, bookie_id))["reasons"]]


def test_a_bookie_takes_entries_or_is_read_only_or_gives_no_answer() -> None:
    async def act(cluster: Cluster) -> None:
        assert await codes(cluster) == ["writable"]
        core = cluster.nodes["b2"].core
        assert core is not None
        core.set_read_only(True)
        await asyncio.sleep(1)
        found = await explained(cluster, "b2")
        assert [(each["code"], each["stops"]) for each in found["reasons"]] == [("read_only", True)]
        core.set_read_only(False)
        await asyncio.sleep(1)
        cluster.nodes["b2"].unreachable = True
        assert await codes(cluster) == ["no_answer"]

    on_a_cluster(act)


def test_a_bookie_is_down_and_its_ledgers_are_named() -> None:
    async def act(cluster: Cluster) -> None:
        for ledger_id in (1, 2):
            await cluster.ledger(ledger_id, [(0, ABC)], 10)
        await cluster.nodes["b2"].stop()
        assert await codes(cluster) == ["down"]
        await cluster.until(lambda: len(cluster.marks()) == 2)
        await asyncio.sleep(1)
        found = await explained(cluster, "b2")
        assert [each["code"] for each in found["reasons"]] == ["down", "under_replicated"]
        assert found["reasons"][1]["data"] == {"ledgers": 2, "copied": 0, "ledger": 1}
        assert found["underReplicated"] == 2
        await cluster.metadata.put(KEYS.replication_lock(1), encode(Leader(id="b1", since_ms=5)))
        found = await explained(cluster, "b2")
        assert found["reasons"][1]["data"]["copied"] == 1
        assert await codes(cluster, "b1") == ["writable", "copies"]

    on_a_cluster(act)


def test_a_bookie_that_leaves_and_one_that_has_left() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 10)
        await cluster.decommission("b2")
        await cluster.until(lambda: bool(cluster.marks()))
        await asyncio.sleep(2)
        found = await explained(cluster, "b2")
        assert [each["code"] for each in found["reasons"]] == ["leaving", "under_replicated"]
        assert found["reasons"][0]["data"] == {"ledgers": 1}
        await cluster.add("b4")
        await cluster.until(lambda: KEYS.decommission("b2") not in cluster.server.dump())
        assert await codes(cluster) == ["decommissioned"]

    on_a_cluster(act)


def test_a_quarantine_is_of_one_broker_and_ends() -> None:
    async def act(cluster: Cluster) -> None:
        config = QuorumConfig(quarantine_s=60)
        quarantine = Quarantine(SimClock(cluster.loop), config)
        quarantine.too_slow("b2", "it was 10 s behind")
        await asyncio.sleep(20)
        left = quarantine.left("b2")
        assert left is not None
        found = await explained(cluster, "b2", {"broker:80": left})
        assert [(each["code"], each["stops"]) for each in found["reasons"]] == [
            ("writable", False),
            ("quarantined", False),
        ]
        assert found["reasons"][1]["data"] == {
            "broker": "broker:80",
            "seconds": 40,
            "cause": "it was 10 s behind",
        }
        await asyncio.sleep(41)
        assert quarantine.left("b2") is None

    on_a_cluster(act)


def test_a_bookie_in_doubt_and_a_cluster_without_auto_recovery() -> None:
    async def act(cluster: Cluster) -> None:
        mark = BookieMark(bookie_id="b2", doubt="its disk was emptied", doubt_ms=7)
        await cluster.metadata.put(KEYS.bookie_mark("b2"), encode(mark))
        found = await explained(cluster, "b2")
        assert [each["code"] for each in found["reasons"]] == ["writable", "in_doubt"]
        assert "its disk was emptied" in found["reasons"][1]["text"]
        await cluster.nodes["b2"].stop()
        assert await codes(cluster) == ["down", "in_doubt", "auto_recovery_off"]

    on_a_cluster(act, config=OFF)


def test_a_standalone_has_no_bookies() -> None:
    assert [each["code"] for each in local_explanation("x:1")["reasons"]] == ["local_log"]
