"""How discovery reaches brokers: at which address, with TLS or without, and with which credentials."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.common.errors import ServiceNotReady
from magnetar.common.metadata.values import BrokerRegistration
from magnetar.common.security.identity import TLS, TOKEN
from magnetar.common.security.tls.broker_client_config import BrokerClientConfig
from magnetar.common.wire import commands
from magnetar.common.wire.frame import encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, CommandConnect
from magnetar.discovery.handlers.broker_targets import reached_at
from magnetar.discovery.handlers.handshake import VERSION

if TYPE_CHECKING:  # without TLS there is no use for it
    from magnetar.common.security.tls.client_context import ClientTls


class BrokerAccess:
    """Shared by links of discovery's own and by carried connections."""

    def __init__(self, config: BrokerClientConfig, *, tls: bool) -> None:
        """Raises ConfigError when a certificate cannot be used."""
        self._config = config
        self._tls: ClientTls | None = None
        self._without_certificate: ClientTls | None = None
        if tls:
            from magnetar.common.security.tls.client_context import ClientTls

            self._tls = ClientTls(config.files())
            self._without_certificate = ClientTls(replace(config.files(), certificate="", key=""))
        self.as_proxy = tls and bool(config.files().certificate)
        """Whether links show a certificate of discovery's, so that it may name its client's role."""

    @property
    def uses_tls(self) -> bool:
        """Whether brokers are reached at their TLS addresses."""
        return self._tls is not None

    def address(self, broker: BrokerRegistration) -> tuple[str, int]:
        """Return host and port of the broker. Raises ServiceNotReady when it has none of the kind."""
        addresses = broker.addresses
        return reached_at(broker, addresses.broker_url_tls if self._tls else addresses.broker_url)

    def context(self, *, shows_certificate: bool = True) -> ssl.SSLContext | None:
        """Return the TLS context of a new connection; None without TLS."""
        tls = self._tls if shows_certificate else self._without_certificate
        return None if tls is None else tls.context()

    def connect_command(self) -> bytes:
        """Return the Connect of a link of discovery's own. Raises ServiceNotReady without its token.

        Links ask what discovery has authorized. A role in proxyRoles may not speak for itself: where
        clients with method tls are carried, links need a token of another role.
        """
        connect = CommandConnect(client_version=VERSION, protocol_version=commands.PROTOCOL_VERSION)
        if self._config.uses_token:
            try:
                token = self._config.token()
            except OSError as error:
                raise ServiceNotReady(f"the token for brokers cannot be read: {error.strerror}") from error
            connect.auth_method_name, connect.auth_data = TOKEN, token.encode()
        elif self.as_proxy and self._config.uses_certificate:
            connect.auth_method_name, connect.auth_data = TLS, b""
        return encode_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect))
