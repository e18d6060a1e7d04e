"""Calls of `receive` that wait: each message wakes one that is still there, and one asks for its permit."""

from __future__ import annotations

import asyncio

import pytest
from magnetar.client.consumer.consumer import Consumer
from magnetar.client.errors import OperationTimeout

from tests.unit.client.attached_consumer import Attached


async def waiting(consumer: Consumer[bytes]) -> asyncio.Task[bytes]:
    """A call of `receive` that waits already."""

    async def payload() -> bytes:
        return (await consumer.receive()).data

    task = asyncio.ensure_future(payload())
    await asyncio.sleep(0)
    return task


async def first_message(task: asyncio.Task[bytes]) -> bytes:
    async with asyncio.timeout(1.0):
        return await task


async def cancel(task: asyncio.Task[bytes]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_message_wakes_a_call_behind_calls_that_timed_out() -> None:
    async def play() -> None:
        attached = Attached(queue_size=10)
        await attached.attach()
        for _ in range(3):
            with pytest.raises(OperationTimeout):
                await attached.consumer.receive(0.0)
        task = await waiting(attached.consumer)
        attached.deliver(b"m")
        assert await first_message(task) == b"m"

    asyncio.run(play())


def test_calls_that_timed_out_are_not_kept() -> None:
    async def play() -> None:
        attached = Attached(queue_size=10)
        await attached.attach()
        for _ in range(5):
            assert await attached.consumer.receive_batch(timeout_s=0.001) == []
        assert not attached.consumer._receivers

    asyncio.run(play())


@pytest.mark.parametrize("before_the_message", [False, True])
def test_a_message_goes_to_another_call_when_the_first_is_canceled(before_the_message: bool) -> None:
    async def play() -> None:
        attached = Attached(queue_size=10)
        await attached.attach()
        first, second = await waiting(attached.consumer), await waiting(attached.consumer)
        if before_the_message:
            first.cancel()  # the call itself has not run yet as the message arrives
            attached.deliver(b"m")
        else:
            attached.deliver(b"m")
            first.cancel()
        assert await first_message(second) == b"m"
        await cancel(first)

    asyncio.run(play())


def test_without_a_receiver_queue_each_waiting_call_asks_in_turn() -> None:
    async def play() -> None:
        attached = Attached(queue_size=0)
        connection = await attached.attach()
        tasks = [await waiting(attached.consumer) for _ in range(2)]
        assert connection.permits == [1]
        attached.deliver(b"first")
        assert await first_message(tasks[0]) == b"first"
        assert connection.permits == [1, 1]
        attached.deliver(b"second")
        assert await first_message(tasks[1]) == b"second"
        assert connection.permits == [1, 1]

    asyncio.run(play())


def test_without_a_receiver_queue_a_call_after_a_timeout_uses_the_permit_of_the_former() -> None:
    async def play() -> None:
        attached = Attached(queue_size=0)
        connection = await attached.attach()
        for _ in range(3):
            with pytest.raises(OperationTimeout):
                await attached.consumer.receive(0.0)
        assert connection.permits == [1]

    asyncio.run(play())


def test_without_a_receiver_queue_a_new_connection_is_asked_for_the_message_that_a_call_waits_for() -> None:
    async def play() -> None:
        attached = Attached(queue_size=0)
        await attached.attach()
        task = await waiting(attached.consumer)
        second = await attached.attach()
        assert second.permits == [1]
        attached.deliver(b"m")
        assert await first_message(task) == b"m"
        third = await attached.attach()
        assert third.permits == []

    asyncio.run(play())


def test_without_a_receiver_queue_a_message_from_before_a_redelivery_is_asked_for_again() -> None:
    async def play() -> None:
        attached = Attached(queue_size=0)
        connection = await attached.attach()
        task = await waiting(attached.consumer)
        attached.topic.redeliver_all()
        attached.deliver(b"stale", epoch=0)
        assert connection.permits == [1, 1]
        attached.deliver(b"again", epoch=1)
        assert await first_message(task) == b"again"

    asyncio.run(play())
