"""Errors between this client and a cluster. Messages say what to do next."""

from __future__ import annotations

from typing import ClassVar, Final

from magnetar.common.errors import MagnetarError
from magnetar.common.wire.pulsar_pb2 import ServerError

RETRIABLE_CODES: Final = frozenset(
    {
        ServerError.MetadataError,
        ServerError.PersistenceError,
        ServerError.ServiceNotReady,
        ServerError.TooManyRequests,
    }
)
"""Broker error codes after which the same request may succeed when retried."""

_NEXT: Final = {
    ServerError.AuthenticationError: "give valid credentials with --token, --auth-plugin or --client-conf",
    ServerError.AuthorizationError: "ask an administrator for the permission, or use other credentials",
    ServerError.TopicNotFound: "create it: magnetar admin topics create",
    ServerError.ConsumerBusy: "another consumer holds the subscription: use another --subscription-name, "
    "or a type that several can share",
    ServerError.ProducerBusy: "another producer holds the topic or this name",
    ServerError.ProducerBlockedQuotaExceededError: "consumers have to catch up first",
    ServerError.IncompatibleSchema: "change the schema as the reason says, or use one that the topic has",
    ServerError.TopicTerminatedError: "the topic takes no more messages",
}


class ClientError(MagnetarError):
    """A client operation failed."""


class ConnectionLost(ClientError):
    """A connection to a broker could not be opened, or ended."""

    retriable: ClassVar[bool] = True


class NoCredentials(ConnectionLost):
    """The supplier of credentials failed: its file cannot be read, or an issuer gives no token."""


class OwnerUnreachable(ConnectionLost):
    """The broker named by a lookup is unreachable; look the topic up again, since another broker will own it
    soon.
    """


class Unreadable(ClientError):
    """The payload of a message cannot be decoded by this client."""


class Undecryptable(Unreadable):
    """The payload of a message cannot be decrypted with the private keys at hand."""


class Refused(ClientError):
    """A broker answered with an error."""

    def __init__(self, code: ServerError.ValueType, message: str, subject: str = "") -> None:
        name = ServerError.Name(code) if code in ServerError.values() else str(code)
        known = (
            code in _NEXT and "create it first" not in message
        )  # The broker's message says what to do next.
        following = f"; {_NEXT[code]}" if known else ""
        super().__init__(f"{subject + ': ' if subject else ''}{message or name} ({name}){following}")
        self.code = code
        self.reason = message

    @property
    def may_pass(self) -> bool:
        """Whether a retry may succeed."""
        return self.code in RETRIABLE_CODES
