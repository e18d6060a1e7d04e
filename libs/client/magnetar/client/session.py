"""Keeps a producer or consumer of one topic open: lookup, and reconnection after a connection ended."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from magnetar.client.back_off import BackOff
from magnetar.client.connection.connection import Connection
from magnetar.client.connection.pool import ConnectionPool
from magnetar.client.errors import (
    ClientError,
    Closed,
    ConnectionLost,
    ConsumerBusy,
    OwnerUnreachable,
    ProducerBusy,
    QuotaExceeded,
    Refused,
)
from magnetar.client.home import Home
from magnetar.client.lookup import Lookup
from magnetar.client.memory import MemoryLimit
from magnetar.client.options import ClientOptions
from magnetar.client.partition_growth import PartitionGrowth

_log = logging.getLogger(__name__)

BUSY_S_MAX: Final = 60.0
"""Time in seconds for which reconnection goes on although another one holds the topic or subscription: that
may be the former connection, which the broker has not given up yet.
"""


class ClientParts:
    """The parts of a client that its producers and consumers share."""

    __slots__ = ("_next_id", "growth", "home", "lookup", "memory", "options", "pool", "residents")

    def __init__(self, options: ClientOptions) -> None:
        """Raises ClientError for options that cannot be used, WrongLoop without a running loop."""
        self.home = Home()
        self.options = options
        self.pool = ConnectionPool(options)
        self.lookup = Lookup(options, self.pool)
        self.memory = MemoryLimit(options.memory_limit_bytes)
        self.growth = PartitionGrowth(self.lookup)
        self.residents: set[Closeable] = set()
        """Open producers and consumers, which the client closes with itself."""
        self._next_id = 0

    def next_id(self) -> int:
        """Returns an id for a producer, consumer or watcher, unique within the client."""
        self._next_id += 1
        return self._next_id


class Closeable(Protocol):
    """A producer, consumer or reader."""

    async def close(self) -> None:
        """Closes it."""


class Resident(Protocol):
    """A producer or consumer that a session keeps open at the owner of its topic."""

    async def attach(self, connection: Connection) -> None:
        """Opens it on this connection. Raises Refused, ConnectionLost, OperationTimeout."""

    def detach(self, connection: Connection) -> None:
        """Forgets a connection on which it is not open any more."""

    def on_failed(self, error: ClientError) -> None:
        """It is lost for good."""


class TopicSession:
    """The connection of one resident to the owner of its topic."""

    __slots__ = (
        "_closing",
        "_lost_while_opening",
        "_opening",
        "_parts",
        "_reopening",
        "_resident",
        "connection",
        "failed",
        "opened",
        "topic",
    )

    def __init__(self, parts: ClientParts, topic: str, resident: Resident) -> None:
        self.topic = topic
        self.connection: Connection | None = None
        """The connection on which it is open; None while it is not."""
        self.failed: ClientError | None = None
        """The reason why it is unusable; None while usable."""
        self.opened = 0
        """Number of times it was opened."""
        self._parts = parts
        self._resident = resident
        self._reopening: asyncio.Task[None] | None = None
        self._closing = False
        self._opening = False
        self._lost_while_opening: tuple[ClientError, str] | None = None

    async def open(self) -> None:
        """Looks the topic up and opens the resident. Raises Refused, ConnectionLost, OperationTimeout."""
        await self._parts.lookup.patiently(self._open_once)

    def lost(self, error: ClientError, assigned_url: str = "", pause_s: float = 0.0) -> None:
        """Reconnects, after a pause, when the connection ended or the broker unloaded the topic: first to the
        broker that it named.
        """
        if self._opening:
            # This may follow directly after the response that opened it, which the waiting task has not
            # processed yet.
            self._lost_while_opening = error, assigned_url
            return
        connection, self.connection = self.connection, None
        if connection is not None and connection.lost is None:
            self._resident.detach(connection)
        if self._closing or self.failed is not None:
            return
        if self._reopening is None or self._reopening.done():
            _log.info("%s: %s; reconnecting", self.topic, error)
            self._reopening = self._parts.home.loop.create_task(self._reopen(assigned_url, pause_s))

    def fail(self, error: ClientError) -> None:
        """Ends it permanently with an error."""
        if self.failed is None and not self._closing:
            self.failed = error
            self._resident.on_failed(error)

    def check(self) -> None:
        """Raises the error with which it ended, or Closed."""
        if self.failed is not None:
            raise self.failed
        if self._closing:
            raise Closed(f"{self.topic}: it is closed")

    @property
    def is_usable(self) -> bool:
        """Whether it is neither failed nor closed."""
        return self.failed is None and not self._closing

    async def close(self) -> None:
        """Ends reconnection; what happens to the connection afterwards does not matter any more."""
        self._closing = True
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)
            self._reopening = None

    def take_connection(self) -> Connection | None:
        """Returns the connection, and forgets it: what happens to it does not matter any more."""
        connection, self.connection = self.connection, None
        return connection

    async def _open_once(self, assigned_url: str = "") -> None:
        if assigned_url:
            connection = await self._parts.pool.to_broker(assigned_url)
        else:
            connection = await self._parts.lookup.connection_of(self.topic)
        self._opening, self._lost_while_opening = True, None
        try:
            await self._resident.attach(connection)
            if connection.lost is not None:
                raise OwnerUnreachable(str(connection.lost))
            if self._lost_while_opening is not None:
                raise OwnerUnreachable(str(self._lost_while_opening[0]))
        except ConnectionLost as error:
            self._resident.detach(connection)
            raise OwnerUnreachable(str(error)) from error  # Another broker may own the topic next.
        except BaseException:
            self._resident.detach(connection)
            raise
        finally:
            self._opening = False
        self.connection = connection
        self.opened += 1

    async def _reopen(self, assigned_url: str, pause_s: float) -> None:
        if pause_s:
            await asyncio.sleep(pause_s)
        loop = asyncio.get_running_loop()
        deadline, pauses = loop.time() + self._parts.options.reconnect_timeout_s, BackOff()
        busy_until = min(deadline, loop.time() + BUSY_S_MAX)
        while True:
            try:
                await self._open_once(assigned_url)
                return
            except ClientError as error:
                limit = busy_until if isinstance(error, ConsumerBusy | ProducerBusy) else deadline
                if loop.time() > limit or not _may_pass(error):
                    self.fail(error)
                    return
                was_assigned, assigned_url = assigned_url, ""
                if was_assigned and isinstance(error, ConnectionLost):
                    continue  # The named broker is gone, too: look the topic up.
                _log.debug("%s: %s; trying again", self.topic, error)
            await asyncio.sleep(pauses.next_s())


def _may_pass(error: ClientError) -> bool:
    if isinstance(error, Refused):
        return error.may_pass or isinstance(error, ConsumerBusy | ProducerBusy | QuotaExceeded)
    return error.retriable
