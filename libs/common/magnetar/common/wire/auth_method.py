"""The authentication method that a client names in its Connect."""

from __future__ import annotations

from magnetar.common.security.identity import NONE
from magnetar.common.wire.pulsar_pb2 import AuthMethod, CommandConnect


def method_of(connect: CommandConnect) -> str:
    """Return the method: by its name, or by the enum of old clients; "none" when neither is given."""
    if connect.HasField("auth_method_name"):
        return connect.auth_method_name
    if connect.HasField("auth_method"):
        return AuthMethod.Name(connect.auth_method).removeprefix("AuthMethod").lower()
    return NONE
