"""Authentication of clients that discovery answers itself; brokers authenticate carried clients."""

from __future__ import annotations

import time

from magnetar.common.errors import Unauthorized
from magnetar.common.security.authentication.authenticator import Authenticator
from magnetar.common.security.authorization.config import AuthorizationConfig
from magnetar.common.security.identity import Credential, Identity
from magnetar.common.security.principal import Principal
from magnetar.common.wire.auth_method import method_of
from magnetar.common.wire.pulsar_pb2 import CommandConnect


async def authenticate(
    authenticator: Authenticator,
    authorization: AuthorizationConfig,
    connect: CommandConnect,
    certificate: bytes | None,
    address: str,
) -> tuple[Identity, Principal]:
    """Return the identity and the principal of a client.

    What a proxy says of its client is not believed here, so that a role in proxyRoles, which may not speak
    for itself, is refused. Raises AuthenticationFailed, ServiceNotReady, Unauthorized.
    """
    credential = Credential(method_of(connect), connect.auth_data, certificate)
    identity = await authenticator.authenticate(credential, address.rpartition(":")[0])
    if authorization.enabled and identity.role in authorization.proxy_roles:
        raise Unauthorized("Invalid roles.")
    return identity, Principal(identity.role, None, identity.method, address)


def has_expired(identity: Identity) -> bool:
    """Return whether a credential's time is over. The client is to connect again, with a fresh one."""
    return identity.expires_at is not None and time.time() >= identity.expires_at
