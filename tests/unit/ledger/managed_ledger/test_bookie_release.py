"""How ledgers leave storage, and what is recorded to be deleted: who may, when, and what a crash leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from magnetar.common.errors import MetadataError, OwnershipLost, UnknownOutcome
from magnetar.common.metadata.metadata_pb2 import Offload
from magnetar.common.metadata.values import LEFT_BOOKIES, TopicLedger
from magnetar.common.naming.position import EARLIEST
from magnetar.ledger.cold.cold_reader import ObjectsDamaged
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger import (
    ManagedLedgerConfig,
    bookie_release,
    delete_managed_ledger,
    finish_intents,
    offload_state,
)
from magnetar.ledger.managed_ledger.ledger_list import LedgerSpan, SpanOffload
from magnetar.ledger.managed_ledger.offload_ledgers import OffloadLedgers
from magnetar.ledger.managed_ledger.offload_progress import NO_OFFLOAD, OffloadRules

from tests.simulation.cold_objects import LOCATION
from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import TOPIC, Topic, load, load_again, simulated, until
from tests.unit.ledger.managed_ledger.offloading import (
    AT_ONCE,
    NAME,
    Cold,
    closed_topic,
    intents_of,
    leave,
    offload,
    value_of,
    with_objects,
)


def on_a_topic(scenario: Callable[[Process, Topic, Cold, list[int]], Awaitable[None]]) -> None:
    """A topic with two closed ledgers, which a subscription keeps; they leave as soon as they may."""

    async def main(process: Process) -> None:
        topic = await load(process, ManagedLedgerConfig())
        await topic.ledger.create_cursor("keeps", EARLIEST, {})
        cold = with_objects(topic)
        topic.ledger.offload = AT_ONCE
        await scenario(process, topic, cold, await closed_topic(topic))

    simulated(main)


def span_of(ledger_id: int, state: Offload.State.ValueType | None, completed_ms: int = 0) -> LedgerSpan:
    span = LedgerSpan(LedgerRef(ledger_id, 0), entries=5, closed=True)
    if state is not None:
        span.offload = SpanOffload(1, state, completed_ms=completed_ms)
    return span


def test_only_whole_objects_that_are_old_enough_let_a_ledger_go() -> None:
    spans = [
        span_of(1, None),
        span_of(2, Offload.WANTED),
        span_of(3, Offload.RUNNING),
        span_of(4, Offload.COMPLETE, completed_ms=2_000),
        span_of(5, Offload.COMPLETE, completed_ms=1_000),
    ]
    lag = OffloadRules(deletion_lag_ms=500)
    assert bookie_release.due(spans, lag, 1_499) is None
    assert bookie_release.due(spans, lag, 1_500) is spans[4]
    assert bookie_release.due(spans, lag, 2_500) is spans[3]
    assert bookie_release.due(spans, lag, 2_500, skip={spans[3].ref}) is spans[4]
    assert bookie_release.due(spans, NO_OFFLOAD, 10**15) is None, "nobody said when"
    spans[4].offload = SpanOffload(2, Offload.COMPLETE, completed_ms=1_000, left_bookies_ms=1_600)
    assert bookie_release.due(spans, lag, 1_700) is None, "it has left"


def test_leaving_is_written_for_older_releases_to_see_and_its_intent_is_finished() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        await offload(topic, cold, ledgers[0])
        assert await leave(topic, cold) == ledgers[0]
        value = await value_of(topic, ledgers[0])
        assert value is not None
        assert value.format.incompatible_features == LEFT_BOOKIES
        assert value.offload.left_bookies_ms
        assert not await intents_of(topic)
        assert topic.ledger.due_to_leave() is None

    on_a_topic(scenario)


@pytest.mark.parametrize("applied", [True, False])
def test_an_unknown_outcome_leaves_the_ledger_whole_or_left_and_never_in_between(applied: bool) -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        await offload(topic, cold, ledgers[0])
        await topic.ledger.refresh_offload()
        due = topic.ledger.due_to_leave()
        assert due is not None
        verified = await cold.verify(due)
        process.metadata.lose_next_outcome(applied=applied)
        if applied:
            assert await topic.ledger.leave_bookies(verified)
        else:
            with pytest.raises(UnknownOutcome):
                await topic.ledger.leave_bookies(verified)
            assert KEYS.ledger(ledgers[0]) in process.world.metadata.dump()
            assert await topic.ledger.leave_bookies(verified), "trying again is safe"
        assert KEYS.ledger(ledgers[0]) not in process.world.metadata.dump()
        assert [data for _, data in await topic.read_all()] == [b"%d" % number for number in range(25)]

    on_a_topic(scenario)


def test_a_crash_behind_the_transaction_leaves_an_intent_that_the_next_one_finishes() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        await offload(topic, cold, ledgers[0])

        async def dies(*_: object) -> None:
            raise MetadataError("the process dies here")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bookie_release, "finish_quietly", dies)
            with pytest.raises(MetadataError):
                await leave(topic, cold)
        assert KEYS.ledger(ledgers[0]) in process.world.metadata.dump()
        again = await load_again(topic.ctx)
        again.published = topic.published
        assert await finish_intents(topic.ctx) == 1
        assert KEYS.ledger(ledgers[0]) not in process.world.metadata.dump()
        # The former owner has not heard of any of it, and still loses nothing.
        for each in (topic, again):
            assert [data for _, data in await each.read_all()] == [b"%d" % number for number in range(25)]

    on_a_topic(scenario)


def test_a_former_owner_lets_nothing_go() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        await offload(topic, cold, ledgers[0])
        await topic.ledger.refresh_offload()
        due = topic.ledger.due_to_leave()
        assert due is not None
        verified = await cold.verify(due)
        head, span = topic.ledger._head, topic.ledger.spans.by_id[ledgers[0]]
        await head.sync()
        await load_again(topic.ctx)
        with pytest.raises(OwnershipLost):
            await bookie_release.leave(topic.ctx, head, topic.ledger.creation_id, span, verified)
        with pytest.raises(OwnershipLost):
            await topic.ledger.leave_bookies(verified)
        assert topic.listener.lost
        assert KEYS.ledger(ledgers[0]) in process.world.metadata.dump()
        assert not await intents_of(topic)

    on_a_topic(scenario)


def test_objects_of_another_attempt_than_was_verified_do_not_let_a_ledger_go() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        await offload(topic, cold, ledgers[0])
        await topic.ledger.refresh_offload()
        due = topic.ledger.due_to_leave()
        assert due is not None
        verified = await cold.verify(due)
        assert await bookie_release.want_again(topic.ctx, due, "damaged since")
        assert not await topic.ledger.leave_bookies(verified)
        assert topic.ledger.due_to_leave() is None
        await offload(topic, cold, ledgers[0], attempt=b"b" * 16)
        assert not await topic.ledger.leave_bookies(verified)
        assert KEYS.ledger(ledgers[0]) in process.world.metadata.dump()
        assert await leave(topic, cold) == ledgers[0]

    on_a_topic(scenario)


def test_damaged_objects_are_wanted_again_unless_they_are_the_only_copy() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        for ledger_id in ledgers:
            await offload(topic, cold, ledger_id)
        await topic.ledger.refresh_offload()
        first = topic.ledger.due_to_leave()
        assert first is not None
        for path in cold.objects:
            cold.objects[path] += b"!"
        with pytest.raises(ObjectsDamaged):
            await cold.verify(first)
        assert await bookie_release.want_again(topic.ctx, first, "its parts are damaged")
        assert not await bookie_release.want_again(topic.ctx, first, "once more"), "that is known"
        value = await value_of(topic, ledgers[0])
        assert value is not None
        assert (value.offload.state, value.offload.error) == (Offload.WANTED, "its parts are damaged")
        # A job writes both anew, one leaves: its objects are all there is.
        await offload(topic, cold, ledgers[0], attempt=b"b" * 16)
        left = await leave(topic, cold)
        value = await value_of(topic, left)
        assert value is not None
        await topic.ledger.refresh_offload()
        span = topic.ledger.spans.by_id[left]
        assert span.offload is not None
        assert span.offload.reader is not None or await topic.read_all()
        assert span.offload.reader is not None
        assert not await bookie_release.want_again(topic.ctx, span.offload.reader.ledger, "damaged")

    on_a_topic(scenario)


def test_trimming_records_the_objects_of_whole_of_running_and_of_left_ledgers() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        await offload(topic, cold, ledgers[0])
        await leave(topic, cold)
        offloads = OffloadLedgers(topic.ctx.metadata, KEYS, topic.ctx.clock)

        def begin(value: TopicLedger) -> TopicLedger:
            wanted = offload_state.want(value, location=LOCATION, now_ms=1)
            return offload_state.begin(wanted, attempt=b"r" * 16, path="running", now_ms=1)

        await offloads.change(NAME, topic.ledger.creation_id, ledgers[1], begin)
        topic.ledger.cursors["keeps"].ack_cumulative(topic.ledger.last_confirmed)
        await topic.flushed()
        await until(lambda: topic.ledger._maintenance is None and ledgers[1] not in topic.ledger.spans.by_id)
        found = sorted(
            (each.delete_objects.location, each.delete_objects.path) for each in await intents_of(topic)
        )
        path = next(iter(cold.objects)).rpartition("/")[0]
        assert found == sorted([(LOCATION, path), (LOCATION, "running")])
        for ledger_id in ledgers:
            assert await value_of(topic, ledger_id) is None
        assert await finish_intents(topic.ctx) == 0, "who has the packages to reach objects finishes these"

    on_a_topic(scenario)


def test_deleting_a_topic_records_its_objects_however_a_job_changes_its_ledgers_meanwhile() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        await offload(topic, cold, ledgers[0])
        await leave(topic, cold)
        listed = process.metadata.children

        async def list_then_offload(prefix: str) -> object:
            listing = await listed(prefix)
            if "/topics/" in prefix:
                process.metadata.children = listed  # type: ignore[method-assign]
                await offload(topic, cold, ledgers[1])
            return listing

        await topic.ledger.close()
        process.metadata.children = list_then_offload  # type: ignore[assignment,method-assign]
        await delete_managed_ledger(topic.ctx, TOPIC)
        paths = {path.rpartition("/")[0] for path in cold.objects}
        assert len(paths) == 2
        assert {each.delete_objects.path for each in await intents_of(topic)} == paths
        assert not [key for key in process.world.metadata.dump() if "/topics/" in key or "/ledgers/" in key]

    on_a_topic(scenario)
