"""Connections to bookies over gRPC, one client a bookie, with or without TLS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from magnetar.common.errors import ConfigError
from magnetar.ledger.bookie_protocol.grpc_client import ClientOptions, GrpcBookieClient


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """PEM files: trusted certificates and, for mutual TLS, this process's own.

    `server_name` is the name in the bookies' certificates, if it is not the host of their address.
    """

    trust_certs: Path
    certificate: Path | None = None
    key: Path | None = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files. Raises ConfigError if one cannot be read or half of a pair is missing."""
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("TLS to bookies: a certificate and its key are given together or not at all")
        return grpc.ssl_channel_credentials(
            root_certificates=read_pem(self.trust_certs),
            private_key=None if self.key is None else read_pem(self.key),
            certificate_chain=None if self.certificate is None else read_pem(self.certificate),
        )


class GrpcBookieClients:
    """Implements `bookie_client.BookieClients`. Create it on the event loop that uses it.

    `resolve` returns the host:port of a bookie, or None if unknown (`BookieRegistry.address`); `directory`
    the id of its data directory, b"" if unknown (`BookieRegistry.directory`). A bookie refuses calls that
    name another bookie or directory.
    """

    def __init__(
        self,
        resolve: Callable[[str], str | None],
        directory: Callable[[str], bytes] = lambda _: b"",
        *,
        tls: ClientTls | None = None,
        options: ClientOptions | None = None,
    ) -> None:
        self._resolve = resolve
        self._directory = directory
        self._options = options or ClientOptions()
        self._credentials = None if tls is None else tls.credentials()
        self._channel_options = self._options.channel_options()
        if tls is not None and tls.server_name:
            self._channel_options.append(("grpc.ssl_target_name_override", tls.server_name))
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
        if self._credentials is None:
            return grpc.aio.insecure_channel(address, options=self._channel_options)
        return grpc.aio.secure_channel(address, self._credentials, options=self._channel_options)


def read_pem(path: Path) -> bytes:
    """Returns a PEM file's bytes. Raises ConfigError naming the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if b"-----BEGIN " not in data:
        raise ConfigError(f"{path} is not a PEM file")
    return data
