"""Reads of offloaded ledgers: from which copy, and that no entry is taken for lost that some copy has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from magnetar.common.errors import EntryUnknown, EntryUnreadable, MetadataError, NoSuchEntry, NoSuchLedger
from magnetar.common.metadata.store import Put
from magnetar.common.metadata.values import TopicLedger, decode, encode
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.cold.cold_reader import (
    ColdLedger,
    ColdLedgerReader,
    ObjectsDamaged,
    ObjectsUnavailable,
    Verified,
)
from magnetar.ledger.cold.key_rows import KeyRun
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.managed_ledger import ManagedLedgerConfig
from magnetar.ledger.managed_ledger.offload_progress import OffloadRules
from magnetar.ledger.managed_ledger.span_reads import OTHER_TIER
from magnetar.ledger.managed_ledger.storage_reads import UNREADABLE

from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import Topic, load, load_again, simulated
from tests.unit.ledger.managed_ledger.offloading import (
    AT_ONCE,
    Cold,
    closed_topic,
    leave,
    offload,
    value_of,
    with_objects,
)


def on_a_topic(scenario: Callable[[Process, Topic, Cold, list[int]], Awaitable[None]]) -> None:
    """A topic of 25 entries in ledgers of 10, with a subscription that keeps them."""

    async def main(process: Process) -> None:
        topic = await load(process, ManagedLedgerConfig())
        await topic.ledger.create_cursor("keeps", EARLIEST, {})
        cold = with_objects(topic)
        await scenario(process, topic, cold, await closed_topic(topic))

    simulated(main)


async def entries(topic: Topic) -> list[bytes]:
    return [data for _, data in await topic.read_all()]


EVERYTHING = [b"%d" % number for number in range(25)]


class Broken:
    """A reader on storage that says the same of every entry."""

    copies = 1

    def __init__(self, ref: LedgerRef, error: Exception) -> None:
        self.ref = ref
        self.last_confirmed = 9
        self._error = error

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        raise self._error


def test_a_ledger_that_left_is_read_from_its_objects_and_nothing_of_it_is_in_storage() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        before = await topic.read_all()
        topic.ledger.offload = AT_ONCE
        await offload(topic, cold, ledgers[0])
        assert await leave(topic, cold) == ledgers[0]
        assert KEYS.ledger(ledgers[0]) not in process.world.metadata.dump()
        assert await topic.read_all() == before
        assert cold.reads
        again = await load_again(topic.ctx)
        assert await again.read_all() == before

    on_a_topic(scenario)


def test_reads_go_to_storage_first_and_to_objects_first_where_a_policy_says_so() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        await offload(topic, cold, ledgers[0])
        await topic.ledger.refresh_offload()
        assert await entries(topic) == EVERYTHING
        assert not cold.reads
        topic.ledger.offload = OffloadRules(objects_first=True)
        assert await entries(topic) == EVERYTHING
        assert cold.reads

        failed = OTHER_TIER.labels("objects")._value.get()
        cold.away = True
        assert await entries(topic) == EVERYTHING
        assert OTHER_TIER.labels("objects")._value.get() > failed

    on_a_topic(scenario)


@pytest.mark.parametrize(
    "error", [EntryUnreadable("damaged"), NoSuchEntry("gone"), NoSuchLedger("gone"), EntryUnknown("away")]
)
@pytest.mark.parametrize("known", [True, False])
def test_entries_lost_by_bookies_are_read_from_unannounced_objects(error: Exception, known: bool) -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        await offload(topic, cold, ledgers[0])
        if known:
            await topic.ledger.refresh_offload()
        span = topic.ledger.spans.by_id[ledgers[0]]
        span.reader = Broken(span.ref, error)
        skipped = UNREADABLE._value.get()
        assert await entries(topic) == EVERYTHING
        assert UNREADABLE._value.get() == skipped

    on_a_topic(scenario)


def test_damage_is_not_taken_for_a_loss_while_objects_or_metadata_are_away() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        await offload(topic, cold, ledgers[0])
        start = Position(ledgers[0], 0)
        span = topic.ledger.spans.by_id[ledgers[0]]
        span.reader = Broken(span.ref, EntryUnreadable("damaged"))
        process.metadata.faults.unreachable = True
        with pytest.raises(MetadataError):
            await topic.ledger.read(start, 10, 10_000)
        process.metadata.faults.unreachable = False
        cold.away = True
        with pytest.raises(ObjectsUnavailable):
            await topic.ledger.read(start, 10, 10_000)
        cold.objects.clear()
        cold.away = False
        with pytest.raises(ObjectsDamaged):
            await topic.ledger.read(start, 10, 10_000)

    on_a_topic(scenario)


def test_damage_that_no_object_can_make_good_is_skipped_as_ever() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        span = topic.ledger.spans.by_id[ledgers[0]]
        span.reader = Broken(span.ref, EntryUnreadable("damaged"))
        result = await topic.ledger.read(Position(ledgers[0], 0), 12, 10_000)
        assert result.unreadable == [Position(ledgers[0], number) for number in range(10)]
        assert [data for run in result.runs for data in run.entries] == EVERYTHING[10:12]

    on_a_topic(scenario)


def test_objects_that_are_the_only_copy_are_waited_for() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        topic.ledger.offload = AT_ONCE
        await offload(topic, cold, ledgers[0])
        await leave(topic, cold)
        kept = dict(cold.objects)
        cold.objects.clear()
        for _ in range(3):
            with pytest.raises(ObjectsDamaged):
                await topic.ledger.read(Position(ledgers[0], 0), 10, 10_000)
        cold.objects.update(kept)
        assert await entries(topic) == EVERYTHING

    on_a_topic(scenario)


def test_a_process_without_a_reader_of_objects_says_so_and_serves_the_other_ledgers() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        topic.ledger.offload = AT_ONCE
        await offload(topic, cold, ledgers[0])
        await leave(topic, cold)
        topic.ctx.cold = None
        again = await load_again(topic.ctx)
        with pytest.raises(ObjectsUnavailable, match="nothing in this process reads them"):
            await again.ledger.read(Position(ledgers[0], 0), 10, 10_000)
        assert [data for _, data in await again.read_all(Position(ledgers[0], 9))] == EVERYTHING[10:]

    on_a_topic(scenario)


@pytest.mark.parametrize("objects_first", [False, True])
def test_positions_are_found_by_time_in_ledgers_that_left(objects_first: bool) -> None:
    async def main(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("keeps", EARLIEST, {})
        cold = with_objects(topic)
        times: list[int] = []
        for _ in range(25):
            times.append(topic.publish(1).publish_time_ms)
            await topic.published_all()
            await asyncio.sleep(0.01)
        everything = [position for position, _ in topic.listener.confirmed]
        expected = [await topic.ledger.find_before_publish_time(at) for at in times]
        assert expected[1:] == everything[:-1]
        topic.ledger.offload = OffloadRules(-1 if objects_first else 0, objects_first)
        for ledger_id in (span.ref.id for span in topic.ledger.spans.spans if span.closed):
            await offload(topic, cold, ledger_id)
            await topic.ledger.refresh_offload()
            if not objects_first:
                await leave(topic, cold)
        assert [await topic.ledger.find_before_publish_time(at) for at in times] == expected
        if objects_first:
            cold.objects.clear()  # bookies still tell
            assert [await topic.ledger.find_before_publish_time(at) for at in times] == expected

    simulated(main)


def test_a_topic_whose_last_ledger_left_is_loaded_without_its_objects() -> None:
    """A takeover closed the ledger and did not count its messages: leaving wrote down how many there are."""

    async def main(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("keeps", EARLIEST, {})
        for _ in range(4):
            topic.publish(1, counts=[3])
        await topic.published_all()
        again = await load_again(topic.ctx)  # recovers the open ledger
        again.published = topic.published
        cold = with_objects(again)
        (span,) = again.ledger.spans.spans
        value = await value_of(again, span.ref.id)
        assert value is not None
        assert value.messages == 0
        again.ledger.offload = AT_ONCE
        await offload(again, cold, span.ref.id)
        await leave(again, cold)
        value = await value_of(again, span.ref.id)
        assert value is not None
        assert (value.messages, value.first_index) == (12, 0)
        cold.away = True
        third = await load_again(again.ctx)
        assert third.ledger.next_index == 12

    simulated(main)


def test_an_older_look_at_metadata_does_not_undo_what_is_known() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        topic.ledger.offload = AT_ONCE
        await offload(topic, cold, ledgers[0])
        # A refresh reads the keys; its answer comes when the ledger has left.
        listing = process.world.metadata.children(KEYS.topic_ledgers_prefix(topic.ledger.creation_id))
        await leave(topic, cold)

        async def stale(prefix: str) -> Any:
            return listing

        process.metadata.children = stale  # type: ignore[method-assign]
        await topic.ledger.refresh_offload()
        offloaded = topic.ledger.spans.by_id[ledgers[0]].offload
        assert offloaded is not None
        assert offloaded.left_bookies

    on_a_topic(scenario)


def test_a_key_that_left_without_objects_is_an_error_and_no_empty_ledger() -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        topic.ledger.offload = AT_ONCE
        await offload(topic, cold, ledgers[0])
        await leave(topic, cold)
        key = KEYS.topic_ledger(topic.ledger.creation_id, ledgers[0])
        value = decode(TopicLedger, process.world.metadata.dump()[key])
        value.offload.state = value.offload.STATE_UNSPECIFIED
        process.world.metadata.commit([Put(key, encode(value))])
        again = await load_again(topic.ctx)
        with pytest.raises(Exception, match="metadata names no objects"):
            await again.ledger.read(Position(ledgers[0], 0), 10, 10_000)

    on_a_topic(scenario)


LEDGER = ColdLedger("persistent://a/b/c", 1, LedgerRef(5, 6), 9, "file:///x", "p", b"a" * 16, b"s" * 32)


class Answers:
    """A store that answers what it is told to."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs

    async def read(self, ledger: ColdLedger, first: int, last: int, max_bytes: int) -> list[Run]:
        return self.runs

    async def read_keys(self, ledger: ColdLedger, first: int, last: int) -> list[KeyRun]:
        return [KeyRun(run, False, run.byte_length) for run in self.runs]

    async def first_not_before(self, ledger: ColdLedger, publish_time_ms: int) -> int:
        return 0

    async def verify(self, ledger: ColdLedger) -> Verified:
        raise NotImplementedError


def run(first: int, count: int, ledger_id: int = 5) -> Run:
    return Run([b"x"] * count, ledger_id=ledger_id, first_entry_id=first)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([], id="nothing"),
        pytest.param([run(3, 2)], id="later entries"),
        pytest.param([run(2, 1), run(4, 1)], id="a gap"),
        pytest.param([run(2, 2), run(3, 1)], id="an entry twice"),
        pytest.param([run(2, 5)], id="more than was asked for"),
        pytest.param([run(2, 1, ledger_id=7)], id="another ledger"),
        pytest.param([Run([], ledger_id=5, first_entry_id=2)], id="an empty run"),
    ],
)
def test_an_answer_that_would_lose_or_double_an_entry_is_damage(answer: list[Run]) -> None:
    reader = ColdLedgerReader(Answers(answer), LEDGER)
    with pytest.raises(ObjectsDamaged):
        asyncio.run(reader.read(2, 5, 1000))
    with pytest.raises(ObjectsDamaged):
        asyncio.run(reader.read_keys(2, 5))


def test_a_reader_of_objects_keeps_to_the_ledger() -> None:
    reader = ColdLedgerReader(Answers([run(2, 2)]), LEDGER)
    assert asyncio.run(reader.read(2, 50, 1000))[0].last_entry_id == 3
    assert (reader.ref, reader.last_confirmed, reader.copies > 1) == (LEDGER.ref, 9, True)
    for first, last in ((10, 10), (-1, 3), (4, 3)):
        with pytest.raises(NoSuchEntry):
            asyncio.run(reader.read(first, last, 1000))


class Slow:
    """A reader on storage that is overtaken: the ledger leaves while it reads."""

    copies = 1

    def __init__(self, ref: LedgerRef, error: Exception, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self.ref = ref
        self.last_confirmed = 9
        self._error = error
        self._meanwhile = meanwhile

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        await self._meanwhile()
        raise self._error


@pytest.mark.parametrize("error", [EntryUnreadable("gone"), NoSuchEntry("gone"), NoSuchLedger("gone")])
def test_a_ledger_that_leaves_while_it_is_read_is_read_on_from_its_objects(error: Exception) -> None:
    async def scenario(process: Process, topic: Topic, cold: Cold, ledgers: list[int]) -> None:
        topic.ledger.offload = AT_ONCE
        span = topic.ledger.spans.by_id[ledgers[0]]

        async def leaves() -> None:
            await offload(topic, cold, ledgers[0])
            await leave(topic, cold)

        span.reader = Slow(span.ref, error, leaves)
        skipped = UNREADABLE._value.get()
        assert await entries(topic) == EVERYTHING
        assert UNREADABLE._value.get() == skipped

    on_a_topic(scenario)
