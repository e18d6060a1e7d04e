"""Streams of entries over a real connection, and what comes too fast or is too much."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
from magnetar.broker.offload.service import BURST_S, CALLS_A_SECOND, READ_S_MAX
from magnetar.common.errors import (
    EntryUnreadable,
    TooManyRequests,
)
from magnetar.common.offload.methods import SERVICE
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_errors import (
    OffloadTimedOut,
    OffloadUnreachable,
    may_pass,
)
from magnetar.common.offload.offload_pb2 import ReadRequest

from tests.unit.broker.offload.served import Served, ask, serving


def test_parts_are_read_in_order_and_an_error_comes_behind_what_was_read() -> None:
    async def body(served: Served) -> None:
        served.calls.parts = [b"one", b"x" * (6 << 20), EntryUnreadable("7:3 is damaged")]
        got: list[int] = []

        def read(channel: OffloadChannel) -> None:
            got.extend(len(part) for part in channel.read("t", 7, 9, 0, 5))

        with pytest.raises(EntryUnreadable, match="7:3 is damaged"):
            await ask(served, read)
        assert got == [3, 6 << 20]
        assert served.calls.asked == [
            ReadRequest(topic="t", ledger_id=7, ledger_key=9, last_entry_id=5, transactions=True)
        ]

    serving(body)


def test_a_reader_that_leaves_ends_the_read() -> None:
    async def body(served: Served) -> None:
        calls = served.calls
        calls.held, calls.parts = asyncio.Event(), [b"x"] * 3

        def read(channel: OffloadChannel) -> None:
            stream = channel.read("t", 7, 9, 0, 5)
            next(stream)
            stream.close()  # type: ignore[attr-defined]

        await ask(served, read)
        async with asyncio.timeout(20):
            while calls.reading:  # noqa: ASYNC110 -- nothing tells that a stream was given up
                await asyncio.sleep(0.01)

    serving(body)


def test_a_slow_reader_holds_the_broker_back() -> None:
    async def body(served: Served) -> None:
        made = [0]

        async def read(request: ReadRequest) -> AsyncGenerator[bytes, None]:
            for _ in range(400):
                made[0] += 1
                yield bytes(512 << 10)

        served.calls.read = read  # type: ignore[method-assign]
        go, begun = threading.Event(), threading.Event()

        def slowly(channel: OffloadChannel) -> int:
            stream = channel.read("t", 7, 9, 0, 5)
            count = len(next(stream))
            begun.set()
            assert go.wait(60)
            return count + sum(map(len, stream))

        reading = asyncio.create_task(ask(served, slowly, 60.0))
        await asyncio.to_thread(begun.wait, 30)
        settled = -1
        while made[0] != settled:
            settled = made[0]
            await asyncio.sleep(0.3)
        assert settled < 60, "what the reader has not taken is not made"
        go.set()
        assert await reading == 400 * (512 << 10)

    serving(body)


def test_a_reader_that_takes_nothing_loses_its_place_in_time_and_may_read_on() -> None:
    async def body(served: Served) -> None:
        served.calls.parts = [bytes(512 << 10)] * 400
        go, begun = threading.Event(), threading.Event()

        def stalls(channel: OffloadChannel) -> None:
            stream = channel.read("t", 7, 9, 0, 5)
            next(stream)
            begun.set()
            assert go.wait(60)
            for _ in stream:
                pass

        stalling = asyncio.create_task(ask(served, stalls, 1.0))
        try:
            await asyncio.to_thread(begun.wait, 30)
            async with asyncio.timeout(30):
                while served.calls.reading:  # noqa: ASYNC110 -- nothing tells that a stream was ended
                    await asyncio.sleep(0.01)
            served.calls.parts = [b"all"]
            assert await ask(served, lambda c: list(c.read("t", 7, 9, 0, 5))) == [b"all"]
        finally:
            go.set()
        with pytest.raises(OffloadTimedOut) as error:
            await stalling
        assert may_pass(error.value)

    serving(body, reads_max=1)


def test_a_read_without_a_deadline_is_refused() -> None:
    async def body(served: Served) -> None:
        def raw(timeout: float | None) -> grpc.StatusCode:
            with grpc.insecure_channel(served.address) as channel:
                call: Any = channel.unary_stream(f"/{SERVICE}/Read")
                with pytest.raises(grpc.RpcError) as error:
                    list(call(b"", timeout=timeout))
                code: grpc.StatusCode = error.value.code()
                return code

        for timeout in (None, READ_S_MAX + 30):
            assert await asyncio.to_thread(raw, timeout) is grpc.StatusCode.INVALID_ARGUMENT
        assert served.calls.asked == []

    serving(body)


def test_excess_or_early_read_is_refused_and_retried() -> None:
    async def body(served: Served) -> None:
        calls = served.calls
        calls.held = asyncio.Event()
        first = asyncio.create_task(ask(served, lambda c: c.wanted()))
        async with asyncio.timeout(20):
            while not calls.asked:  # noqa: ASYNC110 -- until it is under way
                await asyncio.sleep(0.01)
        second = asyncio.create_task(ask(served, lambda c: c.wanted()))
        with pytest.raises(TooManyRequests, match="in progress"):
            await ask(served, lambda c: c.wanted(), 0.3)
        calls.held.set()
        await asyncio.gather(first, second)
        served.service.serving = False
        with pytest.raises(OffloadUnreachable, match="starting or stopping"):
            await ask(served, lambda c: c.wanted(), 0.3)

    serving(body, calls_max=1)


def test_calls_that_come_too_fast_wait_and_are_all_answered() -> None:
    async def body(served: Served) -> None:
        loop = asyncio.get_running_loop()
        beyond = 100
        count = int(BURST_S * CALLS_A_SECOND) + beyond

        def many(channel: OffloadChannel) -> None:
            for _ in range(count // 5):
                channel.deleted("i")

        since = loop.time()
        await asyncio.gather(*(ask(served, many) for _ in range(5)))
        assert loop.time() - since >= beyond / CALLS_A_SECOND
        assert len(served.calls.asked) == count // 5 * 5

    serving(body)


def test_reads_beyond_the_limit_are_refused() -> None:
    async def body(served: Served) -> None:
        with pytest.raises(TooManyRequests):
            await ask(served, lambda c: list(c.read("t", 7, 9, 0, 5)))

    serving(body, reads_max=0)
