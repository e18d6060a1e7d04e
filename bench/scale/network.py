"""Calls between simulated processes: the time that they take, and who does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from google.protobuf.message import Message
from magnetar.broker.control.broker_calls import BrokerCalls
from magnetar.common.control.control_client import CALLS_MAX, CONNECT_TIMEOUT_S, CONNECTIONS_MAX
from magnetar.common.control.control_errors import AnotherRun, BrokerUnreachable, CallTimedOut
from magnetar.common.control.methods import ASSIGN, REPORT, TAKE, UNLOAD, Method
from magnetar.common.control.versions import VERSION
from magnetar.common.errors import TooManyRequests
from magnetar.common.metadata.values import BrokerRegistration

from bench.scale.costs import Costs
from bench.scale.etcd_model import NETWORK_S
from bench.scale.queues import Queue

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class Called(Protocol):
    """A process that can be called: a broker."""

    @property
    def run(self) -> int:
        """Its present run; 0 while it does not answer."""
        ...

    @property
    def lost(self) -> bool:
        """Whether its machine is gone, so that a connection is not even refused."""
        ...

    @property
    def calls(self) -> BrokerCalls: ...

    @property
    def core(self) -> Queue: ...

    def handling_s(self, method: str) -> float:
        """Returns the seconds of its core that a call of the method takes, beside the call itself."""
        ...


class SimControl:
    """The ControlClient of one simulated process, with its limits of calls and connections."""

    def __init__(self, brokers: Mapping[str, Called], core: Queue, costs: Costs) -> None:
        self.connects = 0
        self._brokers = brokers
        self._core = core
        self._costs = costs
        self._calls = 0
        self._connected: dict[tuple[str, int], None] = {}

    async def call(
        self,
        broker: BrokerRegistration,
        method: Method[Request, Response],
        request: Request,
        *,
        deadline_s: float | None = None,
    ) -> Response:
        """See ControlClient.call."""
        limit_s = method.deadline_s if deadline_s is None else min(deadline_s, method.deadline_s)
        if self._calls >= CALLS_MAX:
            raise TooManyRequests(f"{self._calls} calls to other brokers are under way, try again")
        self._calls += 1
        try:
            async with asyncio.timeout(limit_s):
                called = await self._connection(broker)
                await self._core.use(self._costs.call_s)
                await asyncio.sleep(NETWORK_S)
                await called.core.use(self._costs.call_s + called.handling_s(method.name))
                if called.run != broker.run:
                    raise AnotherRun(f"{broker.broker_id} is another run now")
                answer = await _handler(called.calls, method)(request)
                await asyncio.sleep(NETWORK_S)
                return cast("Response", answer)
        except TimeoutError:
            raise CallTimedOut(f"{broker.broker_id} did not answer within {limit_s} s") from None
        finally:
            self._calls -= 1

    async def version(self, broker: BrokerRegistration) -> int:
        """See ControlClient.version."""
        await self._connection(broker)
        return VERSION

    async def _connection(self, broker: BrokerRegistration) -> Called:
        called = self._brokers.get(broker.broker_id)
        key = broker.broker_id, broker.run
        if called is None or called.run != broker.run:
            self._connected.pop(key, None)
            await asyncio.sleep(CONNECT_TIMEOUT_S if called is None or called.lost else NETWORK_S)
            if called is not None and called.run:
                raise AnotherRun(f"{broker.broker_id} is another run now")
            raise BrokerUnreachable(f"broker {broker.broker_id} does not answer")
        if key in self._connected:
            del self._connected[key]
        else:
            self.connects += 1
            while len(self._connected) >= CONNECTIONS_MAX:
                del self._connected[next(iter(self._connected))]
            self._connected[key] = None
            await self._core.use(self._costs.connect_s)
            await called.core.use(self._costs.connect_s)
        self._connected[key] = None
        return called


def _handler(calls: BrokerCalls, method: Method[Any, Any]) -> Callable[[Any], Any]:
    handlers: dict[str, Callable[[Any], Any]] = {
        ASSIGN.name: calls.assign,
        TAKE.name: calls.take,
        UNLOAD.name: calls.unload,
        REPORT.name: calls.report,
    }
    return handlers[method.name]
