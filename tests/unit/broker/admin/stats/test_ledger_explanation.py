"""Each reason why a ledger lacks copies, from bookies that produce it; auto-recovery does what it says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from magnetar.bookie.autorecovery.replication_worker import ReplicationWorker
from magnetar.broker.admin.routes.ledger_explain import situation_of
from magnetar.broker.admin.stats.ledger_explanation import LedgerCode, ledger_explanation
from magnetar.common.metadata.values import BookieMark, LedgerMetadata, encode

from tests.simulation.power_loss import KEYS
from tests.unit.bookie.autorecovery.cluster import QUICK, Cluster, on_a_cluster

ABC = ("b1", "b2", "b3")
OFF = replace(QUICK, enabled=False)


async def explained(cluster: Cluster, ledger_id: int = 1) -> dict[str, Any]:
    situation = await situation_of(cluster.metadata, KEYS, ledger_id)
    assert situation is not None
    found = ledger_explanation(situation)
    assert all(each["next"] for each in found["reasons"])
    assert all(each["code"] in list(LedgerCode) for each in found["reasons"])
    return found


async def codes(cluster: Cluster) -> list[str]:
    return [each["code"] for each in (await explained(cluster))["reasons"]]


def lacking(found: dict[str, Any]) -> list[tuple[int, int | None, int]]:
    return [(each["first"], each["last"], each["copies"]) for each in found["lacking"]]


def test_a_bookie_is_lost_and_another_one_takes_its_place() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50)
        found = await explained(cluster)
        assert [each["code"] for each in found["reasons"]] == ["replicated"]
        assert (lacking(found), found["steps"]) == ([], [])
        await cluster.nodes["b2"].stop()
        found = await explained(cluster)
        assert [each["code"] for each in found["reasons"]] == ["member_down", "not_marked"]
        assert found["reasons"][1]["data"] == {"auditor": cluster.auditor()}
        assert lacking(found) == [(0, 49, 1)]
        assert found["fragments"][0]["bookies"] == {"b1": "up", "b2": "down", "b3": "up"}
        await cluster.until(lambda: bool(cluster.marks()))
        await asyncio.sleep(1)
        found = await explained(cluster)
        assert [each["code"] for each in found["reasons"]] == ["member_down", "marked", "no_bookie"]
        assert found["reasons"][1]["since"]
        assert found["reasons"][1]["data"] == {"missing": ["b2"]}
        assert found["reasons"][2]["stops"]
        assert found["steps"] == [{"step": "move", "first": 0, "last": 49, "bookie": "b2", "to": []}]
        await cluster.add("b4")
        assert (await explained(cluster))["steps"][0]["to"] == ["b4"]
        await cluster.until(lambda: not cluster.marks())
        assert await codes(cluster) == ["replicated"]

    on_a_cluster(act)


def test_a_worker_that_copies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(cluster: Cluster) -> None:
        write, copied, go = ReplicationWorker._write, asyncio.Event(), asyncio.Event()

        async def held(self: ReplicationWorker, *args: Any) -> bool:
            copied.set()
            await go.wait()
            return await write(self, *args)

        monkeypatch.setattr(ReplicationWorker, "_write", held)
        await cluster.ledger(1, [(0, ABC)], 50)
        await cluster.nodes["b2"].stop()
        await cluster.mark(1, "b2")
        await copied.wait()
        found = await explained(cluster)
        assert [each["code"] for each in found["reasons"]] == ["member_down", "marked", "copying"]
        assert found["reasons"][2]["data"]["bookie"] in cluster.nodes
        go.set()
        await cluster.until(lambda: not cluster.marks())
        assert await codes(cluster) == ["replicated"]

    on_a_cluster(act, 4)


def test_a_repair_that_failed_waits_for_its_next_attempt() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50)
        await cluster.nodes["b2"].stop()
        cluster.nodes["b1"].unreachable = cluster.nodes["b3"].unreachable = True
        await cluster.mark(1, "b2")
        await asyncio.sleep(3)
        assert await codes(cluster) == ["member_down", "marked", "waits_for_worker"]
        cluster.nodes["b1"].unreachable = cluster.nodes["b3"].unreachable = False
        await cluster.until(lambda: not cluster.marks())

    on_a_cluster(act, 4)


def test_no_copy_is_left_to_read() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50)
        for bookie in ABC:
            cluster.kill(bookie)
        await cluster.until(lambda: cluster.marks() == {1: list(ABC)})
        await asyncio.sleep(3)
        found = await explained(cluster)
        down = ["member_down"] * 3
        assert [each["code"] for each in found["reasons"]] == [*down, "marked", *["no_source"] * 3]
        assert lacking(found) == [(0, 49, 3)]
        await cluster.revive(cluster.killed[0])
        await asyncio.sleep(1)
        assert "no_source" not in await codes(cluster)

    on_a_cluster(act, 6)


def test_a_gap_is_filled_once_its_bookie_is_back() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50, gaps=[("b2", 20, 29)])
        node = cluster.nodes["b2"]
        await node.stop()
        await cluster.mark(1)
        await asyncio.sleep(1)
        found = await explained(cluster)
        assert [each["code"] for each in found["reasons"]] == ["member_down", "gap", "marked", "gap_waits"]
        await node.start()
        found = await explained(cluster)
        assert lacking(found) == [(20, 29, 1)]
        assert found["steps"] == [{"step": "fill", "first": 20, "last": 29, "bookie": "b2", "to": ["b2"]}]
        await cluster.until(lambda: not cluster.marks())
        assert await codes(cluster) == ["replicated"]

    on_a_cluster(act)


@pytest.mark.parametrize(("bookies", "room"), [(3, ["no_room"]), (4, [])])
def test_the_end_of_an_open_ledger_is_left_to_its_writer(bookies: int, room: list[str]) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50, state=LedgerMetadata.OPEN)
        await cluster.nodes["b2"].stop()
        assert await codes(cluster) == ["member_down", "not_marked", "writer_replaces", *room]
        await cluster.mark(1, "b2")
        found = await explained(cluster)
        assert [each["code"] for each in found["reasons"]] == [
            "member_down",
            "marked",
            *[each["code"] for each in found["reasons"] if each["code"] == "copying"],
            "writer_replaces",
            *room,
        ]
        assert lacking(found) == [(0, None, 1)]
        assert (found["lastEntryId"], found["fragments"][0]["last"]) == (None, None)
        await asyncio.sleep(60)
        after = await explained(cluster)
        assert after["state"] == ("OPEN" if room else "CLOSED")

    on_a_cluster(act, bookies)


def test_an_unfinished_recovery_is_finished_first() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50, state=LedgerMetadata.IN_RECOVERY)
        assert await codes(cluster) == ["not_marked", "in_recovery"]
        await cluster.mark(1)
        await asyncio.sleep(1)
        assert await codes(cluster) == ["marked", "in_recovery"]
        await cluster.until(lambda: not cluster.marks())
        assert await codes(cluster) == ["replicated"]

    on_a_cluster(act)


def test_a_bookie_that_leaves_and_one_that_has_left() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50)
        await cluster.decommission("b2")
        await cluster.until(lambda: bool(cluster.marks()))
        await asyncio.sleep(1)
        found = await explained(cluster)
        assert [each["code"] for each in found["reasons"]] == ["member_leaving", "marked", "no_bookie"]
        assert lacking(found) == [], "its copies are still there"
        await cluster.nodes["b2"].stop()
        await cluster.metadata.delete(KEYS.decommission("b2"))
        await cluster.metadata.delete(KEYS.cookie("b2"))
        await asyncio.sleep(3)  # an attempt that has begun
        assert await codes(cluster) == ["member_gone", "marked", "no_bookie"]
        await cluster.add("b4")
        await cluster.until(lambda: not cluster.marks())
        assert await codes(cluster) == ["replicated"]

    on_a_cluster(act)


def test_without_auto_recovery_nothing_is_marked_or_copied() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50)
        await cluster.mark(1, "b2")
        assert await codes(cluster) == ["marked", "auto_recovery_off", "repaired"]
        await cluster.metadata.delete(KEYS.under_replicated(1))
        await cluster.nodes["b2"].stop()
        await asyncio.sleep(30)
        assert await codes(cluster) == ["member_down", "auto_recovery_off"]

    on_a_cluster(act, 4, config=OFF)


def test_a_mark_of_an_earlier_ledger_and_a_bookie_in_doubt() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.ledger(1, [(0, ABC)], 50)
        await cluster.mark(1, "b2")
        value = await cluster.metadata_of(1)
        value.ref.key += 1
        await cluster.metadata.put(KEYS.ledger(1), encode(value))
        await cluster.metadata.put(
            KEYS.bookie_mark("b3"),
            encode(BookieMark(bookie_id="b3", doubt="its disk was emptied", doubt_ms=7)),
        )
        found = await explained(cluster)
        assert [each["code"] for each in found["reasons"]] == ["member_in_doubt"]
        assert found["reasons"][0]["since"] == "1970-01-01T00:00:00.007Z"
        assert found["fragments"][0]["bookies"]["b3"] == "up, in doubt"
        assert await situation_of(cluster.metadata, KEYS, 2) is None

    on_a_cluster(act, config=OFF)


def test_a_ledger_of_a_local_log_has_one_copy() -> None:
    async def act(cluster: Cluster) -> None:
        value = LedgerMetadata(state=LedgerMetadata.OPEN, ensemble_size=1, write_quorum=1, ack_quorum=1)
        value.properties["topic"] = "persistent://t/n/x"
        await cluster.metadata.put(KEYS.ledger(1), encode(value))
        found = await explained(cluster)
        assert [each["code"] for each in found["reasons"]] == ["local_copy"]
        assert found["keptBy"] == "magnetar explain storage persistent://t/n/x"
        assert (found["fragments"], found["lacking"], found["steps"]) == ([], [], [])

    on_a_cluster(act, 1)
