"""What goes in one message, and what a broken call leaves behind: the stream over a call made of queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest
from magnetar.ledger.bookie_protocol.bookie_client import EncodedAppend
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    OK,
    UNREACHABLE,
    AppendBatch,
    AppendResult,
    AppendResults,
)
from magnetar.ledger.bookie_protocol.grpc_append_stream import AppendStream
from magnetar.ledger.bookie_protocol.grpc_methods import BATCH_BYTES_MAX
from magnetar.ledger.bookie_protocol.records import encode_append
from magnetar.ledger.ledger_store import LedgerRef, Run

LEDGER = LedgerRef(1, 2)


class Call:
    """Stands for a grpc.aio stream: what is written comes out of `sent`, what is put in `answers` is read."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.answers: asyncio.Queue[object] = asyncio.Queue()
        self.writable = asyncio.Event()
        self.writable.set()
        self.cancelled = False
        self.writing = False

    async def write(self, message: bytes) -> None:
        assert not self.writing, "concurrent writes on one stream fail"
        self.writing = True
        await self.writable.wait()
        await asyncio.sleep(0)
        self.sent.append(message)
        self.writing = False

    async def read(self) -> object:
        return await self.answers.get()

    def cancel(self) -> None:
        self.cancelled = True

    def done(self) -> bool:
        return False


def with_stream(scenario: Callable[[Call, AppendStream, list[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        call, lost = Call(), list[str]()
        stream = AppendStream(call, "b1", 60.0, lambda: None, lost.append)
        async with asyncio.timeout(30):
            await scenario(call, stream, lost)
        await stream.close("the test is over")

    asyncio.run(main())


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def of_size(entry: int, size: int) -> EncodedAppend:
    return encode_append(Run([bytes(size)], first_entry_id=entry), LEDGER, -1)


def test_appends_of_one_loop_turn_are_one_message() -> None:
    async def scenario(call: Call, stream: AppendStream, lost: list[str]) -> None:
        for turn in range(3):
            for entry in range(50):
                stream.append(of_size(50 * turn + entry, 10), lambda code, reason: None)
            await turns()
        batches = [AppendBatch.FromString(message) for message in call.sent]
        assert [len(batch.appends) for batch in batches] == [50, 50, 50]
        assert [batch.protocol_version for batch in batches] == [1, 0, 0]

    with_stream(scenario)


def test_a_message_holds_a_mebibyte_or_one_append() -> None:
    async def scenario(call: Call, stream: AppendStream, lost: list[str]) -> None:
        call.writable.clear()
        sizes = [BATCH_BYTES_MAX // 4 - 200] * 8 + [2 * BATCH_BYTES_MAX] + [10] * 5
        for entry, size in enumerate(sizes):
            stream.append(of_size(entry, size), lambda code, reason: None)
        call.writable.set()
        await turns(50)
        counts = [len(AppendBatch.FromString(message).appends) for message in call.sent]
        assert counts == [4, 4, 1, 5]

    with_stream(scenario)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (grpc.aio.EOF, "the stream broke"),
        (b"\xff\xff", "makes no sense"),
        (
            AppendResults(results=[AppendResult(first_entry_id=77, entry_count=1)]).SerializeToString(),
            "no sense",
        ),
        (ValueError("a mistake of ours"), "the stream broke"),
    ],
    ids=["end", "garbage", "nobody's answer", "no bytes"],
)
def test_whatever_ends_the_stream_everything_unanswered_is_unreachable_once(
    answer: object, said: str
) -> None:
    async def scenario(call: Call, stream: AppendStream, lost: list[str]) -> None:
        told: list[tuple[int, int]] = []
        for entry in range(3):
            stream.append(of_size(entry, 10), lambda code, _, entry=entry: told.append((entry, code)))  # type: ignore[misc]
        await turns()
        results = AppendResults()
        result = results.results.add(first_entry_id=0, entry_count=1)
        result.ledger.id, result.ledger.key = LEDGER.id, LEDGER.key
        call.answers.put_nowait(results.SerializeToString())
        call.answers.put_nowait(answer)
        await turns()
        assert told == [(0, OK), (1, UNREACHABLE), (2, UNREACHABLE)]
        assert call.cancelled
        assert len(lost) == 1
        assert said in lost[0] or isinstance(answer, ValueError)
        assert stream.pending.bytes == 0

    with_stream(scenario)
