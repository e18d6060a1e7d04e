"""Connect: the first command of every connection, which declares its purpose."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from magnetar.common.errors import AuthenticationFailed, ProtocolError
from magnetar.common.security.identity import TLS
from magnetar.common.wire import commands
from magnetar.common.wire.auth_method import method_of
from magnetar.common.wire.frame import MESSAGE_BYTES_MAX, encode_command
from magnetar.common.wire.pulsar_pb2 import BaseCommand, FeatureFlags

NAME: Final = "Magnetar discovery"
"""Prefix of the version string of every discovery release."""

VERSION: Final = f"{NAME} {version('magnetar-discovery')}"

_OF_PROXIES: Final = ("original_principal", "original_auth_data", "original_auth_method", "proxy_version")
"""Fields of Connect by which a proxy speaks for its client."""

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
    """Return the response for a lookup connection."""
    return commands.connected(
        server_version=VERSION,
        protocol_version=min(command.connect.protocol_version, commands.PROTOCOL_VERSION),
        max_message_size=MESSAGE_BYTES_MAX,
        feature_flags=_FLAGS,
    )


def carry_credentials(command: BaseCommand, certificate: bytes | None, *, as_proxy: bool) -> float | None:
    """Make a client's Connect one that may go on to a broker.

    Discovery carries credentials and vouches for nothing: what only a proxy may say is removed. The method
    tls is the exception, because the client's TLS ends here: with `as_proxy`, the link shows discovery's own
    certificate, and the client's role (from `certificate`, DER) goes on as the original principal. Otherwise
    the client would become discovery. Returns when such a certificate expires, in seconds since 1970 UTC, as
    brokers cannot know it; None for other methods. Raises AuthenticationFailed when the method is tls and
    cannot go on.
    """
    connect = command.connect
    for name in _OF_PROXIES:
        connect.ClearField(name)
    if method_of(connect) != TLS:
        return None
    if certificate is None:
        raise AuthenticationFailed("method tls needs a client certificate that this service trusts")
    if not as_proxy:
        raise AuthenticationFailed("method tls cannot be carried to a broker; use a token")
    role, expires_at = _read(certificate)
    connect.ClearField("auth_method")
    connect.auth_method_name, connect.auth_data = TLS, b""
    connect.original_principal, connect.original_auth_method = role, TLS
    connect.proxy_version = VERSION
    return expires_at


def role_of(certificate: bytes) -> str:
    """Return the role in a client's verified certificate (DER). Raises AuthenticationFailed without one."""
    return _read(certificate)[0]


def _read(certificate: bytes) -> tuple[str, float]:
    from magnetar.common.security.authentication.provider import Refusal
    from magnetar.common.security.authentication.tls import read_certificate

    try:
        return read_certificate(certificate)
    except Refusal as error:
        raise AuthenticationFailed("Failed to authenticate") from error


def passed_on(command: BaseCommand) -> bytes:
    """Return the client's Connect command for the broker, which answers it; unknown fields are kept."""
    command.connect.ClearField("proxy_to_broker_url")
    return encode_command(command)
