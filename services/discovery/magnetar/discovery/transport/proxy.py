"""Carrying whole connections to brokers, for clients that cannot reach these themselves."""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar.common.cluster.broker_directory import BrokerDirectory
from magnetar.common.errors import NotAllowed, ServiceNotReady
from magnetar.common.obs.log_limit import LogLimit
from magnetar.common.obs.logs import get_logger
from magnetar.common.wire.pulsar_pb2 import BaseCommand
from magnetar.discovery.config import ProxyConfig
from magnetar.discovery.handlers.broker_targets import WANTED_CHARS_SHOWN, broker_at, reached_at
from magnetar.discovery.handlers.handshake import passed_on
from magnetar.discovery.transport.connection_metrics import CONNECTIONS, PROXY_REFUSED, TO_BROKERS
from magnetar.discovery.transport.splice import Splice

log = get_logger(__name__)

LOOKS_PER_TIMEOUT: Final = 2
"""How often it is looked whether anything moves within the time that it may stand still."""


class Proxy:
    """Connects clients to brokers, and knows which are connected."""

    def __init__(self, directory: BrokerDirectory, config: ProxyConfig) -> None:
        self._directory = directory
        self._config = config
        self._splices: set[Splice] = set()
        self._stuck: set[Splice] = set()
        self._refused, self._unreachable = LogLimit(), LogLimit()

    def __len__(self) -> int:
        return len(self._splices)

    async def connect(self, connect: BaseCommand, peer: str) -> Splice:
        """A connection to the broker that the client's Connect names; `carry` goes on with it.

        Raises NotAllowed for what is no broker, ServiceNotReady when it cannot be reached.
        """
        loop = asyncio.get_running_loop()
        wanted = connect.connect.proxy_to_broker_url
        try:
            broker = broker_at(wanted, self._directory.all())
        except NotAllowed:
            PROXY_REFUSED.labels("unknown_broker").inc()
            if count := self._refused.note(loop.time()):
                shown = wanted[:WANTED_CHARS_SHOWN]
                log.warning("refused to connect a client", peer=peer, to=shown, clients=count)
            raise
        splice = Splice(self._ended)
        try:
            host, port = reached_at(broker)
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                await loop.create_connection(splice.broker_side, host, port)
        except (OSError, TimeoutError, ServiceNotReady) as error:
            PROXY_REFUSED.labels("unreachable").inc()
            reason = str(error) or "it did not answer in time (brokerProxyConnectTimeoutMs)"
            if count := self._unreachable.note(loop.time()):
                log.warning(
                    "a broker cannot be reached", broker=broker.broker_id, reason=reason, clients=count
                )
            raise ServiceNotReady(f"broker {broker.broker_id} cannot be reached: {reason}") from error
        return splice

    def carry(self, splice: Splice, client: asyncio.Transport, connect: BaseCommand, rest: bytes) -> None:
        """Join the client's connection to the broker's; what follows its Connect, `rest`, goes with it."""
        self._splices.add(splice)
        CONNECTIONS.labels(TO_BROKERS).inc()
        splice.begin(client, passed_on(connect) + rest)

    async def watch_stuck(self) -> None:
        """End what brokers have been silent on, or clients have not read, for too long; for ever, ends by
        cancellation.
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
                log.warning("nothing moved on connections to brokers, they are closed", connections=len(gone))
            self._stuck = stuck - gone

    def close(self) -> None:
        """End every connection."""
        for splice in list(self._splices):
            splice.end()

    def _ended(self, splice: Splice) -> None:
        if splice in self._splices:
            self._splices.discard(splice)
            CONNECTIONS.labels(TO_BROKERS).dec()
