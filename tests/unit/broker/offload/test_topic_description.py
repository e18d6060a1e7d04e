"""Where a topic's entries are: every one that may be read, in one ledger each, whoever is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from magnetar.broker.offload import topic_description
from magnetar.broker.offload.ledger_messages import ledger_message
from magnetar.broker.schemas.rules import DEFAULT_RULES
from magnetar.common.errors import BeingChanged, TopicNotFound, UnsupportedFormat
from magnetar.common.naming.position import Position
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_pb2 import WANTED, DescribeRequest, DescribeResponse, Ledger
from magnetar.common.wire import pulsar_pb2 as pb
from magnetar.ledger.managed_ledger.offload_ledgers import TopicLedgers

from tests.simulation.power_loss import KEYS
from tests.unit.broker.offload.world import Elsewhere, Jobs, with_jobs

NAME = TopicName.parse("orders")


async def describe(jobs: Jobs, after: int = 0) -> DescribeResponse:
    return await jobs.work.describe(DescribeRequest(topic="orders", after_ledger_id=after))


def test_the_owner_tells_closed_ledgers_and_the_open_one_as_far_as_it_may_be_read() -> None:
    async def scenario(jobs: Jobs) -> None:
        ledgers = await jobs.closed("orders", 3, 4)
        found = await describe(jobs)
        assert found.owner == ""
        assert [each.entries for each in found.ledgers] == [3, 4, 1]
        assert [each.last_entry_id for each in found.ledgers] == [2, 3, 0]
        assert [bool(each.closed_ms) for each in found.ledgers] == [True, True, False]
        assert [each.offload.state for each in found.ledgers] == [WANTED, WANTED, 0]
        assert [each.first_index for each in found.ledgers] == [0, 3, 7]
        assert {each.creation_id for each in found.ledgers} == {found.creation_id} == {ledgers[0].creation_id}
        topic = await jobs.load("orders")
        topic.ledger.max_read_position = Position(found.ledgers[1].ledger_id, 1)
        limited = await describe(jobs)
        assert [each.last_entry_id for each in limited.ledgers][:1] == [2]
        assert found.ledgers[2].ledger_id not in [each.ledger_id for each in limited.ledgers]

    with_jobs(scenario)


def test_another_broker_says_who_the_owner_is_and_tells_what_is_closed() -> None:
    async def scenario(jobs: Jobs) -> None:
        await jobs.closed("orders", 3, 4)
        found = await jobs.working_for(Elsewhere()).describe(DescribeRequest(topic="orders"))
        assert found.owner == "other:6750"
        assert [each.entries for each in found.ledgers] == [3, 4]

    with_jobs(scenario)


def test_a_topic_that_is_not_loaded_is_loaded_for_it() -> None:
    async def scenario(jobs: Jobs) -> None:
        await jobs.publish("orders", 3)
        await jobs.made.registry.unload(NAME)
        found = await describe(jobs)
        assert [(each.entries, bool(each.closed_ms)) for each in found.ledgers] == [(3, True)]
        assert NAME.full in jobs.made.registry.loaded

    with_jobs(scenario)


def test_an_empty_topic_has_no_ledgers_and_one_that_is_not_there_is_an_error() -> None:
    async def scenario(jobs: Jobs) -> None:
        await jobs.load("orders")
        assert list((await describe(jobs)).ledgers) == []
        with pytest.raises(TopicNotFound):
            await jobs.work.describe(DescribeRequest(topic="nobody"))

    with_jobs(scenario)


def test_many_ledgers_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.broker.offload.topic_description.LEDGERS_MAX", 2)

    async def scenario(jobs: Jobs) -> None:
        ids = await jobs.publish("orders", 1, 1, 1, 1, 1)
        found: list[int] = []
        while True:
            page = await describe(jobs, found[-1] if found else 0)
            found += [each.ledger_id for each in page.ledgers]
            if not page.more:
                break
            assert len(page.ledgers) == 2
        assert found == ids

    with_jobs(scenario)


def test_a_page_is_no_longer_than_a_message_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.broker.offload.topic_description.PAGE_BYTES_MAX", 1)

    async def scenario(jobs: Jobs) -> None:
        await jobs.publish("orders", 1, 1)
        page = await describe(jobs)
        assert len(page.ledgers) == 1
        assert page.more

    with_jobs(scenario)


def test_each_entry_is_described_once_while_ledgers_are_closed_meanwhile() -> None:
    async def scenario(jobs: Jobs) -> None:
        counts = [2] * 12

        async def publish() -> None:
            await jobs.publish("orders", *counts)

        await jobs.publish("orders", 1)
        publishing = asyncio.create_task(publish())
        total = 0
        while True:
            done = publishing.done()
            found = await describe(jobs)
            ids = [each.ledger_id for each in found.ledgers]
            assert ids == sorted(set(ids))
            now = sum(each.entries for each in found.ledgers)
            indexes = [each.first_index for each in found.ledgers]
            held = [sum(each.entries for each in found.ledgers[:number]) for number in range(len(ids))]
            assert indexes == held, "no ledger is missing in between"
            assert now >= total, "nothing vanishes"
            total = now
            if done:
                break
        assert total == 1 + sum(counts)

    with_jobs(scenario)


def test_the_newest_schema_comes_with_it() -> None:
    async def scenario(jobs: Jobs) -> None:
        await jobs.publish("orders", 1)
        assert (await describe(jobs)).schema_type == ""
        await jobs.made.schemas.put(
            NAME, pb.Schema(name="s", schema_data=b"", type=pb.Schema.String), DEFAULT_RULES
        )
        found = await describe(jobs)
        assert (found.schema_type, found.schema) == ("String", b"")

    with_jobs(scenario)


def between(jobs: Jobs, happens: Callable[[], Awaitable[None]]) -> None:
    """Something happens when the owner has said what may be read, and metadata was not asked yet."""
    ledgers = jobs.work._descriptions._ledgers
    of_topic = ledgers.of_topic

    async def later(topic: TopicName) -> TopicLedgers:
        await happens()
        return await of_topic(topic)

    ledgers.of_topic = later  # type: ignore[method-assign]


def test_a_ledger_that_is_trimmed_meanwhile_is_not_told_as_an_open_one() -> None:
    async def scenario(jobs: Jobs) -> None:
        ids = await jobs.publish("orders", 3, 4, 1)
        creation_id = (await jobs.load("orders")).ledger.creation_id
        metadata = jobs.made.process.metadata

        async def trim() -> None:
            found = await metadata.get(KEYS.topic_ledger(creation_id, ids[0]))
            assert found is not None
            await metadata.delete(found.key, found.version)

        between(jobs, trim)
        found = await describe(jobs)
        assert [each.ledger_id for each in found.ledgers] == ids[1:]

    with_jobs(scenario)


def test_a_topic_that_is_made_anew_meanwhile_has_no_ledgers_of_the_old_one() -> None:
    async def scenario(jobs: Jobs) -> None:
        await jobs.publish("orders", 3, 4)

        async def make_anew() -> None:
            await jobs.made.registry.delete(NAME, force=True)
            await jobs.publish("orders", 1)

        between(jobs, make_anew)
        with pytest.raises(BeingChanged, match="recreated"):
            await describe(jobs)

    with_jobs(scenario)


def test_a_ledger_that_this_release_cannot_read_is_an_error_and_not_left_out() -> None:
    async def scenario(jobs: Jobs) -> None:
        (ledger,) = await jobs.closed("orders", 3)
        metadata = jobs.made.process.metadata
        found = await metadata.get(KEYS.topic_ledger(ledger.creation_id, ledger.ledger_id))
        assert found is not None
        await metadata.put(found.key, b"garbage", found.version)
        for work in (jobs.work, jobs.working_for(Elsewhere())):
            with pytest.raises(UnsupportedFormat, match="1 ledger"):
                await work.describe(DescribeRequest(topic="orders"))

    with_jobs(scenario)


def test_only_the_page_that_is_asked_for_is_made_and_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [0]

    def counting(*given: Any) -> Ledger:
        made[0] += 1
        return ledger_message(*given)

    monkeypatch.setattr(topic_description, "ledger_message", counting)
    monkeypatch.setattr(topic_description, "LEDGERS_MAX", 2)

    async def scenario(jobs: Jobs) -> None:
        ids = await jobs.publish("orders", *[1] * 7)
        page = await describe(jobs, ids[1])
        assert [each.ledger_id for each in page.ledgers] == ids[2:4]
        assert page.more
        assert made[0] == 2

    with_jobs(scenario)
