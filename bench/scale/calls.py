"""The cost of a call between two brokers for each of them, over loopback in one process."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from magnetar.common.control.control_pb2 import TakeRequest
from magnetar.common.control.methods import TAKE

from tests.unit.common.control.brokers import FakeControl, calling, run, serving

CALLS = 2_000
CONNECTIONS = 150
AT_ONCE = 8


def measure() -> tuple[float, float]:
    """Returns CPU seconds of one side: of a call, and of a new connection with its Hello."""
    found: list[float] = []

    async def scenario(opened: AsyncExitStack) -> None:
        broker = await opened.enter_async_context(serving(FakeControl(), calls_max=2 * AT_ONCE))
        request = TakeRequest(namespace="tenant/namespace", bundle="0x00000000_0x40000000")
        client = await opened.enter_async_context(calling())
        await client.call(broker, TAKE, request)

        async def work() -> None:
            for _ in range(CALLS // AT_ONCE):
                await client.call(broker, TAKE, request)

        began = time.process_time()
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        found.append((time.process_time() - began) / CALLS / 2)
        began = time.process_time()
        for _ in range(CONNECTIONS):
            async with calling() as another:
                await another.version(broker)
        found.append((time.process_time() - began) / CONNECTIONS / 2)

    run(scenario)
    return found[0], found[1]
