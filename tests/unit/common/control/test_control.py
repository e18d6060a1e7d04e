"""What the control plane's transport promises, over loopback: answers, errors, runs, bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from magnetar.common import errors
from magnetar.common.control.control_errors import (
    AnotherRun,
    BrokerFailed,
    BrokerUnreachable,
    CallTimedOut,
    NotInteroperable,
    to_wire,
)
from magnetar.common.control.control_pb2 import (
    AssignRequest,
    HelloRequest,
    LoadReport,
    LoadsRequest,
    MergeRequest,
    NonPersistentTopicsRequest,
    ReportRequest,
    SplitRequest,
    TakeRequest,
    UnloadRequest,
    UnloadResponse,
)
from magnetar.common.control.control_server import ControlServer, Identity
from magnetar.common.control.methods import (
    ASSIGN,
    HELLO,
    LOADS,
    MERGE,
    NON_PERSISTENT_TOPICS,
    REPORT,
    SERVICE,
    SPLIT,
    TAKE,
    UNLOAD,
)
from magnetar.common.control.versions import Versions
from magnetar.common.obs.metrics import REGISTRY
from magnetar.testing.free_ports import free_ports

from tests.etcd_server import grpc_stays
from tests.unit.common.control.brokers import FakeControl, calling, registration, run, serving


@pytest.fixture(scope="module", autouse=True)
def _grpc() -> Iterator[None]:
    with grpc_stays():
        yield


REQUEST = AssignRequest(namespace="public/default", bundle="0x00000000_0x40000000")


def refused(method: str, status: str) -> float:
    name, labels = "magnetar_control_refused_calls_total", {"method": method, "status": status}
    return REGISTRY.get_sample_value(name, labels) or 0.0


def raw(address: str) -> Any:
    """A channel of another process, so to speak."""
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


async def eventually(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def test_every_call_is_answered_by_the_broker_that_it_names() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        control = FakeControl()
        broker = await opened.enter_async_context(serving(control))
        client = await opened.enter_async_context(calling())
        assert (await client.call(broker, ASSIGN, REQUEST)).broker_id == "b1"
        assert control.assigned == [REQUEST]
        assert (await client.call(broker, TAKE, TakeRequest(from_version=4))).version == 5
        assert (await client.call(broker, UNLOAD, UnloadRequest(to_broker_id="b2"))).broker_id == "b2"
        assert (await client.call(broker, SPLIT, SplitRequest(bundle="x"))).bundles == ["x"]
        assert (await client.call(broker, MERGE, MergeRequest(bundle="xyz"))).version == 3
        await client.call(broker, REPORT, ReportRequest(report=LoadReport(cpu_percent=3.5)))
        assert control.reports[0].report.cpu_percent == 3.5
        assert not (await client.call(broker, LOADS, LoadsRequest())).loads
        topics = await client.call(broker, NON_PERSISTENT_TOPICS, NonPersistentTopicsRequest(namespace="a/b"))
        assert topics.topics == ["non-persistent://a/b/t"]
        assert await client.version(broker) == 1

    run(scenario)


@pytest.mark.parametrize(
    "error",
    [
        errors.NamespaceNotFound("no namespace a/b"),
        errors.ServiceNotReady("comes up"),
        errors.BeingChanged("is split"),
        errors.TooManyRequests("later"),
        errors.NotAllowed("never"),
        errors.InvalidName("no bundle"),
        errors.OwnershipLost("another's"),
        errors.UnknownOutcome("who knows"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_arrives_as_what_it_was(error: errors.MagnetarError) -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        control = FakeControl()
        control.fail = error
        broker = await opened.enter_async_context(serving(control))
        client = await opened.enter_async_context(calling())
        with pytest.raises(type(error), match=str(error)) as raised:
            await client.call(broker, ASSIGN, REQUEST)
        assert type(raised.value) is type(error)
        assert "Assign of broker b1" in str(raised.value)
        assert len(control.assigned) == 1, "an answer is an answer, although Assign may be repeated"

    run(scenario)


def test_an_error_without_a_name_of_its_own_arrives_as_what_it_is_a_case_of() -> None:
    error = errors.VersionMismatch("key", 1, 2)
    assert to_wire(error) == (grpc.StatusCode.UNAVAILABLE, "MetadataError")
    assert to_wire(errors.LogFailed("disk")) == (grpc.StatusCode.INTERNAL, "StorageError")
    assert to_wire(KeyError("bug")) == (grpc.StatusCode.INTERNAL, "BrokerFailed")


def test_a_bug_in_a_broker_is_told_from_its_answers() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        control = FakeControl()
        control.fail = KeyError("bug")
        broker = await opened.enter_async_context(serving(control))
        client = await opened.enter_async_context(calling())
        with pytest.raises(BrokerFailed, match="bug"):
            await client.call(broker, ASSIGN, REQUEST)
        control.fail = None
        assert (await client.call(broker, ASSIGN, REQUEST)).run == 7

    run(scenario)


def test_another_run_of_a_third_broker_ends_no_other_call() -> None:
    class Calling(FakeControl):
        async def unload(self, request: UnloadRequest, /) -> UnloadResponse:
            raise AnotherRun("b2 has started again since")

    async def scenario(opened: AsyncExitStack) -> None:
        control = Calling()
        broker = await opened.enter_async_context(serving(control))
        client = await opened.enter_async_context(calling())
        control.gate.clear()
        waiting = asyncio.create_task(client.call(broker, TAKE, TakeRequest(from_version=1)))
        with pytest.raises(errors.ServiceNotReady, match="b2 has started again") as raised:
            await client.call(broker, UNLOAD, UnloadRequest())
        assert type(raised.value) is errors.ServiceNotReady
        control.gate.set()
        assert (await waiting).version == 2

    run(scenario)


def test_the_next_run_at_the_same_address_answers_for_itself_only() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        (port,) = free_ports(1)
        client = await opened.enter_async_context(calling())
        async with serving(FakeControl(), port=port) as first:
            await client.call(first, ASSIGN, REQUEST)
        later = FakeControl()
        second = await opened.enter_async_context(serving(later, run=8, port=port))
        with pytest.raises(AnotherRun, match="look it up"):
            await client.call(first, ASSIGN, REQUEST)
        with pytest.raises(AnotherRun, match=r"run 8 of broker b1, not run 7 of b1"):
            await client.call(first, ASSIGN, REQUEST)  # over a new connection
        assert later.assigned == []
        assert (await client.call(second, ASSIGN, REQUEST)).run == 7
        with pytest.raises(AnotherRun, match="broker b1, not run 8 of b2"):
            await client.call(registration(port, broker_id="b2", run=8), ASSIGN, REQUEST)

    run(scenario)


def test_a_broker_that_is_gone_is_unreachable_and_found_again() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        (port,) = free_ports(1)
        broker = registration(port)
        client = await opened.enter_async_context(calling())
        with pytest.raises(BrokerUnreachable, match="UNAVAILABLE") as raised:
            await client.call(broker, ASSIGN, REQUEST)
        assert raised.value.retriable
        await opened.enter_async_context(serving(FakeControl(), port=port))
        assert (await client.call(broker, ASSIGN, REQUEST)).broker_id == "b1"
        with pytest.raises(errors.ServiceNotReady, match="does not say where"):
            await client.call(registration(0).__class__(broker_id="b9"), ASSIGN, REQUEST)

    run(scenario)


def test_only_idempotent_calls_are_retried_over_a_restart() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        (port,) = free_ports(1)
        client = await opened.enter_async_context(calling())
        server = ControlServer(FakeControl(), Identity("b1", 7, "1.0"))
        await server.start("127.0.0.1", port)
        opened.push_async_callback(server.close, 1.0)
        broker = registration(port)
        before = refused("Hello", "UNAVAILABLE")
        call = asyncio.ensure_future(client.call(broker, ASSIGN, REQUEST))
        await eventually(lambda: refused("Hello", "UNAVAILABLE") > before)
        await server.set_serving(serving=True)
        assert (await call).broker_id == "b1"
        await server.set_serving(serving=False)
        before = refused("Take", "UNAVAILABLE")
        with pytest.raises(BrokerUnreachable, match="starting or stopping"):
            await client.call(broker, TAKE, TakeRequest())
        assert refused("Take", "UNAVAILABLE") == before + 1
        before = refused("Assign", "UNAVAILABLE")
        with pytest.raises(BrokerUnreachable, match="starting or stopping"):
            await client.call(broker, ASSIGN, REQUEST)
        assert refused("Assign", "UNAVAILABLE") == before + ASSIGN.attempts

    run(scenario)


def test_a_deadline_ends_the_call_at_both_ends() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        control = FakeControl()
        broker = await opened.enter_async_context(serving(control))
        client = await opened.enter_async_context(calling())
        await client.version(broker)
        control.gate.clear()
        with pytest.raises(CallTimedOut):
            await client.call(broker, ASSIGN, REQUEST, deadline_s=0.2)
        await eventually(lambda: control.cancelled == 1)
        call = asyncio.ensure_future(client.call(broker, ASSIGN, REQUEST))
        await eventually(lambda: len(control.assigned) == 2)
        call.cancel()
        await eventually(lambda: control.cancelled == 2)
        with pytest.raises(asyncio.CancelledError):
            await call

    run(scenario)


def test_silent_broker_delays_a_call_up_to_its_deadline() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1 << 16):
                pass
            writer.close()

        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        opened.push_async_callback(silent.wait_closed)
        opened.callback(silent.close)
        client = await opened.enter_async_context(calling())
        broker = registration(silent.sockets[0].getsockname()[1])
        began = time.monotonic()
        with pytest.raises(BrokerUnreachable):
            await client.call(broker, ASSIGN, REQUEST, deadline_s=0.3)
        assert time.monotonic() - began < 10

    run(scenario)


def test_closing_the_client_ends_its_calls() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        control = FakeControl()
        control.gate.clear()
        broker = await opened.enter_async_context(serving(control))
        client = await opened.enter_async_context(calling())
        call = asyncio.ensure_future(client.call(broker, ASSIGN, REQUEST))
        await eventually(lambda: control.assigned)
        await client.close()
        with pytest.raises(BrokerUnreachable):
            await call
        with pytest.raises(BrokerUnreachable, match="stopping"):
            await client.call(broker, ASSIGN, REQUEST)

    run(scenario)


def test_one_hello_serves_all_calls_of_a_connection() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        hellos = 0

        class Counting(ControlServer):
            async def _hello(self, request: HelloRequest) -> Any:
                nonlocal hellos
                hellos += 1
                return await super()._hello(request)

        server = Counting(FakeControl(), Identity("b1", 7, "1.0"))
        port = await server.start("127.0.0.1", 0)
        opened.push_async_callback(server.close, 1.0)
        await server.set_serving(serving=True)
        client = await opened.enter_async_context(calling())
        calls = [client.call(registration(port), ASSIGN, REQUEST) for _ in range(20)]
        assert len(await asyncio.gather(*calls)) == 20
        assert hellos == 1

    run(scenario)


def test_connections_are_bounded_and_the_idle_one_makes_room() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        controls = [FakeControl() for _ in range(3)]
        brokers = []
        for number, control in enumerate(controls):
            server = ControlServer(control, Identity(f"b{number}", 7, "1.0"))
            port = await server.start("127.0.0.1", 0)
            opened.push_async_callback(server.close, 1.0)
            await server.set_serving(serving=True)
            brokers.append(registration(port, broker_id=f"b{number}"))
        client = await opened.enter_async_context(calling(connections_max=2))
        for broker in brokers:
            await client.call(broker, ASSIGN, REQUEST)
        assert len(client._connections) == 2
        for control in controls:
            control.gate.clear()
        busy = [asyncio.ensure_future(client.call(broker, ASSIGN, REQUEST)) for broker in brokers[:2]]
        await eventually(lambda: all(len(control.assigned) == 2 for control in controls[:2]))
        with pytest.raises(errors.TooManyRequests, match="2 brokers are being called"):
            await client.call(brokers[2], ASSIGN, REQUEST)
        for control in controls:
            control.gate.set()
        await asyncio.gather(*busy)
        await client.call(brokers[2], ASSIGN, REQUEST)

    run(scenario)


def test_calls_are_bounded_on_both_sides() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        control = FakeControl()
        broker = await opened.enter_async_context(serving(control, calls_max=2))
        client = await opened.enter_async_context(calling(calls_max=3))
        await client.version(broker)
        control.gate.clear()
        busy = [asyncio.ensure_future(client.call(broker, ASSIGN, REQUEST)) for _ in range(2)]
        await eventually(lambda: len(control.assigned) == 2)
        with pytest.raises(errors.TooManyRequests, match="2 calls are under way"):
            await client.call(broker, ASSIGN, REQUEST)
        control.gate.set()
        await asyncio.gather(*busy)
        control.gate.clear()
        more = [asyncio.ensure_future(client.call(broker, TAKE, TakeRequest())) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(errors.TooManyRequests, match="3 calls to other brokers"):
            await client.call(broker, ASSIGN, REQUEST)
        control.gate.set()
        await asyncio.gather(*more, return_exceptions=True)

    run(scenario)


def test_garbage_and_oversized_frames_harm_no_other_caller() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        broker = await opened.enter_async_context(serving(FakeControl()))
        client = await opened.enter_async_context(calling())
        cases: list[tuple[str, bytes, tuple[tuple[str, str], ...], str]] = [
            (ASSIGN.path, b"\xff\xff garbage", (), "INVALID_ARGUMENT"),
            (HELLO.path, b"", (), "INVALID_ARGUMENT"),
            (ASSIGN.path, b"", (("magnetar-run", "one"),), "INVALID_ARGUMENT"),
            (ASSIGN.path, b"", (("magnetar-run", "9" * 4_000),), "INVALID_ARGUMENT"),
            (ASSIGN.path, b"", (("magnetar-control-version", "99"),), "FAILED_PRECONDITION"),
            (f"/{SERVICE}/Nothing", b"", (), "UNIMPLEMENTED"),
            (ASSIGN.path, bytes(9 << 20), (), "RESOURCE_EXHAUSTED"),
        ]
        async with raw(broker.control_address) as channel:
            for path, data, metadata, status in cases:
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await channel.unary_unary(path)(data, metadata=metadata)
                assert raised.value.code().name == status, (path, raised.value.details())
                await client.call(broker, ASSIGN, REQUEST)
        assert refused("unknown", "UNIMPLEMENTED") > 0

    run(scenario)


def test_health_says_whether_calls_are_taken_and_reflection_what_there_is() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        server = ControlServer(FakeControl(), Identity("b1", 7, "1.0"))
        port = await server.start("127.0.0.1", 0)
        opened.push_async_callback(server.close, 1.0)
        channel = await opened.enter_async_context(raw(f"127.0.0.1:{port}"))
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        for serving_now, status in ((False, "NOT_SERVING"), (True, "SERVING")):
            await server.set_serving(serving=serving_now)
            answer = await check(health_pb2.HealthCheckRequest(service=SERVICE))
            assert health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) == status
        ask = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )()
        await ask.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE))
        described = await ask.read()
        assert b"NonPersistentTopics" in described.file_descriptor_response.file_descriptor_proto[0]
        await ask.done_writing()
        assert await ask.read() is grpc.aio.EOF

    run(scenario)


def test_a_port_in_use_names_the_setting() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        broker = await opened.enter_async_context(serving(FakeControl()))
        port = int(broker.control_address.rpartition(":")[2])
        second = ControlServer(FakeControl(), Identity("b2", 9, "1.0"))
        opened.push_async_callback(second.close, 1.0)
        with pytest.raises(OSError, match="magnetarControlPort"):
            await second.start("127.0.0.1", port)

    run(scenario)


def test_a_release_without_a_version_in_common_is_told_so() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        broker = await opened.enter_async_context(serving(FakeControl(), versions=Versions(3, 4)))
        client = await opened.enter_async_context(calling())
        with pytest.raises(NotInteroperable, match="one release at a time"):
            await client.call(broker, ASSIGN, REQUEST)

    run(scenario)
