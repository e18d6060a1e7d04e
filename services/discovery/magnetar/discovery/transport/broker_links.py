"""Forwards requests to brokers over one connection per broker, opened on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.wire.pulsar_pb2 import BaseCommand
from magnetar.discovery.live_brokers import LiveBrokers
from magnetar.discovery.transport.broker_access import BrokerAccess
from magnetar.discovery.transport.broker_link import BrokerLink

log = get_logger(__name__)

CONNECT_TIMEOUT_S: Final = 3.0
ANSWER_TIMEOUT_S: Final = 15.0

BROKERS_TRIED: Final = 3
"""Maximum brokers tried before the client must retry."""

_Opened = BrokerLink | ServiceNotReady
"""A link, or the reason for a failure: an unavailable broker is not an error of discovery."""

_Opening = asyncio.Task[_Opened]
_Spawn = Callable[[Coroutine[Any, Any, _Opened], str], _Opening]


class BrokerLinks:
    """Implements `Brokers` of the handlers."""

    def __init__(
        self, directory: BrokerDirectory, brokers: LiveBrokers, access: BrokerAccess, spawn: _Spawn
    ) -> None:
        self._directory = directory
        self._access = access
        self._brokers = brokers
        self._spawn = spawn
        self._links: dict[str, _Opening] = {}
        self._unreachable = LogLimit()
        directory.on_change(self._changed)

    async def ask(self, command: BaseCommand) -> BaseCommand:
        """See `Brokers.ask`. Tries another broker when one is unreachable."""
        why = "no broker is available"
        for broker in self._brokers.some(BROKERS_TRIED):
            try:
                link = await self._link(broker)
            except ServiceNotReady as error:
                why = str(error)
                if count := self._unreachable.note(asyncio.get_running_loop().time()):
                    log.warning(
                        "request to a broker failed", broker=broker.broker_id, reason=why, questions=count
                    )
                continue
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    return await link.ask(command)
            except TimeoutError:
                link.close(f"no answer within {ANSWER_TIMEOUT_S:g} s")
                why = f"{broker.broker_id} did not answer within {ANSWER_TIMEOUT_S:g} s"
                break  # The client's own timeout has passed as well.
            except ServiceNotReady as error:
                why = f"{broker.broker_id}: {error}"
        raise ServiceNotReady(f"no broker answers: {why}; try again")

    def close(self) -> None:
        """Close all connections."""
        for broker_id in list(self._links):
            self._drop(broker_id, "discovery is shutting down")

    async def _link(self, broker: BrokerRegistration) -> BrokerLink:
        opening = self._links.get(broker.broker_id)
        if opening is None or (opening.done() and _link_of(opening) is None):
            opening = self._spawn(self._open(broker), f"connect to {broker.broker_id}")
            self._links[broker.broker_id] = opening
        # `wait` instead of `await`: cancelling one caller must not cancel the connect for others.
        await asyncio.wait([opening])
        opened = ServiceNotReady("discovery is shutting down") if opening.cancelled() else opening.result()
        if isinstance(opened, ServiceNotReady):
            raise ServiceNotReady(str(opened))  # A separate exception for each waiter.
        return opened

    async def _open(self, broker: BrokerRegistration) -> _Opened:
        try:
            host, port = self._access.address(broker)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connect, tls = self._access.connect_command(), self._access.context()
                link = await BrokerLink.open(host, port, connect, tls)
        except TimeoutError:
            return ServiceNotReady(f"{broker.broker_id} cannot be reached: no answer in time")
        except (OSError, ServiceNotReady) as error:
            return ServiceNotReady(f"{broker.broker_id} cannot be reached: {error}")
        if self._links.get(broker.broker_id) is not asyncio.current_task():
            link.close("the broker is gone")  # No other code closes it.
        return link

    def _changed(self, broker_id: str) -> None:
        if self._directory.get(broker_id) is None:
            self._drop(broker_id, "the broker is gone")

    def _drop(self, broker_id: str, reason: str) -> None:
        opening = self._links.pop(broker_id, None)
        link = None if opening is None else _link_of(opening)
        if link is not None:
            link.close(reason)


def _link_of(opening: _Opening) -> BrokerLink | None:
    """The open links."""
    if not opening.done() or opening.cancelled():
        return None
    opened = opening.result()
    return opened if isinstance(opened, BrokerLink) and not opened.closed else None
