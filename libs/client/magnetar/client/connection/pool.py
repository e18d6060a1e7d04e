"""The connections of a client: one or several for each broker, opened when they are needed."""

from __future__ import annotations

import asyncio
import random
import ssl
from typing import Final

from magnetar.client.connection.connection import Connection, connect
from magnetar.client.errors import ClientError, ConnectionLost, NoCredentials, OwnerUnreachable
from magnetar.client.options import ClientOptions
from magnetar.client.service_url import ServiceUrl
from magnetar.common.errors import ConfigError
from magnetar.common.security.tls.client_context import ClientFiles, ClientTls

_Key = tuple[str, int, str, int]
"""Host, port, the broker behind a proxy, and the number among the connections of the broker."""

_NUMBERS: Final = random.Random()


class ConnectionPool:
    """Owned by the client, which closes it; on the client's loop."""

    def __init__(self, options: ClientOptions) -> None:
        """Raises ClientError for an invalid service URL or unusable certificates."""
        self._options = options
        self._url = ServiceUrl.parse(options.service_url)
        self._proxy = ServiceUrl.parse(options.proxy_url) if options.proxy_url else None
        if self._proxy is not None and not self._proxy.tls:
            raise ClientError(
                f"proxy_url {options.proxy_url!r} has no TLS: a proxy finds the broker by the name that TLS "
                "asks for; give pulsar+ssl://host:port"
            )
        self.tls: Final = self._url.tls or self._proxy is not None
        self._contexts = _client_tls(options) if self.tls else None
        self._connections: dict[_Key, asyncio.Task[Connection]] = {}
        self._first = _NUMBERS.randrange(len(self._url.addresses))
        self._turn = 0
        self.is_closed = False

    async def close(self) -> None:
        """Closes all connections."""
        self.is_closed = True
        for task in self._connections.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()
            else:
                task.cancel()
        await asyncio.gather(*self._connections.values(), return_exceptions=True)
        self._connections.clear()

    async def to_service(self, behind: str = "") -> Connection:
        """Returns a connection to one of the service URL's hosts, or through it to the broker `behind` (its
        URL). Raises Refused, ConnectionLost.
        """
        problems: list[str] = []
        addresses = self._url.addresses
        for number in range(len(addresses)):
            at = (self._first + number) % len(addresses)
            try:
                found = await self._connect(*addresses[at], behind.partition("://")[2])
            except NoCredentials:
                raise
            except ConnectionLost as error:
                problems.append(str(error))
            else:
                self._first = at  # The next one is asked once this one does not answer.
                return found
        raise ConnectionLost("; ".join(problems) + "; start a broker, or name one with the service URL")

    async def to_broker(self, url: str) -> Connection:
        """Returns a connection to the broker named by a lookup, which may have died since. Raises
        OwnerUnreachable, Refused.
        """
        parsed = ServiceUrl.parse(url)
        try:
            return await self._connect(*parsed.addresses[0], "")
        except ConnectionLost as error:
            raise OwnerUnreachable(str(error)) from error

    async def _connect(self, host: str, port: int, behind: str) -> Connection:
        if self.is_closed:
            raise ConnectionLost("the client is closed")
        self._turn = (self._turn + 1) % self._options.connections_per_broker
        key = (host, port, behind, self._turn)
        task = self._connections.get(key)
        if task is not None and task.done() and (task.cancelled() or task.exception() or task.result().lost):
            task = None
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(host, port, behind))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._connections[key] = task
        return await asyncio.shield(task)

    async def _open(self, host: str, port: int, behind: str) -> Connection:
        server_name = None
        if self._proxy is not None:
            server_name = host
            host, port = self._proxy.addresses[0]
        return await connect(
            host,
            port,
            authentication=self._options.authentication,
            proxy_to=behind,
            tls=self._context(),
            server_name=server_name,
            timeout_s=self._options.connect_timeout_s,
        )

    def _context(self) -> ssl.SSLContext | None:
        return None if self._contexts is None else self._contexts.context()


def _client_tls(options: ClientOptions) -> ClientTls:
    tls = options.tls
    try:
        return ClientTls(
            ClientFiles(
                trust_certs=tls.trust_certs_file,
                certificate=tls.certificate_file,
                key=tls.key_file,
                allow_insecure=tls.allow_insecure,
                verify_hostname=tls.verify_hostname,
            )
        )
    except ConfigError as error:
        raise ClientError(str(error)) from error
