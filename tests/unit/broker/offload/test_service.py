"""The gRPC edge of the offload service and the client of jobs, over a real connection."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from magnetar.broker.offload.service import BURST_S, CALLS_A_SECOND, READ_S_MAX, REFUSED, OffloadService
from magnetar.common.errors import (
    EntryUnreadable,
    NotAllowed,
    NotSupportedYet,
    ServiceNotReady,
    TooManyRequests,
)
from magnetar.common.offload.calling import target_of
from magnetar.common.offload.methods import MESSAGE_BYTES_MAX, SERVICE
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_errors import (
    OffloadFailed,
    OffloadTimedOut,
    OffloadUnreachable,
    may_pass,
)
from magnetar.common.offload.offload_pb2 import (
    AttemptsRequest,
    AttemptsResponse,
    BeginRequest,
    BeginResponse,
    CompleteRequest,
    CompleteResponse,
    DeletedRequest,
    DeletedResponse,
    Deletion,
    DeletionsRequest,
    DeletionsResponse,
    DescribeRequest,
    DescribeResponse,
    FailRequest,
    FailResponse,
    Ledger,
    ReadRequest,
    TopicsRequest,
    TopicsResponse,
    WantedRequest,
    WantedResponse,
    WantRequest,
    WantResponse,
)
from magnetar.common.offload.offload_refusals import OffloadRunning
from magnetar.common.rpc.options import server_options
from magnetar.common.rpc.server import GrpcServer

from tools.free_ports import free_ports

HOST = "127.0.0.1"
A = b"a" * 16


class Calls:
    """Answers from a script; `fail` raises once for each error in it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.fail: list[Exception] = []
        self.held: asyncio.Event | None = None
        self.parts: list[bytes | Exception] = []
        self.owner = ""
        self.reading = 0

    async def _note(self, request: Any) -> None:
        self.asked.append(request)
        if self.held is not None:
            await self.held.wait()
        if self.fail:
            raise self.fail.pop(0)

    async def wanted(self, request: WantedRequest) -> WantedResponse:
        await self._note(request)
        return WantedResponse(ledgers=[Ledger(ledger_id=7)], more=True)

    async def want(self, request: WantRequest) -> WantResponse:
        await self._note(request)
        return WantResponse(ledgers=[Ledger(ledger_id=7)])

    async def begin(self, request: BeginRequest) -> BeginResponse:
        await self._note(request)
        return BeginResponse(ledger=Ledger(ledger_id=request.ledger_id))

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        await self._note(request)
        return CompleteResponse(ledger=Ledger(ledger_id=request.ledger_id))

    async def fail_(self, request: FailRequest) -> FailResponse:
        await self._note(request)
        return FailResponse()

    async def topics(self, request: TopicsRequest) -> TopicsResponse:
        await self._note(request)
        return TopicsResponse(topics=["t"])

    async def describe(self, request: DescribeRequest) -> DescribeResponse:
        await self._note(request)
        first = request.after_ledger_id + 1
        ledgers = [Ledger(ledger_id=first), Ledger(ledger_id=first + 1)]
        return DescribeResponse(creation_id=3, ledgers=ledgers, owner=self.owner, more=first < 5)

    async def read(self, request: ReadRequest) -> AsyncGenerator[bytes, None]:
        self.asked.append(request)
        self.reading += 1
        try:
            for part in self.parts:
                if isinstance(part, Exception):
                    raise part
                yield part
            if self.held is not None:
                await self.held.wait()
        finally:
            self.reading -= 1

    async def attempts(self, request: AttemptsRequest) -> AttemptsResponse:
        await self._note(request)
        page = int(request.after_topic or "0")
        following = str(page + 1) if page < 2 else ""
        return AttemptsResponse(paths=[f"p{page}"], complete=page != 1, next_after_topic=following)

    async def deletions(self, request: DeletionsRequest) -> DeletionsResponse:
        await self._note(request)
        return DeletionsResponse(deletions=[Deletion(intent_id="i", location="l", path="p")], more=True)

    async def deleted(self, request: DeletedRequest) -> DeletedResponse:
        await self._note(request)
        return DeletedResponse()


class Proxy:
    """`Calls` as the service wants it: there `fail` is a call."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, "fail_" if name == "fail" else name)


class Served:
    """A service that listens, from `start` to `stop`, on one port."""

    def __init__(self, calls: Calls, **limits: int) -> None:
        self.calls = calls
        self.service = OffloadService(Proxy(calls), **limits)
        (self.port,) = free_ports(1)
        self.address = f"{HOST}:{self.port}"
        self._server: GrpcServer | None = None

    async def start(self) -> None:
        self._server = GrpcServer(
            SERVICE, self.service.methods(), self.service.refuse, server_options(MESSAGE_BYTES_MAX)
        )
        await self._server.start(HOST, self.port, "magnetarControlPort")
        self.service.serving = True

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)


def serving(body: Callable[[Served], Awaitable[None]], *, start: bool = True, **limits: int) -> None:
    async def run() -> None:
        served = Served(Calls(), **limits)
        if start:
            await served.start()
        try:
            await body(served)
        finally:
            await served.stop()

    asyncio.run(run())


async def ask(served: Served, call: Callable[[OffloadChannel], Any], deadline_s: float = 20.0) -> Any:
    """As a job does, in a thread."""

    def run() -> Any:
        with OffloadChannel(served.address, deadline_s=deadline_s) as channel:
            return call(channel)

    return await asyncio.to_thread(run)


def test_every_call_arrives_with_what_was_said_and_its_answer_comes_back() -> None:
    async def body(served: Served) -> None:
        asked = served.calls.asked
        wanted = await ask(served, lambda c: c.wanted(["t"], most=3))
        assert ([each.ledger_id for each in wanted.ledgers], wanted.more) == ([7], True)
        assert asked.pop() == WantedRequest(topics=["t"], most=3)
        await ask(served, lambda c: c.want("t", before=(4, 5), location="s3://b", exact=False))
        expected = WantRequest(
            topic="t", before_ledger_id=4, before_entry_id=5, location="s3://b", exact=False
        )
        assert asked.pop() == expected
        await ask(served, lambda c: c.want("t"))
        assert asked.pop() == WantRequest(topic="t")
        assert (await ask(served, lambda c: c.begin("t", 1, 2, A))).ledger_id == 2
        assert asked.pop() == BeginRequest(topic="t", creation_id=1, ledger_id=2, attempt=A)
        complete = CompleteRequest(topic="t", ledger_id=2, rows=9)
        assert (await ask(served, lambda c: c.complete(complete))).ledger_id == 2
        assert asked.pop() == complete
        await ask(served, lambda c: c.fail("t", 1, 2, A, "x" * 10_000))
        assert asked.pop() == FailRequest(
            topic="t", creation_id=1, ledger_id=2, attempt=A, reason="x" * 4_000
        )
        assert await ask(served, lambda c: c.topics(["a"], "b")) == ["t"]
        assert asked.pop() == TopicsRequest(names=["a"], pattern="b")
        deletions = await ask(served, lambda c: c.deletions("l"))
        assert (deletions.deletions[0].path, deletions.more) == ("p", True)
        await ask(served, lambda c: c.deleted("i"))
        assert asked.pop() == DeletedRequest(intent_id="i")

    serving(body)


def test_pages_are_joined() -> None:
    async def body(served: Served) -> None:
        described = await ask(served, lambda c: c.describe("t"))
        assert [each.ledger_id for each in described.ledgers] == [1, 2, 3, 4, 5, 6]
        behind = await ask(served, lambda c: c.describe("t", after_ledger_id=3))
        assert [each.ledger_id for each in behind.ledgers] == [4, 5, 6, 7]
        assert (described.creation_id, described.address) == (3, served.address)
        attempts = await ask(served, lambda c: c.attempts("s3://b"))
        assert attempts.paths == ["p0", "p1", "p2"]
        assert not attempts.complete, "one page is enough to forbid"

    serving(body)


def test_the_owner_is_asked_where_a_topic_ends() -> None:
    async def body(served: Served) -> None:
        owner = Served(Calls())
        await owner.start()
        try:
            served.calls.owner = owner.address
            described = await ask(served, lambda c: c.describe("t"))
            assert described.address == owner.address
            owner.calls.owner = served.address
            with pytest.raises(ServiceNotReady, match="from broker to broker"):
                await ask(served, lambda c: c.describe("t"))
        finally:
            await owner.stop()

    serving(body)


def test_an_owner_that_gives_a_topic_away_is_asked_until_somebody_else_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("magnetar.common.offload.offload_client.OWNER_S", 0.3)

    async def body(served: Served) -> None:
        owner = Served(Calls())
        await owner.start()
        served.calls.owner = owner.address
        owner.calls.fail = [ServiceNotReady("topic t is not served by this broker")] * 1_000
        asking = asyncio.create_task(ask(served, lambda c: c.describe("t")))
        try:
            async with asyncio.timeout(20):
                while len(served.calls.asked) < 8:  # noqa: ASYNC110 -- pages, each time the owner is sought
                    await asyncio.sleep(0.01)
            served.calls.owner = ""
            assert (await asking).address == served.address
        finally:
            await owner.stop()

    serving(body)


def test_errors_come_by_name_and_only_those_that_may_pass_are_tried_again() -> None:
    async def body(served: Served) -> None:
        calls = served.calls
        calls.fail = [OffloadRunning("attempt xy runs")]
        with pytest.raises(OffloadRunning, match="attempt xy runs"):
            await ask(served, lambda c: c.begin("t", 1, 2, A))
        assert len(calls.asked) == 1
        calls.fail = [ServiceNotReady("soon"), TooManyRequests("busy")]
        assert (await ask(served, lambda c: c.begin("t", 1, 2, A))).ledger_id == 2
        assert len(calls.asked) == 4
        before = REFUSED.labels("Begin", "INTERNAL")._value.get()
        calls.fail = [KeyError("a bug")]
        with pytest.raises(OffloadFailed):
            await ask(served, lambda c: c.begin("t", 1, 2, A))
        assert REFUSED.labels("Begin", "INTERNAL")._value.get() == before + 1

    serving(body)


def test_a_broker_that_is_started_again_meanwhile_is_waited_for() -> None:
    async def body(served: Served) -> None:
        call = asyncio.create_task(ask(served, lambda c: c.wanted()))
        await asyncio.sleep(0.3)
        assert not call.done()
        await served.start()
        assert (await call).more

    serving(body, start=False)


def test_nobody_at_the_address_is_an_error_after_the_deadline_and_not_before_it() -> None:
    async def body(served: Served) -> None:
        began = time.monotonic()
        with pytest.raises(OffloadUnreachable, match=served.address):
            await ask(served, lambda c: c.wanted(), deadline_s=1.0)
        assert time.monotonic() - began < 10

    serving(body, start=False)


def test_a_call_that_is_not_answered_in_time_is_an_error() -> None:
    async def body(served: Served) -> None:
        served.calls.held = asyncio.Event()
        with pytest.raises(OffloadTimedOut):
            await ask(served, lambda c: c.wanted(), deadline_s=0.5)

    serving(body)


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
            ReadRequest(topic="t", ledger_id=7, ledger_key=9, first_entry_id=0, last_entry_id=5)
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


def test_what_is_too_much_or_comes_too_early_is_refused_and_the_client_comes_again() -> None:
    async def body(served: Served) -> None:
        calls = served.calls
        calls.held = asyncio.Event()
        first = asyncio.create_task(ask(served, lambda c: c.wanted()))
        async with asyncio.timeout(20):
            while not calls.asked:  # noqa: ASYNC110 -- until it is under way
                await asyncio.sleep(0.01)
        second = asyncio.create_task(ask(served, lambda c: c.wanted()))
        with pytest.raises(TooManyRequests, match="under way"):
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


def test_garbage_and_unknown_methods_are_refused_as_such() -> None:
    async def body(served: Served) -> None:
        def raw(method: str, data: bytes) -> grpc.StatusCode:
            with grpc.insecure_channel(served.address) as channel:
                call: Any = channel.unary_unary(f"/{SERVICE}/{method}")
                try:
                    call(data, timeout=20)
                except grpc.RpcError as error:
                    return error.code()
            raise AssertionError("it was answered")

        assert await asyncio.to_thread(raw, "Wanted", b"\xff\xff") is grpc.StatusCode.INVALID_ARGUMENT
        assert await asyncio.to_thread(raw, "Nothing", b"") is grpc.StatusCode.UNIMPLEMENTED
        assert served.calls.asked == []

    serving(body)


def test_an_older_broker_without_the_service_says_so() -> None:
    async def run() -> None:
        served = Served(Calls())
        server = GrpcServer("magnetar.other", {}, served.service.refuse, server_options(MESSAGE_BYTES_MAX))
        await server.start(HOST, served.port, "k")
        try:
            with pytest.raises((NotSupportedYet, NotAllowed)):
                await ask(served, lambda c: c.wanted())
        finally:
            await server.stop(0)

    asyncio.run(run())


def test_a_closed_channel_answers_nobody() -> None:
    channel = OffloadChannel("127.0.0.1:1")
    channel.close()
    channel.close()
    with pytest.raises(OffloadUnreachable, match="closed"):
        channel.wanted()


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":1", "host:x", "host:0", "host:70000", "pulsar://h:6650"]
)
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ValueError, match="127\\.0\\.0\\.1:6750"):
        OffloadChannel(address)


def test_an_address_may_be_written_as_people_write_it() -> None:
    assert target_of(" grpc://host:6750/ ") == "host:6750"
    assert target_of("[::1]:6750") == "[::1]:6750"
