"""Errors of the client: one tree, with a class for each answer of a broker that applications tell apart.

    ClientError
        Refused                 a broker answered with an error; `code` has its number
            AuthenticationFailed, NotAuthorized, TopicNotFound, SubscriptionNotFound, TopicTerminated,
            ConsumerBusy, ProducerBusy, ProducerFenced, QuotaExceeded, IncompatibleSchema, InvalidTopic,
            NotAllowed, TransactionConflict, Overloaded
        ConnectionLost          a connection could not be opened, or ended
            NoCredentials, OwnerUnreachable
        OperationTimeout        an operation took longer than its limit
        SendTimeout             a message has no receipt in time; it may be stored or not
        QueueFull, MemoryLimitReached, MessageTooLarge
        Unreadable, Undecryptable, SchemaError
        Closed, WrongLoop, Forked
        TransactionEnded

Messages say what is wrong and what to do next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    ServerError.AuthenticationError: "give valid credentials",
    ServerError.AuthorizationError: "ask an administrator for the permission, or use other credentials",
    ServerError.TopicNotFound: "create it: magnetar admin topics create",
    ServerError.ConsumerBusy: "another consumer holds the subscription: use another subscription name, "
    "or a type that several can share",
    ServerError.ProducerBusy: "another producer holds the topic or this name",
    ServerError.ProducerBlockedQuotaExceededError: "if the backlog quota is reached, consumers have to "
    "catch up first",
    ServerError.ProducerBlockedQuotaExceededException: "if the backlog quota is reached, consumers have to "
    "catch up first",
    ServerError.IncompatibleSchema: "change the schema as the reason says, or use one that the topic has",
    ServerError.TopicTerminatedError: "the topic takes no more messages",
    ServerError.ProducerFenced: "a newer exclusive producer holds the topic",
}


_PARTITION: Final = re.compile(r"([^:]+://([^/]+/[^/]+)/.+)-partition-[0-9]+", re.DOTALL)


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


class OperationTimeout(ClientError):
    """An operation did not finish within its time; the error that was retried until then is its cause."""

    retriable: ClassVar[bool] = True


class SendTimeout(OperationTimeout):
    """A message was not confirmed in time. It may be stored or not: with deduplication, send it again under
    the same producer name and sequence id.
    """


class Closed(ClientError):
    """The client, producer, consumer or reader is closed."""


class WrongLoop(ClientError):
    """The client is used from another event loop than the one it was created on."""


class Forked(ClientError):
    """The client is used in a process forked from the one that created it."""


class QueueFull(ClientError):
    """The producer has as many unconfirmed messages as it may have."""

    retriable: ClassVar[bool] = True


class MemoryLimitReached(QueueFull):
    """Unconfirmed messages of all producers of the client take the memory that they may take."""


class MessageTooLarge(ClientError):
    """A message has more bytes than the broker takes, and chunking is off."""


class Unreadable(ClientError):
    """The payload of a message cannot be decoded by this client."""


class Undecryptable(Unreadable):
    """The payload of a message cannot be decrypted with the private keys at hand."""


class SchemaError(ClientError):
    """A value does not fit its schema, a payload does not fit the schema it was written with, or a class or
    definition makes no schema.
    """


class TransactionEnded(ClientError):
    """The transaction has ended with the other action, or is not known any more."""

    def __init__(self, message: str, *, known: bool) -> None:
        """`known`: it ended with the other action; otherwise that is forgotten, or it never began."""
        super().__init__(message)
        self.known = known


class Refused(ClientError):
    """A broker answered with an error."""

    def __init__(self, code: ServerError.ValueType, message: str, subject: str = "") -> None:
        """`subject` names what was asked for, such as a topic."""
        name = ServerError.Name(code) if code in ServerError.values() else str(code)
        # A broker's own message may say what to do next.
        known = code in _NEXT and "create it first" not in message
        following = f"; {_NEXT[code]}" if known else ""
        if code == ServerError.TopicNotFound and (partition := _PARTITION.fullmatch(subject)):
            # A partition is not created by itself.
            following = (
                f"; {partition[1]} has fewer partitions or none: `magnetar admin topics "
                f"list-partitioned-topics {partition[2]}` lists topics with partitions"
            )
        super().__init__(f"{subject + ': ' if subject else ''}{message or name} ({name}){following}")
        self.code = code
        self.reason = message

    @property
    def may_pass(self) -> bool:
        """Whether a retry may succeed."""
        return self.code in RETRIABLE_CODES


class AuthenticationFailed(Refused):
    """The credentials are not accepted."""


class NotAuthorized(Refused):
    """The role of these credentials may not do that."""


class TopicNotFound(Refused):
    """The topic does not exist, and is not created by clients."""


class SubscriptionNotFound(Refused):
    """The subscription does not exist."""


class TopicTerminated(Refused):
    """The topic was terminated and takes no more messages."""


class ConsumerBusy(Refused):
    """The subscription has a consumer that excludes this one."""


class ProducerBusy(Refused):
    """Another producer has the name, or holds the topic exclusively."""


class ProducerFenced(Refused):
    """A newer exclusive producer took the topic; this one never sends again."""


class QuotaExceeded(Refused):
    """The backlog of the topic has its largest size."""


class IncompatibleSchema(Refused):
    """The topic does not accept the schema."""


class InvalidTopic(Refused):
    """The broker does not accept the name of the topic."""


class NotAllowed(Refused):
    """The request is valid, but not allowed here."""


class TransactionConflict(Refused):
    """Another transaction has acknowledged the message, or it is acknowledged already."""


class Overloaded(Refused):
    """The broker has too many requests, or is not ready; the request may succeed later."""

    retriable: ClassVar[bool] = True


_CLASSES: Final[Mapping[ServerError.ValueType, type[Refused]]] = {
    ServerError.AuthenticationError: AuthenticationFailed,
    ServerError.AuthorizationError: NotAuthorized,
    ServerError.TopicNotFound: TopicNotFound,
    ServerError.SubscriptionNotFound: SubscriptionNotFound,
    ServerError.TopicTerminatedError: TopicTerminated,
    ServerError.ConsumerBusy: ConsumerBusy,
    ServerError.ProducerBusy: ProducerBusy,
    ServerError.ProducerFenced: ProducerFenced,
    ServerError.ProducerBlockedQuotaExceededError: QuotaExceeded,
    ServerError.ProducerBlockedQuotaExceededException: QuotaExceeded,
    ServerError.IncompatibleSchema: IncompatibleSchema,
    ServerError.InvalidTopicName: InvalidTopic,
    ServerError.NotAllowedError: NotAllowed,
    ServerError.TransactionConflict: TransactionConflict,
    ServerError.TooManyRequests: Overloaded,
    ServerError.ServiceNotReady: Overloaded,
}


def refusal(code: ServerError.ValueType, message: str, subject: str = "") -> Refused:
    """Returns the error of the class for a broker's code; Refused itself for codes without one."""
    return _CLASSES.get(code, Refused)(code, message, subject)
