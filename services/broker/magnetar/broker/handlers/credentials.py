"""Credentials of connected clients: renewal when they expire, and the end of those that were revoked."""

from __future__ import annotations

from magnetar.broker import versions
from magnetar.broker.client_endings import EndCode
from magnetar.broker.handlers.client import Client
from magnetar.common.errors import MagnetarError, ProtocolError
from magnetar.common.security.audit import audit
from magnetar.common.security.identity import TLS, TOKEN, Credential
from magnetar.common.wire import commands
from magnetar.common.wire.error_codes import code_of
from magnetar.common.wire.pulsar_pb2 import CommandAuthResponse


def host_of(client: Client) -> str:
    """Return the client's host, without its port."""
    return client.peer.address.rpartition(":")[0]


def refuse(client: Client, error: MagnetarError) -> None:
    """Answer with the error, then close the connection."""
    client.peer.write(commands.error(commands.NO_REQUEST_ID, code_of(error), str(error)))
    client.peer.close(f"{type(error).__name__}: {error}", EndCode.AUTHENTICATION_FAILED)


def check_credentials(client: Client) -> None:
    """Ask for fresh credentials when those of the client have expired; close the connection when it cannot
    renew them.
    """
    credentials = client.credentials
    if credentials is None:
        return
    if credentials.is_being_checked:
        return
    expires_at = credentials.renewed.expires_at
    if expires_at is None or client.services.clock.wall_ms() / 1000 < expires_at:
        return
    if credentials.is_original_believed:
        _end(client, "the credential of a proxy expired, which cannot be renewed for its client")
    elif credentials.renewed.method == TLS:
        _end(client, "its certificate expired, or magnetarTlsConnectionMaxAgeSeconds passed")
    elif not credentials.can_refresh:
        _end(client, "its credential expired, and it cannot renew it")
    elif credentials.challenge_is_out:
        _end(client, "its credential expired, and it did not answer AuthChallenge")
    else:
        credentials.challenge_is_out = True
        client.peer.write(
            commands.auth_challenge(
                versions.SERVER_VERSION,
                client.peer.protocol_version,
                credentials.renewed.method,
                commands.AUTH_REFRESH,
            )
        )


def _end(client: Client, reason: str) -> None:
    """Close a connection whose credentials are no longer good."""
    _audit(client, "closed", reason)
    client.peer.close(reason, EndCode.CREDENTIALS_ENDED)


def _audit(client: Client, outcome: str, reason: str | None) -> None:
    audit("credential refresh", principal=client.principal, outcome=outcome, reason=reason)


def close_if_revoked(client: Client) -> None:
    """Close the connection when its credentials were revoked."""
    credentials, authenticator = client.credentials, client.services.authenticator
    if credentials is None or authenticator is None:
        return
    for identity in (credentials.identity, credentials.original):
        if identity is not None and not authenticator.still_valid(identity):
            _end(client, "its credential was revoked")
            return


async def handle_auth_response(client: Client, command: CommandAuthResponse) -> None:
    """Take fresh credentials. Nothing is answered when they give the same role."""
    credentials = client.credentials
    response = command.response
    if not response.HasField("auth_method_name") or not response.HasField("auth_data"):
        raise ProtocolError("AuthResponse without auth_method_name or auth_data")
    authenticator = client.services.authenticator
    if credentials is None or authenticator is None:
        raise ProtocolError("AuthResponse without a challenge")
    former = credentials.renewed
    if former.method != TOKEN:
        return  # others do not expire, so that nothing is to be renewed
    if credentials.is_being_checked:
        raise ProtocolError("AuthResponse while the one before it is checked")
    credentials.is_being_checked = True
    try:
        fresh = await authenticator.authenticate(
            Credential(former.method, response.auth_data, client.peer.certificate),
            host_of(client),
            asked_first=former.provider,
        )
    except MagnetarError as error:
        _audit(client, "refused", str(error))
        refuse(client, error)
        return
    finally:
        credentials.is_being_checked = False
    credentials.challenge_is_out = False
    if not client.peer.connected:
        return
    if fresh.role != former.role:
        _end(client, "fresh credentials are of another role")
        return
    _audit(client, "accepted", None)
    if credentials.original is None:
        credentials.identity = fresh
    else:
        credentials.original = fresh
