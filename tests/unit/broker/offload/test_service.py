"""The gRPC edge of the offload service and the client of jobs, over a real connection."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest
from magnetar.broker.offload.service import REFUSED
from magnetar.common.errors import (
    NotAllowed,
    NotSupportedYet,
    ServiceNotReady,
    TooManyRequests,
)
from magnetar.common.offload.methods import MESSAGE_BYTES_MAX, SERVICE
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_errors import (
    OffloadFailed,
    OffloadTimedOut,
    OffloadUnreachable,
)
from magnetar.common.offload.offload_pb2 import (
    BeginRequest,
    CompleteRequest,
    DeletedRequest,
    FailRequest,
    TopicsRequest,
    WantedRequest,
    WantRequest,
)
from magnetar.common.offload.offload_refusals import OffloadRunning
from magnetar.common.offload.service_url import ServiceUrl, parse_service_url
from magnetar.common.rpc.options import server_options
from magnetar.common.rpc.server import GrpcServer

from tests.unit.broker.offload.served import HOST, A, Calls, Served, ask, serving


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
            with pytest.raises(ServiceNotReady, match="keeps moving between brokers"):
                await ask(served, lambda c: c.describe("t"))
        finally:
            await owner.stop()

    serving(body)


def test_owner_handing_over_is_retried_until_the_next_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("magnetar.common.offload.offload_client.OWNER_S", 0.3)

    async def body(served: Served) -> None:
        owner = Served(Calls())
        await owner.start()
        served.calls.owner = owner.address
        owner.calls.errors = [ServiceNotReady("topic t is not served by this broker")] * 1_000
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
        calls.errors = [OffloadRunning("attempt xy runs")]
        with pytest.raises(OffloadRunning, match="attempt xy runs"):
            await ask(served, lambda c: c.begin("t", 1, 2, A))
        assert len(calls.asked) == 1
        calls.errors = [ServiceNotReady("soon"), TooManyRequests("busy")]
        assert (await ask(served, lambda c: c.begin("t", 1, 2, A))).ledger_id == 2
        assert len(calls.asked) == 4
        before = REFUSED.labels("Begin", "INTERNAL")._value.get()
        calls.errors = [KeyError("a bug")]
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


def test_unreachable_address_is_an_error_only_after_the_deadline() -> None:
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


def test_closed_channel_answers_no_call() -> None:
    channel = OffloadChannel("127.0.0.1:1")
    channel.close()
    channel.close()
    with pytest.raises(OffloadUnreachable, match="closed"):
        channel.wanted()


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":1", "host:x", "host:0", "host:70000", "a b:1", "pulsar://h:6650"]
)
def test_invalid_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ValueError, match="127\\.0\\.0\\.1:6750"):
        OffloadChannel(address)


def test_addresses_are_parsed_and_keep_their_form() -> None:
    assert parse_service_url(" grpc://host:6750/ ") == ServiceUrl("host:6750")
    assert parse_service_url("[::1]:6750") == ServiceUrl("[::1]:6750")
    assert parse_service_url("grpcs://host:6750") == ServiceUrl("host:6750", tls=True)
    for text in ("host:6750", "grpcs://host:6750"):
        assert str(parse_service_url(text)) == text
