"""A call between brokers is served under the id of the request that it is made for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from magnetar.common.control.control_pb2 import AssignRequest, AssignResponse
from magnetar.common.control.methods import ASSIGN
from magnetar.common.obs import request_ids

from tests.etcd_server import grpc_stays
from tests.unit.common.control.brokers import FakeControl, calling, run, serving


@pytest.fixture(autouse=True, scope="module")
def grpc_for_all() -> Iterator[None]:
    with grpc_stays():
        yield


class Listening(FakeControl):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str | None] = []

    async def assign(self, request: AssignRequest, /) -> AssignResponse:
        self.heard.append(request_ids.current())
        return await super().assign(request)


def test_the_broker_that_is_called_serves_the_callers_request() -> None:
    async def scenario(opened: AsyncExitStack) -> None:
        control = Listening()
        broker = await opened.enter_async_context(serving(control))
        client = await opened.enter_async_context(calling())
        await client.call(broker, ASSIGN, AssignRequest())
        with request_ids.serving("admin-1"):
            await client.call(broker, ASSIGN, AssignRequest())
        await client.call(broker, ASSIGN, AssignRequest())
        assert control.heard == [None, "admin-1", None]

    run(scenario)
