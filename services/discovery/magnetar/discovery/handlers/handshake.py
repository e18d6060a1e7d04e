"""Connect: the first command of every connection, which says what the connection is for."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from magnetar.common.errors import ProtocolError
from magnetar.common.wire import commands
from magnetar.common.wire.frame import MESSAGE_BYTES_MAX, encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, FeatureFlags

NAME: Final = "Magnetar discovery"
"""How the version of every discovery begins, whatever its release."""

VERSION: Final = f"{NAME} {version('magnetar-discovery')}"

_FLAGS: Final = FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)
"""Features supported here. Watches of topics, for one, are a broker's."""


def check_connect(command: BaseCommand) -> str:
    """The broker that the client wants to be connected to; empty when it only asks questions.

    Raises ProtocolError when the command is no Connect.
    """
    if command.type != BaseCommand.CONNECT:
        raise ProtocolError(f"the first command is {BaseCommand.Type.Name(command.type)}, not CONNECT")
    return command.connect.proxy_to_broker_url


def connected(command: BaseCommand) -> bytes:
    """The answer to a client that asks questions. Credentials are ignored: no client is refused."""
    return commands.connected(
        server_version=VERSION,
        protocol_version=min(command.connect.protocol_version, commands.PROTOCOL_VERSION),
        max_message_size=MESSAGE_BYTES_MAX,
        feature_flags=_FLAGS,
    )


def passed_on(command: BaseCommand) -> bytes:
    """The client's own Connect for the broker, which is to answer it, fields that we do not know included."""
    command.connect.ClearField("proxy_to_broker_url")
    return encode_command(command)
