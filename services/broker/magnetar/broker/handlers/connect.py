"""Connect: the first command of every connection; and Ping, Pong."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Final

from magnetar.broker import versions
from magnetar.broker.handlers.client import Client
from magnetar.common.errors import ProtocolError
from magnetar.common.obs.logs import get_logger
from magnetar.common.wire import commands
from magnetar.common.wire.pulsar_pb2 import CommandConnect, CommandPing, CommandPong, FeatureFlags

log = get_logger(__name__)

SERVER_VERSION: Final = f"Magnetar {version_of('magnetar-broker')}"

CLIENT_VERSION_MAX: Final = 256
"""Maximum characters kept of a client's version; statistics show it with each producer and consumer."""


def handle_connect(client: Client, command: CommandConnect) -> None:
    """Responds Connected with the features that both sides support. Credentials are ignored: there is no
    authentication.
    """
    if client.connected:
        raise ProtocolError("Connect was sent twice on one connection")
    client.connected = True
    client.client_version = command.client_version[:CLIENT_VERSION_MAX]
    version = client.peer.protocol_version = min(command.protocol_version, commands.PROTOCOL_VERSION)
    client.understands_entry_metadata = (
        version >= versions.ENTRY_METADATA and command.feature_flags.supports_broker_entry_metadata
    )
    config = client.services.config
    client.peer.write(
        commands.connected(
            server_version=SERVER_VERSION,
            protocol_version=version,
            max_message_size=config.publish.message_bytes_max,
            feature_flags=FeatureFlags(
                supports_topic_watchers=config.topics.pattern_evaluation,
                supports_get_partitioned_metadata_without_auto_creation=True,
            ),
        )
    )
    log.debug("client connected", peer=client.peer.address, client_version=client.client_version)


def handle_ping(client: Client, command: CommandPing) -> None:
    client.peer.write(commands.PONG)


def handle_pong(client: Client, command: CommandPong) -> None:
    """Does nothing: the transport counts any bytes as a sign of life."""
