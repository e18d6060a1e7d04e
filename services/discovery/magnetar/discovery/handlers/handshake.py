"""Connect: the first command of every connection, which declares its purpose."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from magnetar.common.errors import ProtocolError
from magnetar.common.wire import commands
from magnetar.common.wire.frame import MESSAGE_BYTES_MAX, encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, FeatureFlags

NAME: Final = "Magnetar discovery"
"""Prefix of the version string of every discovery release."""

VERSION: Final = f"{NAME} {version('magnetar-discovery')}"

_FLAGS: Final = FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)
"""Supported features. Topic watches, for example, need a broker."""


def check_connect(command: BaseCommand) -> str:
    """Return the broker that the client wants to be connected to; empty for lookups.

    Raises ProtocolError when the command is not Connect.
    """
    if command.type != BaseCommand.CONNECT:
        raise ProtocolError(f"the first command is {BaseCommand.Type.Name(command.type)}, not CONNECT")
    return command.connect.proxy_to_broker_url


def connected(command: BaseCommand) -> bytes:
    """Return the response for a lookup connection. Credentials are ignored: there is no authentication."""
    return commands.connected(
        server_version=VERSION,
        protocol_version=min(command.connect.protocol_version, commands.PROTOCOL_VERSION),
        max_message_size=MESSAGE_BYTES_MAX,
        feature_flags=_FLAGS,
    )


def passed_on(command: BaseCommand) -> bytes:
    """Return the client's Connect command for the broker, which answers it; unknown fields are kept."""
    command.connect.ClearField("proxy_to_broker_url")
    return encode_command(command)
