"""The writer of a quorum ledger: what is confirmed, when, and what it holds back (storage contract, 3)."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.common.errors import (
    Backpressure,
    DataCorruption,
    LedgerClosed,
    LedgerFenced,
    NotEnoughBookies,
)
from magnetar.common.metadata.store import Check, Put
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.ledger.bookie_protocol.bookie_pb2 import BACKPRESSURE, BAD_RECORD, OK
from magnetar.ledger.ledger_store import Run, WriteReport

from tests.unit.ledger.ledger_store_contract import Heard
from tests.unit.ledger.quorum.cluster import Cluster, entries, others, simulate, until


def test_an_entry_is_confirmed_by_qa_of_its_write_set_and_not_before() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        cluster.bookies["b1"].holding = cluster.bookies["b2"].holding = True
        writer.append(entries(0))
        await asyncio.sleep(0.1)
        assert heard.confirmed == [], "one of three is not Qa"
        cluster.bookies["b1"].release()
        await asyncio.sleep(0.1)
        assert heard.confirmed == [0]

    simulate(act)


def test_the_same_bytes_go_to_every_bookie() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        writer.append(entries(0, 100))
        await asyncio.sleep(0.1)
        sent = [bookie.appends for bookie in cluster.bookies.all.values()]
        assert [len(each) for each in sent] == [1, 1, 1], "a run is one append"
        assert len({id(each[0]) for each in sent}) == 1, "encoded once"

    simulate(act)


def test_entries_are_confirmed_in_order_without_gaps() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        for bookie in ("b1", "b2"):
            cluster.bookies[bookie].holding = True
        writer.append(entries(0, 3))
        await asyncio.sleep(0.1)
        for bookie in ("b1", "b2"):
            cluster.bookies[bookie].holding = False
        writer.append(entries(3, 2))
        await asyncio.sleep(0.1)
        assert heard.confirmed == [], "what follows is durable, what comes before is not"
        cluster.bookies["b1"].release()
        await asyncio.sleep(0.1)
        assert heard.confirmed == [4], "and one call tells of both"

    simulate(act)


def test_one_watermark_for_all_answers_of_a_turn() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        for first in range(0, 1000, 10):
            writer.append(entries(first, 10))
        await asyncio.sleep(0.1)
        assert heard.confirmed == [999]

    simulate(act)


def test_a_striped_entry_is_on_its_write_set_only() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard, e=5, qw=3, qa=2)
        ensemble = cluster.fragments(writer.ref)[0][1]
        writer.append(entries(0, 7))
        writer.append(entries(7, 6))
        await asyncio.sleep(0.1)
        assert heard.confirmed == [12]
        for position, bookie_id in enumerate(ensemble):
            held = cluster.bookies[bookie_id].entry_ids(writer.ref)
            assert held == [n for n in range(13) if (position - n) % 5 < 3]
        closed = await writer.close()
        reader = await cluster.store.open(writer.ref)
        found: list[bytes] = []
        while len(found) < 13:
            found += [e for each in await reader.read(len(found), 12, 1 << 20) for e in each.entries]
        assert found == entries(0, 13).entries
        assert closed.byte_length == entries(0, 13).byte_length

    simulate(act, "b1", "b2", "b3", "b4", "b5")


def test_the_lac_rides_on_every_append_and_an_idle_tail_gets_an_explicit_one() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        writer.append(entries(0, 5))
        await asyncio.sleep(0.1)
        writer.append(entries(5))
        await asyncio.sleep(0.1)
        assert {bookie.held(writer.ref).lac for bookie in cluster.bookies.all.values()} == {4}
        await asyncio.sleep(2)
        for bookie in cluster.bookies.all.values():
            assert bookie.held(writer.ref).lac == 5
            assert bookie.explicit_lacs == [(writer.ref.id, 5)], "once, then the ledger is silent"

    simulate(act)


def test_bytes_in_flight_are_bounded_and_the_bound_is_felt_at_once() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        for bookie in cluster.bookies.all.values():
            bookie.holding = True
        writer.append(Run([b"x" * 600]))
        writer.append(Run([b"x" * 400]))
        refused = Run([b"x"] * 30)
        with pytest.raises(Backpressure):
            writer.append(refused)
        assert (refused.ledger_id, refused.first_entry_id) == (-1, -1), "no id was given"
        for bookie in cluster.bookies.all.values():
            bookie.release()
        await asyncio.sleep(0.1)
        assert writer.append(Run([b"y" * 5_000])) == 2, "a single run is taken whatever its size"

    simulate(act, ledger_pending_bytes_max=1024)


def test_all_ledgers_share_one_bound() -> None:
    async def act(cluster: Cluster) -> None:
        one, other = await cluster.create(), await cluster.create()
        for bookie in cluster.bookies.all.values():
            bookie.holding = True
        one.append(Run([b"x" * 2_000]))
        with pytest.raises(Backpressure):
            other.append(Run([b"x" * 100]))
        one.fenced()
        other.append(Run([b"x" * 100]))

    simulate(act, pending_bytes_max=2_048)


def test_a_bookie_without_room_gets_the_appends_again_in_order() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        full = cluster.bookies["b1"]
        full.refusing = BACKPRESSURE
        for entry_id in range(5):
            writer.append(entries(entry_id))
        await asyncio.sleep(0.005)
        full.refusing = OK
        full.appends.clear()
        writer.append(entries(5))
        assert full.appends == [], "nothing overtakes what waits"
        await asyncio.sleep(0.1)
        assert [each.first_entry_id for each in full.appends] == [0, 1, 2, 3, 4, 5]
        assert not writer.adds

    simulate(act)


def test_fenced_by_any_bookie_stops_the_writer_at_once() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        writer.append(entries(0))
        await asyncio.sleep(0.1)
        await cluster.bookies["b2"].fence(writer.ref)
        writer.append(entries(1))
        await asyncio.sleep(0.1)
        assert [(type(error), last) for error, last in heard.failed] == [(LedgerFenced, 0)]
        assert heard.confirmed == [0], "nothing is confirmed after a fence was seen"
        with pytest.raises(LedgerFenced):
            writer.append(entries(1))

    simulate(act)


def test_fenced_by_a_bookie_that_was_given_up_stops_the_writer_as_well() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        lost = others(writer)[0]
        await cluster.bookies[lost].fence(writer.ref)
        cluster.bookies[lost].holding = True  # its answer, that is
        writer.append(entries(0))
        await asyncio.sleep(1.5)
        assert lost not in others(writer), "it took too long and was replaced"
        cluster.bookies[lost].release()
        await asyncio.sleep(0.1)
        assert [(type(error), last) for error, last in heard.failed] == [(LedgerFenced, 0)]

    simulate(act, "b1", "b2", "b3", "b4", add_entry_timeout_s=1.0)


def test_an_entry_that_bookies_call_damaged_fails_the_ledger_instead_of_its_bookies() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        for bookie in cluster.bookies.all.values():
            bookie.refusing = BAD_RECORD
        writer.append(entries(0))
        await asyncio.sleep(0.1)
        assert [(type(error), last) for error, last in heard.failed] == [(DataCorruption, -1)]
        assert len(cluster.fragments(writer.ref)) == 1

    simulate(act)


def test_without_a_quorum_for_too_long_the_ledger_is_given_up() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        writer.append(entries(0))
        await asyncio.sleep(0.1)
        for bookie_id in ("b1", "b2"):
            cluster.bookies.take_down(bookie_id)
        writer.append(entries(1))
        await asyncio.sleep(5)
        assert heard.failed == [], "they may come back"
        await asyncio.sleep(10)
        assert [(type(error), last) for error, last in heard.failed] == [(NotEnoughBookies, 0)]
        closed = await writer.close()
        assert closed.last_entry_id == 0, "closed where it was confirmed"
        assert cluster.ledger(writer.ref).state == LedgerMetadata.CLOSED

    simulate(act)


def test_close_waits_for_confirmation_then_takes_nothing_more() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        for bookie in cluster.bookies.all.values():
            bookie.holding = True
        writer.append(entries(0, 3))
        closing = asyncio.ensure_future(writer.close())
        await asyncio.sleep(0.5)
        assert not closing.done()
        with pytest.raises(LedgerClosed):
            writer.append(entries(3))
        for bookie in cluster.bookies.all.values():
            bookie.release()
        closed = await closing
        assert (closed.last_entry_id, closed.byte_length) == (2, entries(0, 3).byte_length)
        value = cluster.ledger(writer.ref)
        assert (value.state, value.last_entry_id) == (LedgerMetadata.CLOSED, 2)
        assert cluster.gaps(writer.ref) == []
        assert await writer.close() == closed

    simulate(act)


def test_entries_missing_on_a_slow_bookie_at_close_are_recorded() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        writer.append(entries(0, 3))
        await asyncio.sleep(0.1)
        slow = cluster.bookies["b2"]
        slow.holding = True
        writer.append(entries(3, 4))
        writer.append(entries(7))
        closed = await writer.close(lambda closed: [Put("/t/with", b"it")])
        assert closed.last_entry_id == 7
        assert cluster.gaps(writer.ref) == [("b2", 3, 7)]
        assert cluster.marked(writer.ref)
        assert cluster.server.get("/t/with") is not None

    simulate(act)


def test_a_close_that_loses_to_another_owner_says_fenced() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        value = cluster.ledger(writer.ref)
        value.state = LedgerMetadata.IN_RECOVERY
        await cluster.metadata.put(cluster.keys.ledger(writer.ref.id), value.SerializeToString())
        with pytest.raises(LedgerFenced):
            await writer.close(lambda closed: [Put("/t/stolen", b"")])
        assert cluster.server.get("/t/stolen") is None
        assert [type(error) for error, _ in heard.failed] == [LedgerFenced]

    simulate(act)


def test_a_close_whose_guard_failed_leaves_a_ledger_that_goes_on_and_still_replaces_bookies() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        with pytest.raises(Exception, match="expected 77"):
            await writer.close(lambda closed: [Check("/t/nothing", 77)])
        writer.append(entries(0))
        await asyncio.sleep(0.1)
        lost = others(writer)[0]
        cluster.bookies.take_down(lost)
        writer.append(entries(1))
        await until(lambda: len(cluster.fragments(writer.ref)) == 2, "a replacement")
        assert heard.confirmed[-1] == 1

    simulate(act, "b1", "b2", "b3", "b4")


def test_a_confirmation_is_reported_with_the_bookies_that_answered_and_that_did_not() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        reports: list[WriteReport | None] = []
        told = writer._listener.on_confirmed

        def confirmed(last: int) -> None:
            told(last)
            reports.append(writer.write_report())

        writer._listener.on_confirmed = confirmed
        cluster.bookies["b1"].holding = cluster.bookies["b2"].holding = True
        began = asyncio.get_running_loop().time()
        writer.append(entries(0))
        await asyncio.sleep(0.5)
        cluster.bookies["b1"].release()
        await asyncio.sleep(0.1)
        (report,) = reports
        assert report is not None
        assert (report.sent_s, set(report.awaited), report.joined) == (began, {"b2"}, ())
        assert set(report.acked_by) == {"b0", "b1", "b2", "b3"} & set(report.acked_by) - {"b2"}
        assert len(report.acked_by) == 2
        assert report.durable_s >= began + 0.5
        assert writer.write_report() is None, "the entries are not kept in memory"

    simulate(act)
