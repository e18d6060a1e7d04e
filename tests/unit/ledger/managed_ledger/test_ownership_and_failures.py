"""Two owners, failing disks, deletions cut short, metadata that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from magnetar.common.errors import (
    LogFailed,
    LogFull,
    MetadataError,
    OwnershipLost,
    StorageError,
    UnknownOutcome,
)
from magnetar.common.metadata.store import Op
from magnetar.common.metadata.values import Counter, decode
from magnetar.common.naming.position import EARLIEST, Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger import (
    delete_managed_ledger,
    finish_intents,
    list_managed_ledgers,
    managed_ledger_exists,
)
from magnetar.ledger.managed_ledger.trimming import Retention

from tests.simulation.power_loss import KEYS, Process
from tests.unit.ledger.managed_ledger.harness import (
    ROLL_AT_10,
    TOPIC,
    Topic,
    head_of,
    keys_of,
    ledger_ids,
    load,
    load_again,
    simulated,
    until,
)


def test_a_former_owner_is_told_and_can_neither_confirm_nor_flush() -> None:
    async def scenario(process: Process) -> None:
        first = await load(process)
        cursor = await first.ledger.create_cursor("sub", EARLIEST, {})
        positions = await first.publish_confirmed(5)
        second = await load_again(first.ctx)
        confirmed = len(first.listener.confirmed)
        told: list[StorageError | None] = []
        cursor.ack(*positions[0])
        first.ledger.flush_cursors(told.append)
        with suppress(OwnershipLost):
            first.publish(1)
        await until(lambda: first.listener.lost and told)
        assert isinstance(first.listener.lost[0], OwnershipLost)
        assert isinstance(told[0], StorageError)
        assert len(first.listener.confirmed) == confirmed
        with pytest.raises(OwnershipLost):
            first.publish(1)
        with pytest.raises(OwnershipLost):
            await first.ledger.create_cursor("other", EARLIEST, {})
        await first.ledger.close()
        assert not second.ledger.cursors["sub"].is_acked(*positions[0])
        assert await second.publish_confirmed(3)
        assert not second.listener.lost

    simulated(scenario)


def former_owner_without_an_open_ledger(seed: int) -> None:
    """A former owner that had nothing open makes a ledger: only the head's guard is in its way."""

    async def scenario(process: Process) -> None:
        first = await load(process)
        second = await load_again(first.ctx)
        before = await second.publish_confirmed(3)
        first.publish(1)
        await until(lambda: first.listener.lost)
        assert not first.listener.confirmed
        after = await second.publish_confirmed(3)
        assert {position.ledger_id for position in before} == {position.ledger_id for position in after}
        third = await load_again(first.ctx)
        assert await third.read_all() == second.listener.confirmed

    simulated(scenario, seed)


def test_a_former_owner_without_an_open_ledger_cannot_make_one() -> None:
    former_owner_without_an_open_ledger(0)


def test_a_former_owner_that_was_not_told_its_last_revision_learns_that_it_is_one() -> None:
    """The head's revision is read again then: only the owner epoch in it says that it is another owner's."""

    async def scenario(process: Process) -> None:
        first = await load(process)
        first.ledger.retain(Retention(-1, -1))
        await first.publish_confirmed(1)
        first.ledger.roll()
        await until(lambda: not head_of(process.world).open_ledgers)
        await load_again(first.ctx)
        with pytest.raises(OwnershipLost):
            await first.ledger.create_cursor("lost", EARLIEST, {})

    simulated(scenario)


def former_owner_without_a_cursor_ledger(seed: int) -> None:
    """The same of a subscription: the new owner would never hear of it."""

    async def scenario(process: Process) -> None:
        first = await load(process)
        second = await load_again(first.ctx)
        with pytest.raises(OwnershipLost):
            await first.ledger.create_cursor("lost", EARLIEST, {})
        await second.ledger.create_cursor("sub", EARLIEST, {})
        third = await load_again(first.ctx)
        assert list(third.ledger.cursors) == ["sub"]

    simulated(scenario, seed)


def test_a_former_owner_cannot_create_a_subscription() -> None:
    former_owner_without_a_cursor_ledger(0)


def former_owner_with_only_a_cursor_ledger(seed: int) -> None:
    """The former owner flushes to the cursor ledger that it has open: only the fence is in its way."""

    async def scenario(process: Process) -> None:
        before = await load(process)
        positions = await before.publish_confirmed(5)
        await before.ledger.close()
        first = await load_again(before.ctx)
        cursor = await first.ledger.create_cursor("sub", EARLIEST, {})
        second = await load_again(before.ctx)
        cursor.ack(*positions[0])
        with pytest.raises(StorageError):
            await first.flushed()
        await until(lambda: first.listener.lost)
        assert not second.ledger.cursors["sub"].is_acked(*positions[0])

    simulated(scenario, seed)


def test_a_former_owner_cannot_flush_acknowledgements() -> None:
    former_owner_with_only_a_cursor_ledger(0)


def test_entries_of_a_failed_sync_are_rewritten_in_order_with_new_ids() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process, replace(ROLL_AT_10, ledger_entries_max=1_000))
        cursor = await topic.ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(3)
        disk = process.world.disk
        disk.faults.sync_errors = set(range(disk.operations, disk.operations + 4))
        for _ in range(5):
            topic.publish(2)
        await topic.published_all()
        assert [data for _, data in topic.listener.confirmed] == [b"%d" % number for number in range(13)]
        assert len(ledger_ids(topic)) == 2
        assert await topic.read_all() == topic.listener.confirmed
        assert topic.listener.contexts == [3, 5, 7, 9, 11, 13]
        cursor.ack_cumulative(topic.ledger.last_confirmed)
        await topic.flushed()
        assert not topic.listener.lost

    simulated(scenario)


def test_a_full_disk_refuses_publishes_at_once_and_takes_them_again_when_there_is_room() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed(1)
        disk = process.world.disk
        room = disk.capacity
        disk.capacity -= disk.free_bytes() - process.config.reserve_bytes + 1
        refused = 0
        for _ in range(50):
            try:
                topic.ledger.append(Run([b"x"]), None)
            except LogFull:
                refused += 1
            await asyncio.sleep(0.01)
        assert refused > 40
        disk.capacity = room
        await asyncio.sleep(2)
        before = len(topic.listener.confirmed)
        topic.ledger.append(Run([b"x"]), None)
        await until(lambda: len(topic.listener.confirmed) > before)

    simulated(scenario)


def assert_all_told(topic: Topic, taken: int) -> None:
    """Every publish after the first was confirmed or refused, never both, and the confirmed are in order."""
    confirmed = [int(data.rstrip(b"\0")) for _, data in topic.listener.confirmed[1:]]
    refused = [int(data.rstrip(b"\0")) for data in topic.listener.refused]
    assert confirmed == sorted(confirmed)
    assert sorted(confirmed + refused) == list(range(taken))


def test_a_disk_that_fails_for_long_costs_few_ledgers_and_no_order() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed(1)
        disk = process.world.disk
        disk.faults.sync_errors = set(range(disk.operations, disk.operations + 100_000))
        taken = 0
        for _ in range(3_000):
            with suppress(LogFailed):
                topic.ledger.append(Run([b"%d" % taken]), None)
                taken += 1
            await asyncio.sleep(0.01)
        assert len(keys_of(process.world, "ledgers")) < 20
        disk.faults.sync_errors = set()
        await until(lambda: len(topic.listener.confirmed) + len(topic.listener.refused) == 1 + taken)
        assert_all_told(topic, taken)
        assert not topic.listener.lost

    simulated(scenario)


def test_without_any_room_publishes_are_refused_and_few_ledgers_are_made() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(1)
        disk = process.world.disk
        room, disk.capacity = disk.capacity, 0
        taken = refused = 0
        for _ in range(3_000):
            try:
                topic.ledger.append(Run([b"%d" % taken + bytes(1_000)]), None)
                taken += 1
            except (LogFailed, LogFull):
                refused += 1
            await asyncio.sleep(0.01)
        assert refused > 2_000
        assert decode(Counter, process.world.metadata.dump()[KEYS.ledger_id_counter]).next < 25
        disk.capacity = room
        await asyncio.sleep(10)
        topic.ledger.append(Run([b"%d" % taken]), None)
        await until(lambda: len(topic.listener.confirmed) + len(topic.listener.refused) == 2 + taken)
        assert_all_told(topic, taken + 1)
        assert await topic.read_all() == topic.listener.confirmed

    simulated(scenario)


def test_a_deleted_topic_leaves_no_key_and_can_be_made_again() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        await topic.publish_confirmed(25)
        assert await managed_ledger_exists(topic.ctx, TOPIC)
        assert [str(name) for name in await list_managed_ledgers(topic.ctx)] == [TOPIC]
        await topic.ledger.close()
        await delete_managed_ledger(topic.ctx, TOPIC)
        await delete_managed_ledger(topic.ctx, TOPIC)
        assert not await managed_ledger_exists(topic.ctx, TOPIC)
        assert {key for key in process.world.metadata.dump() if "/counters/" not in key} == set()
        again = await load_again(topic.ctx, create=True)
        assert again.ledger.creation_id > topic.ledger.creation_id
        assert not again.ledger.cursors
        assert again.ledger.next_position(EARLIEST) is None

    simulated(scenario)


class _CutShort:
    """Metadata and ledgers of a process that dies after some writes."""

    def __init__(self, original: object, writes_left: list[int]) -> None:
        self._original = original
        self._writes_left = writes_left

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._original, name)
        if name not in ("commit", "put", "delete"):
            return call

        async def counted(*args: Any, **named: Any) -> Any:
            if self._writes_left[0] == 0:
                raise ConnectionError("the process died")
            self._writes_left[0] -= 1
            return await call(*args, **named)

        return counted


def test_a_deletion_that_was_cut_short_is_finished() -> None:
    outcomes: list[str] = []

    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.ledger.create_cursor("sub", EARLIEST, {})
        for _ in range(3):
            await topic.publish_confirmed(11)
        await topic.ledger.close()
        ctx, writes_left = topic.ctx, [len(outcomes)]
        dying = replace(
            ctx,
            metadata=_CutShort(ctx.metadata, writes_left),
            ledgers=_CutShort(ctx.ledgers, writes_left),
        )
        try:
            await delete_managed_ledger(dying, TOPIC)
            outcomes.append("done")
        except ConnectionError:
            outcomes.append("cut")
        if await managed_ledger_exists(ctx, TOPIC):
            again = await load_again(ctx)
            assert await again.read_all() == topic.listener.confirmed
            return
        await finish_intents(ctx)
        assert {key for key in process.world.metadata.dump() if "/counters/" not in key} == set()

    while not outcomes or outcomes[-1] == "cut":
        simulated(scenario)
    assert len(outcomes) > 4, "the deletion takes several writes"


def test_a_topic_whose_ledgers_cannot_be_deleted_now_is_gone_all_the_same() -> None:
    async def scenario(process: Process) -> None:
        topic = await load(process)
        await topic.publish_confirmed(25)
        await topic.ledger.close()
        ctx = topic.ctx

        class Refusing:
            def __getattr__(self, name: str) -> Any:
                return getattr(ctx.ledgers, name)

            async def delete(self, *args: Any, **named: Any) -> None:
                raise LogFailed("not now")

        await delete_managed_ledger(replace(ctx, ledgers=Refusing()), TOPIC)
        assert not await managed_ledger_exists(ctx, TOPIC)
        assert await finish_intents(ctx) == 1
        assert {key for key in process.world.metadata.dump() if "/counters/" not in key} == set()

    simulated(scenario)


def test_metadata_writes_of_unknown_outcome_lose_nothing() -> None:
    unknown: list[UnknownOutcome] = []

    async def scenario(process: Process) -> None:
        topic = await load(process, cursor_ledger_entries_max=5)
        process.metadata.faults.unknown_probability = 0.3
        commit = process.metadata.commit

        async def noting(ops: Sequence[Op]) -> int:
            try:
                return await commit(ops)
            except UnknownOutcome as error:
                unknown.append(error)
                raise

        process.metadata.commit = noting  # type: ignore[method-assign]
        confirmed: dict[Position, bytes] = {}
        acked: set[Position] = set()
        for _ in range(40):
            if topic.listener.lost or "sub" not in topic.ledger.cursors:
                topic = await again(topic)
                with suppress(StorageError, MetadataError):
                    await asyncio.wait_for(topic.ledger.create_cursor("sub", EARLIEST, {}), 30)
            with suppress(StorageError):
                topic.publish(4)
            await asyncio.sleep(0.02)
            confirmed.update(topic.listener.confirmed)
            cursor = topic.ledger.cursors.get("sub")
            if cursor is None or topic.listener.lost:
                continue
            chosen = [position for position in confirmed if position.entry_id % 3 != 1]
            for position in chosen:
                cursor.ack(*position)
            try:
                await topic.flushed()
            except StorageError:
                continue
            acked.update(chosen)
        process.metadata.faults.unknown_probability = 0.0
        topic = await again(topic)
        found = dict(await topic.read_all())
        cursor = topic.ledger.cursors["sub"]
        for position, data in confirmed.items():
            assert found.get(position, data) == data
            assert position in found or cursor.is_acked(*position)
        assert all(cursor.is_acked(*position) for position in acked)
        assert len(confirmed) > 40
        await finish_intents(topic.ctx)
        named = {ref.id for ref in head_of(process.world).open_ledgers} | {
            head_of(process.world).cursor_ledger.id,
            *ledger_ids(topic),
        }
        kept = {KEYS.ledger_id_of(key) for key in keys_of(process.world, "ledgers") if "/topics/" not in key}
        assert kept <= named, "no orphans"

    async def again(topic: Topic) -> Topic:
        while True:
            try:
                return await load_again(topic.ctx)
            except (StorageError, MetadataError):
                await asyncio.sleep(0.1)

    for seed in range(12):
        simulated(scenario, seed)
    assert len(unknown) > 100
