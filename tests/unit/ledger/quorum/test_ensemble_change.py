"""Ensemble changes while a ledger is written: what is replaced, what is recorded, who is believed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from magnetar.common.errors import LedgerFenced, UnknownOutcome
from magnetar.common.metadata.store import Op, Put
from magnetar.common.metadata.values import LedgerMetadata, UnderReplicated, decode, encode
from magnetar.ledger.bookie_protocol.bookie_pb2 import LOG_FAILED, READ_ONLY
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.quorum.ledger_metadata import OPEN_GAP_END

from tests.unit.ledger.ledger_store_contract import Heard
from tests.unit.ledger.quorum.cluster import Cluster, entries, others, replicated, simulate, until


def test_a_failed_bookie_is_replaced_from_lac_plus_one_and_the_newcomer_gets_what_followed() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        writer.append(entries(0, 5))
        await asyncio.sleep(0.1)
        [(_, before)] = cluster.fragments(writer.ref)
        [newcomer] = set(cluster.bookies.all) - set(before)
        lost = before[0]
        cluster.bookies[lost].refusing = LOG_FAILED
        writer.append(entries(5, 2))
        await until(lambda: len(cluster.fragments(writer.ref)) == 2, "a new fragment")
        writer.append(entries(7))
        await until(lambda: not writer.adds, "everything answered")
        (_, first), (start, second) = cluster.fragments(writer.ref)
        assert first == before
        assert second == [newcomer if each == lost else each for each in before], "its position, no other"
        assert cluster.bookies[newcomer].entry_ids(writer.ref) == list(range(start, 8))
        assert heard.confirmed[-1] == 7
        assert heard.failed == []
        assert replicated(cluster, writer, 7)

    simulate(act, "b1", "b2", "b3", "b4")


def test_writing_goes_on_while_qw_minus_qa_bookies_are_unreachable() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        cluster.bookies.take_down("b2")
        for entry_id in range(20):
            writer.append(entries(entry_id))
            await asyncio.sleep(0.05)
        assert heard.confirmed[-1] == 19
        assert heard.failed == []

    simulate(act)


def test_the_newcomer_is_sent_nothing_and_counts_for_nothing_before_the_compare_and_set() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        [newcomer] = set(cluster.bookies.all) - set(others(writer))
        one, two, three = others(writer)
        cluster.metadata.faults.unreachable = True
        cluster.bookies[one].refusing = LOG_FAILED
        cluster.bookies[two].holding = True
        writer.append(entries(0))
        await asyncio.sleep(1)
        assert cluster.bookies[newcomer].appends == []
        assert heard.confirmed == [], "one of the old ones is not Qa"
        cluster.metadata.faults.unreachable = False
        await until(lambda: heard.confirmed == [0], "confirmed with the newcomer")
        assert cluster.fragments(writer.ref)[-1][1].count(newcomer) == 1
        assert cluster.bookies[three].entry_ids(writer.ref) == [0]

    simulate(act, "b1", "b2", "b3", "b4")


def test_answers_of_a_replaced_bookie_do_not_count_any_more() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        lost, silent, _ = (cluster.bookies[each] for each in others(writer))
        [newcomer] = [each for each in cluster.bookies.all.values() if each.bookie_id not in others(writer)]
        newcomer.holding = silent.holding = lost.holding = True
        writer.append(entries(0))
        for member in writer.members:
            if member.bookie_id == lost.bookie_id:
                writer.lose(member, "a test says so")
        await until(lambda: newcomer.bookie_id in cluster.fragments(writer.ref)[-1][1], "replaced")
        lost.release()
        await asyncio.sleep(0.2)
        assert heard.confirmed == [], (
            "its answer would be the second, and it is not in the write set any more"
        )
        newcomer.release()
        await asyncio.sleep(0.2)
        assert heard.confirmed == [0]

    simulate(act, "b1", "b2", "b3", "b4")


def test_an_answer_given_before_the_replacement_does_not_count_after_it() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard, qa=3)
        lost, silent, _ = (cluster.bookies[each] for each in others(writer))
        [newcomer] = [each for each in cluster.bookies.all.values() if each.bookie_id not in others(writer)]
        silent.holding = newcomer.holding = True
        writer.append(entries(0))
        await asyncio.sleep(0.1)
        for member in writer.members:
            if member.bookie_id == lost.bookie_id:
                writer.lose(member, "a test says so")
        await until(lambda: newcomer.bookie_id in cluster.fragments(writer.ref)[-1][1], "replaced")
        silent.release()
        await asyncio.sleep(0.2)
        assert heard.confirmed == [], "the one that left had it, the newcomer has not answered"
        newcomer.release()
        await asyncio.sleep(0.2)
        assert heard.confirmed == [0]

    simulate(act, "b1", "b2", "b3", "b4")


def test_the_same_bookie_is_not_replaced_twice_for_one_failure() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        lost = others(writer)[0]
        cluster.bookies[lost].holding = True
        for entry_id in range(10):
            writer.append(entries(entry_id))
        await asyncio.sleep(0.1)
        cluster.bookies.take_down(lost)  # ten appends fail
        await until(lambda: not writer.adds, "everything answered")
        await asyncio.sleep(30)
        assert len(cluster.fragments(writer.ref)) == 2

    simulate(act, "b1", "b2", "b3", "b4", "b5", "b6")


def test_several_failures_at_once_become_one_change() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create(e=5, qw=4, qa=2)
        writer.append(entries(0, 10))
        await asyncio.sleep(0.1)
        one, two, *_ = others(writer)
        cluster.bookies.take_down(one)
        cluster.bookies.take_down(two)
        writer.append(entries(10, 10))
        await until(lambda: not writer.adds, "everything answered")
        assert len(cluster.fragments(writer.ref)) == 2
        assert not {one, two} & set(cluster.fragments(writer.ref)[1][1])
        assert replicated(cluster, writer, 19)

    simulate(act, "b1", "b2", "b3", "b4", "b5", "b6", "b7")


def test_a_bookie_that_does_not_answer_in_time_is_replaced() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        lost = others(writer)[1]
        cluster.bookies[lost].holding = True
        writer.append(entries(0))
        await asyncio.sleep(0.9)
        assert len(cluster.fragments(writer.ref)) == 1
        await asyncio.sleep(0.6)
        assert lost not in cluster.fragments(writer.ref)[-1][1]

    simulate(act, "b1", "b2", "b3", "b4", add_entry_timeout_s=1.0)


def test_missing_acknowledged_entries_are_recorded_with_the_ensemble_change() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        writer.append(entries(0, 3))
        await asyncio.sleep(0.1)
        lost = others(writer)[2]
        cluster.bookies[lost].holding = True
        writer.append(entries(3, 2))
        writer.append(entries(5, 2))
        await asyncio.sleep(0.1)
        assert heard.confirmed[-1] == 6
        assert len(writer.adds.incomplete) == 2, "confirmed, and not let go: a bookie has not answered"
        cluster.bookies.take_down(lost)
        await until(lambda: not writer.adds, "let go")
        assert [start for start, _ in cluster.fragments(writer.ref)] == [0, 7]
        assert cluster.gaps(writer.ref) == [(lost, 3, 6)]
        found = cluster.server.get(cluster.keys.under_replicated(writer.ref.id))
        assert found is not None
        assert decode(UnderReplicated, found.value).ref.key == writer.ref.key

    simulate(act, "b1", "b2", "b3", "b4")


def test_without_a_replacement_an_entry_leaves_once_the_gap_is_recorded() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        writer.append(entries(0, 3))
        await asyncio.sleep(0.1)
        cluster.metadata.faults.unreachable = True
        cluster.bookies.take_down("b3")
        writer.append(entries(3, 3))
        await asyncio.sleep(5)
        assert heard.confirmed[-1] == 5, "Qa holds"
        assert writer.adds.incomplete, "not recorded yet: not let go"
        cluster.metadata.faults.unreachable = False
        await until(lambda: not writer.adds, "let go")
        assert cluster.gaps(writer.ref) == [("b3", 3, OPEN_GAP_END)]
        assert cluster.marked(writer.ref)
        assert len(cluster.fragments(writer.ref)) == 1
        writer.append(entries(6))
        await asyncio.sleep(0.1)
        assert not writer.adds, "the gap is open: what comes is not awaited of it"
        closed = await writer.close()
        assert closed.last_entry_id == 6
        assert cluster.gaps(writer.ref) == [("b3", 3, 6)]

    simulate(act)


def test_a_gap_ends_when_another_bookie_comes_up() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        cluster.bookies.take_down("b1")
        writer.append(entries(0, 4))
        await until(lambda: not writer.adds, "the gap is recorded")
        cluster.bookies.add("b9")
        await until(lambda: len(cluster.fragments(writer.ref)) == 2, "replaced")
        assert cluster.gaps(writer.ref) == [("b1", 0, 3)]
        writer.append(entries(4))
        await until(lambda: not writer.adds, "everything answered")
        assert cluster.bookies["b9"].entry_ids(writer.ref) == [4]
        assert replicated(cluster, writer, 4)

    simulate(act)


def test_a_change_waits_while_metadata_is_away_and_writing_goes_on() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        cluster.metadata.faults.unreachable = True
        cluster.bookies.take_down(others(writer)[0])
        for entry_id in range(50):
            writer.append(entries(entry_id))
            await asyncio.sleep(0.5)
        assert heard.confirmed[-1] == 49
        assert heard.failed == []
        cluster.metadata.faults.unreachable = False
        await until(lambda: not writer.adds, "recorded and re-sent")
        assert replicated(cluster, writer, 49)
        assert cluster.gaps(writer.ref) != []

    simulate(act, "b1", "b2", "b3", "b4")


def test_memory_is_bounded_while_metadata_is_away_and_what_was_let_go_is_recorded_later() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        lost = others(writer)[0]
        cluster.metadata.faults.unreachable = True
        cluster.bookies.take_down(lost)
        for _ in range(200):
            writer.append(Run([b"x" * 100]))
            await asyncio.sleep(0.01)
            assert writer.adds.pending <= 1_000
        await asyncio.sleep(1)
        assert heard.confirmed[-1] == 199
        cluster.metadata.faults.unreachable = False
        await until(lambda: not writer.adds and not writer.adds.owed, "recorded and re-sent")
        assert replicated(cluster, writer, 199)

    simulate(act, "b1", "b2", "b3", "b4", ledger_pending_bytes_max=1_000)


def test_one_slow_bookie_is_replaced_before_it_holds_up_the_writer() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        slow = others(writer)[0]
        cluster.bookies[slow].holding = True
        for _ in range(30):
            writer.append(Run([b"x" * 100]))  # never Backpressure
            await asyncio.sleep(0.01)
        assert heard.confirmed[-1] == 29
        assert slow not in cluster.fragments(writer.ref)[-1][1]
        assert slow in cluster.store.placement.quarantine
        await until(lambda: not writer.adds, "everything answered")
        assert replicated(cluster, writer, 29)

    simulate(act, "b1", "b2", "b3", "b4", ledger_pending_bytes_max=1_000)


def test_a_lost_compare_and_set_on_a_ledger_that_is_not_open_means_fenced() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        writer.append(entries(0))
        await asyncio.sleep(0.1)
        value = cluster.ledger(writer.ref)
        value.state = LedgerMetadata.IN_RECOVERY
        await cluster.metadata.put(cluster.keys.ledger(writer.ref.id), encode(value))
        cluster.bookies.take_down(others(writer)[0])
        writer.append(entries(1))
        await until(lambda: bool(heard.failed), "told")
        [(error, last)] = heard.failed
        assert isinstance(error, LedgerFenced)
        assert last == heard.confirmed[-1]
        assert len(cluster.fragments(writer.ref)) == 1

    simulate(act, "b1", "b2", "b3", "b4")


def test_metadata_that_others_changed_is_kept_when_the_ledger_is_still_ours() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        value = cluster.ledger(writer.ref)
        value.gaps.add(bookie_id="somebody", first_entry_id=0, last_entry_id=0)
        await cluster.metadata.put(cluster.keys.ledger(writer.ref.id), encode(value))
        lost = others(writer)[0]
        cluster.bookies.take_down(lost)
        writer.append(entries(0, 2))
        await until(lambda: not writer.adds, "replaced")
        assert ("somebody", 0, 0) in cluster.gaps(writer.ref)
        assert lost not in cluster.fragments(writer.ref)[-1][1]
        assert heard.failed == []
        await writer.close()

    simulate(act, "b1", "b2", "b3", "b4")


def test_a_mark_for_auto_recovery_that_is_there_is_touched_and_not_replaced() -> None:
    async def act(cluster: Cluster) -> None:
        writer = await cluster.create()
        mark = UnderReplicated(missing_bookie_ids=["b7"])
        mark.ref.id, mark.ref.key = writer.ref.id, writer.ref.key
        key = cluster.keys.under_replicated(writer.ref.id)
        before = await cluster.metadata.put(key, encode(mark))
        cluster.bookies.take_down("b1")
        writer.append(entries(0))
        await until(lambda: not writer.adds, "the gap is recorded")
        found = cluster.server.get(key)
        assert found is not None
        assert decode(UnderReplicated, found.value).missing_bookie_ids == ["b7"]
        assert found.version > before, "a worker that read the ledger earlier cannot remove it"

    simulate(act)


@pytest.mark.parametrize("happened", [True, False])
def test_a_change_of_unknown_outcome_is_read_again_and_never_made_twice(happened: bool) -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        writer.append(entries(0, 3))
        await asyncio.sleep(0.1)
        cluster.metadata.lose_next_outcome(applied=happened)
        lost = others(writer)[1]
        cluster.bookies[lost].refusing = READ_ONLY
        writer.append(entries(3, 3))
        await until(lambda: not writer.adds, "everything answered")
        assert len(cluster.fragments(writer.ref)) == 2
        assert lost not in cluster.fragments(writer.ref)[1][1]
        assert replicated(cluster, writer, 5)
        assert (await writer.close()).last_entry_id == 5
        assert heard.failed == []

    simulate(act, "b1", "b2", "b3", "b4")


def test_a_change_that_lands_late_is_known_again_although_another_is_due_by_then() -> None:
    """Only the same change may be written again: the one that lands late has to be recognized as ours."""

    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        writer.append(entries(0, 3))
        await asyncio.sleep(0.1)
        first, second = others(writer)[:2]
        commit, on_their_way = cluster.metadata.commit, list[Sequence[Op]]()

        async def commit_late(ops: Sequence[Op]) -> int:
            if not on_their_way:
                on_their_way.append(ops)
                cluster.bookies[second].refusing = READ_ONLY
                writer.append(entries(6))
                await asyncio.sleep(0.1)
                raise UnknownOutcome("as the test wants it")
            if len(on_their_way) == 1:
                on_their_way.append(())
                await commit(on_their_way[0])
            return await commit(ops)

        cluster.metadata.commit = commit_late  # type: ignore[method-assign]
        cluster.bookies[first].refusing = READ_ONLY
        writer.append(entries(3, 3))
        await until(lambda: not writer.adds, "everything answered")
        assert heard.failed == []
        assert not {first, second} & set(cluster.fragments(writer.ref)[-1][1])
        assert replicated(cluster, writer, 6)

    simulate(act, "b1", "b2", "b3", "b4", "b5")


def test_no_gap_is_recorded_for_bookies_without_which_a_write_set_has_no_quorum() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        writer.append(entries(0))
        await asyncio.sleep(0.1)
        for bookie_id in others(writer)[:2]:
            cluster.bookies.take_down(bookie_id)
        writer.append(entries(1))
        await asyncio.sleep(5)
        assert cluster.gaps(writer.ref) == []
        assert heard.confirmed == [0]

    simulate(act)


def test_metadata_unknown_again_and_again_ends_in_one_consistent_ledger() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        cluster.metadata.faults.unknown_probability = 0.5
        for entry_id in range(30):
            writer.append(entries(entry_id))
            if entry_id in (5, 15):
                cluster.bookies.take_down(others(writer)[0])
            await asyncio.sleep(0.2)
        await until(lambda: not writer.adds, "everything answered")
        cluster.metadata.faults.unknown_probability = 0.0
        closed = await writer.close(lambda closed: [Put("/t/closed", b"")])
        assert closed.last_entry_id == 29
        assert heard.failed == []
        assert replicated(cluster, writer, 29)
        assert cluster.fragments(writer.ref) == [
            (each.first_entry_id, list(each.bookie_ids)) for each in writer.layout.fragments
        ]

    simulate(act, "b1", "b2", "b3", "b4", "b5", "b6")


def test_a_ledger_that_changed_too_often_ends_instead_of_growing_its_metadata() -> None:
    async def act(cluster: Cluster) -> None:
        heard = Heard()
        writer = await cluster.create(heard)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("magnetar.ledger.quorum.ledger_metadata.FRAGMENTS_MAX", 2)
            for entry_id in range(2):
                writer.append(entries(entry_id))
                await asyncio.sleep(0.1)
                writer.lose(writer.members[0], "a test says so")
                await asyncio.sleep(1)
        assert "too many changes" in str(heard.failed[0][0])
        assert len(cluster.fragments(writer.ref)) == 2
        assert (await writer.close()).last_entry_id == heard.confirmed[-1]

    simulate(act, "b1", "b2", "b3", "b4", "b5")
