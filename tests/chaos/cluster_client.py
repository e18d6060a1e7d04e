"""How the raw clients find brokers: lookups through any discovery, connections that are shared by URL.

A broker that does not answer pings is silent: who is on it asks where its topic is, and moves if that is
elsewhere, with a deaf ear left behind that hears what the former owner still says.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, Self

from magnetar.common.wire import pulsar_pb2 as pb

from tests.integration.harness import Endpoint
from tests.integration.raw.transcript import Frame
from tests.soak.raw_client import PING_SECONDS, Ended, RawConnection, Refused

SILENCE_S = 2.0
"""Without an answer to a ping for so long a client no longer believes in a connection."""
CONNECT_SECONDS_MAX = 2.0
LINGER_S = 5.0
"""How long one listens to a broker that speaks again after its clients have gone elsewhere."""
LINES_A_BROKER = 4


class BrokerConnection(RawConnection):
    """A connection that knows whether it is silent."""

    url = ""

    @classmethod
    async def to(cls, url: str, proxy: str = "") -> Self:
        """Connect, through a proxy if one is named. Raises OSError or Ended."""
        broker = url.removeprefix("pulsar://") if proxy else ""
        connection = await cls.connect(Endpoint(proxy or url, ""), CONNECT_SECONDS_MAX, broker)
        connection.url = url
        return connection

    def __init__(self) -> None:
        super().__init__()
        self.deserted = False
        """Somebody went elsewhere because it was silent."""
        self.speaks_since = time.monotonic()
        """When it was last known to be silent."""

    @property
    def silent(self) -> bool:
        """Whether a ping has waited too long."""
        return bool(self._pings) and time.monotonic() - self._pings[0][0] > SILENCE_S

    async def ask(self, name: str, **fields: Any) -> Frame:
        """As of any connection; raises Ended also once it is silent."""
        asking = asyncio.ensure_future(super().ask(name, **fields))
        try:
            while not asking.done():
                await asyncio.wait([asking], timeout=PING_SECONDS)
                if self.silent and not asking.done():
                    raise Ended
            return asking.result()
        finally:
            asking.cancel()


class Doors:
    """Lookups and connections for all topics of a run."""

    def __init__(self, discoveries: list[str], counts: Counter[str]) -> None:
        self._discoveries = discoveries
        self._counts = counts
        self._to_discoveries: dict[str, BrokerConnection] = {}
        self._to_brokers: dict[tuple[str, int], asyncio.Task[BrokerConnection]] = {}
        self._all: list[BrokerConnection] = []
        self._proxy = ""
        """The discovery that carries connections to brokers, where lookups say that one does."""

    async def where(self, topic: str, turn: int) -> str:
        """The owner's URL, asked of a discovery, another one each turn. Raises Refused, Ended or OSError."""
        url = self._discoveries[turn % len(self._discoveries)]
        connection = self._to_discoveries.get(url)
        if connection is None or not connection.open or connection.silent:
            if connection is not None:
                connection.abort()
            connection = self._to_discoveries[url] = self._kept(await BrokerConnection.to(url))
        self._counts["lookups"] += 1
        answer = (await connection.ask("lookupTopic", topic=topic)).command
        if answer.response == pb.CommandLookupTopicResponse.Failed:
            raise Refused(pb.ServerError.Name(answer.error), answer.message)
        self._proxy = url if answer.proxy_through_service_url else ""
        return str(answer.brokerServiceUrl)

    async def to(self, url: str, topic_number: int) -> BrokerConnection:
        """The connection to a broker that all of a topic share. Raises Ended or OSError."""
        key = (url, topic_number % LINES_A_BROKER)
        task = self._to_brokers.get(key)
        if task is None or (task.done() and (task.exception() is not None or not task.result().open)):
            task = self._to_brokers[key] = asyncio.create_task(BrokerConnection.to(url, self._proxy))
            self._counts["connections"] += 1
        connection = self._kept(await asyncio.shield(task))
        if connection.silent:
            raise Ended
        return connection

    async def keep(self) -> None:
        """Ping all the time, and end what was deserted and has spoken again for a while."""
        while True:
            now = time.monotonic()
            for connection in [*self._all]:
                if not connection.open:
                    self._all.remove(connection)
                    continue
                if connection.silent:
                    connection.speaks_since = now
                elif connection.deserted and now - connection.speaks_since > LINGER_S:
                    self._counts["deserted connections that spoke again"] += 1
                    connection.abort()
                    continue
                connection.ping()
            await asyncio.sleep(PING_SECONDS)

    def close(self) -> None:
        for connection in self._all:
            connection.abort()

    def _kept(self, connection: BrokerConnection) -> BrokerConnection:
        if connection not in self._all:
            self._all.append(connection)
        return connection
