"""Connect: the first command of every connection, with the client's credentials; and Ping, Pong."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from magnetar.broker import versions
from magnetar.broker.handlers.client import Client, ConnectState, Credentials
from magnetar.broker.handlers.credentials import close_if_revoked, host_of, refuse
from magnetar.common.errors import (
    AuthenticationFailed,
    MagnetarError,
    ProtocolError,
    ServiceNotReady,
    Unauthorized,
)
from magnetar.common.obs.logs import get_logger
from magnetar.common.security.audit import audit
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.identity import NONE, Credential
from magnetar.common.security.principal import Principal
from magnetar.common.security.proxy_roles import role_problem
from magnetar.common.wire import commands
from magnetar.common.wire.auth_method import method_of
from magnetar.common.wire.pulsar_pb2 import (
    CommandConnect,
    CommandPing,
    CommandPong,
    FeatureFlags,
)

log = get_logger(__name__)

CLIENT_VERSION_MAX: Final = 256
"""Maximum characters kept of a client's version; statistics show it with each producer and consumer."""

METHOD_CHARS_MAX: Final = 80
"""Maximum characters of a method's name, which clients choose, in the audit log."""

ROLE_CHARS_MAX: Final = 1024
"""Longest role that a proxy may name."""


def handle_connect(client: Client, command: CommandConnect) -> Coroutine[Any, Any, None] | None:
    """Check the credentials, then answer Connected with what both sides support.

    With authentication off, credentials are not looked at.
    """
    if client.state is not ConnectState.START:
        raise ProtocolError("Connect was sent twice on one connection")
    authenticator = client.services.authenticator
    if authenticator is None:
        _connect(client, command)
        return None
    client.state = ConnectState.CONNECTING
    return _authenticate(client, command, authenticator)


async def _authenticate(client: Client, command: CommandConnect, authenticator: Authenticator) -> None:
    try:
        credentials, original = await _identify(client, command, authenticator)
        _check_roles(client, command, credentials.identity.role, original)
    except (AuthenticationFailed, ServiceNotReady, Unauthorized) as error:
        audit(
            "connect",
            principal=Principal(None, None, method_of(command)[:METHOD_CHARS_MAX], client.peer.address),
            outcome="refused",
            reason=str(error),
        )
        refuse(client, error)
        return
    except Exception as error:
        log.exception("credentials could not be checked", peer=client.peer.address)
        refuse(client, MagnetarError(f"internal error: {type(error).__name__}"))
        return
    if not client.peer.connected:
        return
    client.credentials = credentials
    identity = credentials.identity
    client.principal = Principal(identity.role, original, identity.method, client.peer.address)
    close_if_revoked(client)  # a list may have changed while the credentials were checked
    if client.peer.connected:
        audit("connect", principal=client.principal, outcome="accepted")
        _connect(client, command)


def _connect(client: Client, command: CommandConnect) -> None:
    client.state = ConnectState.CONNECTED
    client.connected = True
    if client.on_connected is not None:
        client.on_connected()
    client.client_version = command.client_version[:CLIENT_VERSION_MAX]
    version = client.peer.protocol_version = min(command.protocol_version, commands.PROTOCOL_VERSION)
    client.understands_entry_metadata = (
        version >= versions.ENTRY_METADATA and command.feature_flags.supports_broker_entry_metadata
    )
    config = client.services.config
    client.peer.write(
        commands.connected(
            server_version=versions.SERVER_VERSION,
            protocol_version=version,
            max_message_size=config.publish.message_bytes_max,
            feature_flags=FeatureFlags(
                supports_topic_watchers=config.topics.pattern_evaluation,
                supports_get_partitioned_metadata_without_auto_creation=True,
            ),
        )
    )
    log.debug("client connected", peer=client.peer.address, client_version=client.client_version)


async def _identify(
    client: Client, command: CommandConnect, authenticator: Authenticator
) -> tuple[Credentials, str | None]:
    """The accepted credentials, and the role on whose behalf a proxy connects.

    Raises AuthenticationFailed, ServiceNotReady.
    """
    host = host_of(client)
    method = method_of(command)
    identity = await authenticator.authenticate(
        Credential(method, command.auth_data, client.peer.certificate), host
    )
    can_refresh = command.feature_flags.supports_auth_refresh
    named = command.original_principal or None
    if named is None or not authenticator.has_method(method):
        return Credentials(identity, None, False, can_refresh), None
    if not client.services.config.authentication.original_auth_data:
        if len(named) > ROLE_CHARS_MAX:
            raise AuthenticationFailed(f"an original principal of {len(named)} characters")
        return Credentials(identity, None, True, can_refresh), named
    original_method = command.original_auth_method or NONE
    # The client's certificate is not at hand: that of this connection is the proxy's.
    original = await authenticator.authenticate(
        Credential(original_method, command.original_auth_data.encode()), host
    )
    if not authenticator.has_method(original_method):
        # An anonymous client behind a proxy: neither role may give it more than the anonymous one has.
        return Credentials(original, None, False, can_refresh), None
    return Credentials(identity, original, False, can_refresh), original.role


def _check_roles(client: Client, command: CommandConnect, role: str, original: str | None) -> None:
    proxy_roles = client.services.proxy_roles
    if proxy_roles is None:
        return
    is_proxy = command.HasField("proxy_version")
    problem = role_problem(role, original, proxy_roles, may_repeat=False, is_proxy=is_proxy)
    if problem is not None:
        count = client.services.invalid_roles.note(client.services.clock.monotonic())
        if count:
            log.info("invalid roles", peer=client.peer.address, role=role, reason=problem, connections=count)
        raise Unauthorized("Invalid roles.")


def handle_ping(client: Client, command: CommandPing) -> None:
    client.peer.write(commands.PONG)


def handle_pong(client: Client, command: CommandPong) -> None:
    """Does nothing: the transport counts any bytes as a sign of life."""
