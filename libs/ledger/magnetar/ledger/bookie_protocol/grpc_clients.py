"""Connections to bookies over gRPC, one client a bookie, with or without TLS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from magnetar.common.security.services.credentials import ServiceCredentials
from magnetar.ledger.bookie_protocol.grpc_client import ClientOptions, GrpcBookieClient


class GrpcBookieClients:
    """Implements `bookie_client.BookieClients`. Create it on the event loop that uses it.

    `resolve` gives the host:port of a bookie, or None while it is not known (`BookieRegistry.address`);
    `directory` the id of its data directory, b"" while that is not known (`BookieRegistry.directory`). A
    bookie refuses calls that name another bookie or another directory than its own. `tls`: its holder
    watches the files; after a renewal, new streams and calls use channels with the new credentials.
    """

    def __init__(
        self,
        resolve: Callable[[str], str | None],
        directory: Callable[[str], bytes] = lambda _: b"",
        *,
        tls: ServiceCredentials | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        self._resolve = resolve
        self._directory = directory
        self._options = options or ClientOptions()
        self._tls = tls
        self._channel_options = self._options.channel_options()
        if tls is not None and tls.files.server_name:
            self._channel_options.append(("grpc.ssl_target_name_override", tls.files.server_name))
        self._clients: dict[str, GrpcBookieClient] = {}
        self._closed = False

    def client(self, bookie_id: str) -> GrpcBookieClient:
        """See `BookieClients.client`."""
        client = self._clients.get(bookie_id)
        if client is None:
            client = GrpcBookieClient(
                bookie_id,
                lambda: self._address(bookie_id),
                lambda: self._directory(bookie_id),
                self._connect,
                self._options,
                self._generation,
            )
            self._clients[bookie_id] = client
        return client

    async def close(self) -> None:
        """See `BookieClients.close`."""
        self._closed = True
        for client in self._clients.values():
            await client.close()

    def _address(self, bookie_id: str) -> str | None:
        return None if self._closed else self._resolve(bookie_id)

    def _connect(self, address: str) -> Any:
        if self._tls is None:
            return grpc.aio.insecure_channel(address, options=self._channel_options)
        return grpc.aio.secure_channel(address, self._tls.channel(), options=self._channel_options)

    def _generation(self) -> int:
        return 0 if self._tls is None else self._tls.generation
