"""Proxies client connections to brokers, for clients that cannot reach brokers directly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.errors import NotAllowed, ServiceNotReady
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.wire.pulsar_pb2 import BaseCommand
from magnetar.discovery.config import ProxyConfig
from magnetar.discovery.handlers.broker_targets import WANTED_CHARS_SHOWN, broker_at
from magnetar.discovery.handlers.handshake import carry_credentials, passed_on
from magnetar.discovery.transport.broker_access import BrokerAccess
from magnetar.discovery.transport.connection_metrics import CONNECTIONS, PROXY_REFUSED, TO_BROKERS
from magnetar.discovery.transport.splice import Splice

log = get_logger(__name__)

LOOKS_PER_TIMEOUT: Final = 2
"""Checks of a connection per silence timeout."""


class Proxy:
    """Connects clients to brokers and tracks the connections."""

    def __init__(
        self,
        directory: BrokerDirectory,
        config: ProxyConfig,
        access: BrokerAccess,
        *,
        certificate_max_age_s: int = 0,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """`certificate_max_age_s`: seconds after which connections of clients with certificates end; 0: no
        limit but the certificate's expiry.
        """
        self._max_age_s = certificate_max_age_s
        self._wall_s = wall_s
        self._directory = directory
        self._access = access
        self._config = config
        self._splices: set[Splice] = set()
        self._stuck: set[Splice] = set()
        self._refused, self._unreachable = LogLimit(), LogLimit()

    def __len__(self) -> int:
        return len(self._splices)

    async def connect(self, connect: BaseCommand, peer: str, certificate: bytes | None = None) -> Splice:
        """Open a connection to the broker in the client's Connect; `carry` uses it.

        `certificate`: the client's own, verified (DER). Raises NotAllowed for an unknown broker,
        AuthenticationFailed for credentials that cannot be carried, ServiceNotReady when it is unreachable.
        """
        expires_at = carry_credentials(connect, certificate, as_proxy=self._access.as_proxy)
        if expires_at is not None and self._max_age_s:
            expires_at = min(expires_at, self._wall_s() + self._max_age_s)
        loop = asyncio.get_running_loop()
        wanted = connect.connect.proxy_to_broker_url
        try:
            broker = broker_at(wanted, self._directory.all())
        except NotAllowed:
            PROXY_REFUSED.labels("unknown_broker").inc()
            if count := self._refused.note(loop.time()):
                shown = wanted[:WANTED_CHARS_SHOWN]
                log.warning("refused a proxied connection", peer=peer, to=shown, clients=count)
            raise
        splice = Splice(self._ended, expires_at)
        try:
            host, port = self._access.address(broker)
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                tls = self._access.context()
                await loop.create_connection(splice.broker_side, host, port, ssl=tls)
        except (OSError, TimeoutError, ServiceNotReady) as error:
            PROXY_REFUSED.labels("unreachable").inc()
            reason = str(error) or "connect timeout (brokerProxyConnectTimeoutMs)"
            if count := self._unreachable.note(loop.time()):
                log.warning("broker is unreachable", broker=broker.broker_id, reason=reason, clients=count)
            raise ServiceNotReady(f"broker {broker.broker_id} cannot be reached: {reason}") from error
        return splice

    def carry(self, splice: Splice, client: asyncio.Transport, connect: BaseCommand, rest: bytes) -> None:
        """Join the client's connection and the broker's; `rest` are the bytes after the client's Connect."""
        self._splices.add(splice)
        CONNECTIONS.labels(TO_BROKERS).inc()
        splice.begin(client, passed_on(connect) + rest)

    async def watch_stuck(self) -> None:
        """Close connections on which the broker is silent or the client does not read for too long. Runs
        until cancelled.
        """
        timeout_ms = self._config.read_timeout_ms
        if not timeout_ms:
            return
        while True:
            await asyncio.sleep(timeout_ms / 1000 / LOOKS_PER_TIMEOUT)
            stuck = {splice for splice in self._splices if splice.stuck()}
            gone = stuck & self._stuck
            for splice in gone:
                splice.end()
            if gone:
                log.warning("closed stuck connections to brokers", connections=len(gone))
            self._stuck = stuck - gone

    async def watch_expiry(self, every_s: float) -> None:
        """Close connections whose client's certificate has expired, which their brokers cannot see. Runs
        until cancelled.
        """
        while True:
            await asyncio.sleep(every_s)
            self.end_expired()

    def end_expired(self) -> None:
        """Close these connections now."""
        now = self._wall_s()
        expired = [each for each in self._splices if each.expires_at is not None and each.expires_at <= now]
        for splice in expired:
            splice.end()
        if expired:
            reason = "a client's certificate expired, or magnetarTlsConnectionMaxAgeSeconds passed"
            log.info("closed connections to brokers", reason=reason, connections=len(expired))

    def close(self) -> None:
        """Close all connections."""
        for splice in list(self._splices):
            splice.end()

    def _ended(self, splice: Splice) -> None:
        if splice in self._splices:
            self._splices.discard(splice)
            CONNECTIONS.labels(TO_BROKERS).dec()
