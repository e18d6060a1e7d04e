"""The control protocol of this release and of the next one, over real gRPC, in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import grpc
import pytest
from magnetar.common.control import control_pb2
from magnetar.common.control.control_client import Caller
from magnetar.common.control.control_errors import NotInteroperable
from magnetar.common.control.control_pb2 import AssignRequest, LoadsRequest
from magnetar.common.control.methods import ASSIGN, HELLO, LOADS, RUN_KEY, SERVICE, VERSION_KEY, Method
from magnetar.common.control.versions import OURS, VERSION, Versions
from magnetar.common.errors import NotSupportedYet
from magnetar.common.rpc.options import server_options
from magnetar.common.rpc.server import GrpcServer

from tests.etcd_server import grpc_stays
from tests.unit.common.control.brokers import CALLER, FakeControl, calling, registration, run, serving
from tests.unit.common.control.next_version import added, next_version

NEXT = next_version(control_pb2.DESCRIPTOR)
NEXT_VERSIONS = Versions(VERSION, VERSION + 1)
NEXT_CALLER = Caller("next:8080", "next", 6, NEXT_VERSIONS)


def as_next(method: Method[Any, Any]) -> Method[Any, Any]:
    """A call of the next release."""
    return replace(method, request=NEXT[method.request.__name__], response=NEXT[method.response.__name__])


NEXT_ASSIGN = as_next(ASSIGN)
ADDED_CALL: Method[Any, Any] = Method("AddedCall", NEXT["AddedPart"], NEXT["AddedPart"], 5.0)
REQUEST: dict[str, Any] = {"namespace": "public/default", "bundle": "0x00000000_0x40000000"}


@pytest.fixture(scope="module", autouse=True)
def _grpc() -> Iterator[None]:
    with grpc_stays():
        yield


class NextBroker:
    """A broker of the next release: it fills in what is new and has a call more."""

    def __init__(self, versions: Versions) -> None:
        self.versions = versions
        self.said: list[dict[str, Any]] = []
        calls = {
            "Hello": (as_next(HELLO), self._hello),
            "Assign": (NEXT_ASSIGN, self._assign),
            "Loads": (as_next(LOADS), self._loads),
            "AddedCall": (ADDED_CALL, lambda request: request),
        }
        methods = {name: self._handler(method, call) for name, (method, call) in calls.items()}
        self.server = GrpcServer(SERVICE, methods, self._refuse, server_options(1 << 20))

    def _handler(self, method: Method[Any, Any], call: Any) -> Any:
        async def handle(data: bytes, context: Any) -> bytes:
            self.said.append(dict(context.invocation_metadata()))
            answer: bytes = call(method.request.FromString(data)).SerializeToString()
            return answer

        return grpc.unary_unary_rpc_method_handler(handle)

    def _hello(self, request: Any) -> Any:
        assert (request.oldest_version, request.newest_version) == (OURS.oldest, OURS.newest)
        answer = NEXT["HelloResponse"](
            broker_id="b1",
            run=7,
            release="next",
            oldest_version=self.versions.oldest,
            newest_version=self.versions.newest,
        )
        return added(answer)

    def _assign(self, request: Any) -> Any:
        assert (request.added, len(request.added_parts)) == ("", 0), "an older caller says nothing of it"
        return added(NEXT["AssignResponse"](broker_id=f"owner of {request.bundle}", run=9))

    def _loads(self, _request: Any) -> Any:
        answer = NEXT["LoadsResponse"]()
        for number in range(3):
            load: Any = added(answer.loads.add(age_ms=number))
            added(load.report).cpu_percent = 10.0 * number
            added(load.report.loads.add(bundle=REQUEST["bundle"]))
        return added(answer)

    async def _refuse(self, context: Any, method: str, error: Exception) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method}: {error}")


def test_this_release_calls_a_broker_of_the_next_one() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        theirs = NextBroker(NEXT_VERSIONS)
        port = await theirs.server.start("127.0.0.1", 0, "port")
        opened.push_async_callback(theirs.server.stop, 1.0)
        client = await opened.enter_async_context(calling(CALLER))
        broker = registration(port)
        assert await client.version(broker) == VERSION, "they agree upon what both speak"
        answer = await client.call(broker, ASSIGN, AssignRequest(**REQUEST))
        assert (answer.broker_id, answer.run) == (f"owner of {REQUEST['bundle']}", 9)
        assert theirs.said[-1][VERSION_KEY] == str(VERSION)
        assert theirs.said[-1][RUN_KEY] == "7"
        loads = await client.call(broker, LOADS, LoadsRequest())
        assert [load.report.cpu_percent for load in loads.loads] == [0.0, 10.0, 20.0]
        assert loads.loads[0].report.loads[0].bundle == REQUEST["bundle"]
        # What is not understood is kept and passed on, not lost.
        again: Any = NEXT["LoadsResponse"].FromString(loads.SerializeToString())
        assert again.loads[2].report.added_parts[0].number == 2**63

    run(scenario)


def test_the_next_release_calls_a_broker_of_this_one() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        control = FakeControl()
        broker = await opened.enter_async_context(serving(control))
        client = await opened.enter_async_context(calling(NEXT_CALLER))
        assert await client.version(broker) == VERSION
        request: Any = added(NEXT["AssignRequest"](**REQUEST, passed_on=True))
        answer = await client.call(broker, NEXT_ASSIGN, request)
        assert (answer.broker_id, answer.run, answer.added) == ("b1", 7, "")
        (seen,) = control.assigned
        assert (seen.namespace, seen.bundle, seen.passed_on) == (*REQUEST.values(), True)
        with pytest.raises(NotSupportedYet, match="AddedCall"):
            await client.call(broker, ADDED_CALL, NEXT["AddedPart"](number=1))
        await client.call(broker, NEXT_ASSIGN, request)

        async with grpc.aio.insecure_channel(broker.control_address) as channel:
            hello: Any = added(NEXT["HelloRequest"](caller="next", oldest_version=1, newest_version=2))
            found: Any = await channel.unary_unary(
                HELLO.path, NEXT["HelloRequest"].SerializeToString, NEXT["HelloResponse"].FromString
            )(hello)
        assert (found.broker_id, found.newest_version, found.added) == ("b1", VERSION, "")

    run(scenario)


def test_the_release_after_the_next_one_is_refused_in_both_directions() -> None:
    later = Versions(VERSION + 1, VERSION + 2)

    async def scenario(opened: AsyncExitStack) -> None:
        broker = await opened.enter_async_context(serving(FakeControl()))
        client = await opened.enter_async_context(calling(replace(NEXT_CALLER, versions=later)))
        with pytest.raises(NotInteroperable, match="one release at a time"):
            await client.call(broker, ASSIGN, AssignRequest(**REQUEST))
        theirs = NextBroker(later)
        port = await theirs.server.start("127.0.0.1", 0, "port")
        opened.push_async_callback(theirs.server.stop, 1.0)
        ours = await opened.enter_async_context(calling(CALLER))
        with pytest.raises(NotInteroperable, match="one release at a time"):
            await ours.call(registration(port), ASSIGN, AssignRequest(**REQUEST))

    run(scenario)


def test_a_release_speaks_its_own_version_and_the_one_before() -> None:
    assert OURS.newest == VERSION
    assert OURS.oldest == max(1, VERSION - 1)
