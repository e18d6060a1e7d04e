"""TLS of all ports of a process: contexts, the handshakes that they share, and the reload of their files."""

from __future__ import annotations

from magnetar.common.errors import ConfigError
from magnetar.common.obs.logs import get_logger
from magnetar.common.security.tls.accepting import PortTls
from magnetar.common.security.tls.config import TlsConfig
from magnetar.common.security.tls.handshakes import Handshakes
from magnetar.common.security.tls.reload import TlsReload
from magnetar.common.security.tls.revoked_certificates import CertifiedConnections
from magnetar.common.security.tls.server_context import ServerTls

_log = get_logger(__name__)


class TlsPorts:
    """Made on the loop that serves. `start`, then `close`, after the ports that use it."""

    def __init__(self, config: TlsConfig) -> None:
        """Loads the files. Raises ConfigError when they cannot be used."""
        binary = ServerTls(config, config.protocols, config.ciphers)
        servers = [binary]
        web = binary
        if config.web_protocols or config.web_ciphers:
            web = ServerTls(
                config, config.web_protocols or config.protocols, config.web_ciphers or config.ciphers
            )
            servers.append(web)
        self._handshakes = Handshakes(
            at_once_max=config.handshakes_max,
            per_s=config.handshakes_per_s,
            timeout_s=config.handshake_timeout_ms / 1000,
        )
        self.binary = PortTls(binary, self._handshakes)
        """For ports of Pulsar's protocol."""
        self.web = PortTls(web, self._handshakes)
        """For ports of HTTPS."""
        self.reload = TlsReload(servers, config.refresh_s, self._files_changed)
        if config.crl_file:
            self._handshakes.certified = CertifiedConnections()

    def start(self) -> None:
        """Watch the files."""
        self.reload.start()

    def _files_changed(self) -> None:
        """End connections whose certificates are in the revocation lists now."""
        certified = self._handshakes.certified
        if certified is None:
            return
        try:
            certified.revoke(self.binary.server.revoked())
        except ConfigError as error:
            _log.error("open connections are not checked against revocation lists", reason=str(error))

    async def close(self) -> None:
        """End handshakes and the watch; idempotent."""
        await self.reload.close()
        await self._handshakes.close()
