"""Keeps a producer or consumer of one topic open: lookup, and reconnection after a connection ended."""

from __future__ import annotations

import asyncio

from magnetar.client.client import PAUSE_S, PAUSE_S_MAX, Client
from magnetar.client.connection import Connection
from magnetar.client.errors import ClientError, ConnectionLost, OwnerUnreachable, Refused

REOPEN_S_MAX = 300.0
"""Time in seconds for which reconnection is attempted."""


class Link:
    """Base of producers and consumers. Subclasses open themselves in `_attach` and handle failure in
    `_on_failed`.
    """

    def __init__(self, client: Client, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.id = next(client.ids)
        self.failed: ClientError | None = None
        """The reason why it is unusable; None while usable."""

        self.opened = 0
        """Number of times it was opened."""

        self._connection: Connection | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._closing = False
        self._opening = False
        self._lost_while_opening: ClientError | None = None

    async def open(self) -> None:
        """Looks the topic up and opens it. Raises Refused, ConnectionLost."""
        await self.client.patiently(self._open_once)

    async def _attach(self, connection: Connection) -> None:
        """Opens it on this connection."""
        raise NotImplementedError

    def _detach(self, connection: Connection) -> None:
        """Detaches it from a connection."""
        raise NotImplementedError

    def _on_failed(self, error: ClientError) -> None:
        """Handles the final failure."""
        raise NotImplementedError

    def on_lost(self, error: ClientError) -> None:
        """Reconnects after the connection ended or the broker unloaded the topic."""
        if self._opening:
            # This may follow directly after the response that opened it, which the waiting task has not
            # processed yet.
            self._lost_while_opening = error
            return
        connection, self._connection = self._connection, None
        if connection is not None and connection.lost is None:
            self._detach(connection)
        if self._closing or self.failed is not None:
            return
        if self._reopening is None or self._reopening.done():
            self._reopening = asyncio.ensure_future(self._reopen())

    def fail(self, error: ClientError) -> None:
        """Ends it permanently with an error."""
        if self.failed is None:
            self.failed = error
            self._on_failed(error)

    async def _stop_reopening(self) -> None:
        self._closing = True
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.gather(self._reopening, return_exceptions=True)

    async def _open_once(self) -> None:
        connection = await self.client.connection_of(self.topic)
        self._opening, self._lost_while_opening = True, None
        try:
            await self._attach(connection)
            if connection.lost is not None:
                raise ConnectionLost(str(connection.lost))
            if self._lost_while_opening is not None:
                raise OwnerUnreachable(str(self._lost_while_opening))
        except BaseException:
            self._detach(connection)
            raise
        finally:
            self._opening = False
        self._connection = connection
        self.opened += 1

    async def _reopen(self) -> None:
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + REOPEN_S_MAX, PAUSE_S
        while True:
            try:
                await self._open_once()
                return
            except ClientError as error:
                may_pass = error.retriable or (isinstance(error, Refused) and error.may_pass)
                if not may_pass or loop.time() > deadline:
                    self.fail(error)
                    return
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_S_MAX)
