"""The typed errors of Magnetar.

One small tree. Each edge (the binary protocol, HTTP, gRPC) maps it once to its own codes, by walking the
class hierarchy; nothing between the edges looks at codes. Messages say what happened to what, and what to do
next. Broken invariants are not in here: they are assertions and stop the process.
"""

from __future__ import annotations

from typing import ClassVar


class MagnetarError(Exception):
    """Root of every error that may reach a caller or a client."""

    retriable: ClassVar[bool] = False
    """True when the same request may succeed later unchanged."""


class ProtocolError(MagnetarError):
    """The peer broke the wire protocol; its connection is closed, no other client is affected."""

    reason: ClassVar[str] = "protocol"
    """Label value of magnetar_protocol_errors_total."""


class ChecksumMismatch(ProtocolError):
    """The CRC32-C that a payload frame carries does not match its bytes."""

    reason = "checksum"


class FrameTooLarge(ProtocolError):
    """A frame announces more bytes than this side accepts."""

    reason = "frame_too_large"


class MalformedFrame(ProtocolError):
    """Lengths that contradict each other, or bytes that are no command."""

    reason = "malformed_frame"


class UnknownCommand(ProtocolError):
    """A command type that this protocol version does not have."""

    reason = "unknown_command"


class InvalidName(MagnetarError):
    """A topic, namespace, tenant, subscription or cluster name that cannot exist."""


class ConfigError(MagnetarError):
    """The configuration cannot be used; the message lists every problem at once."""


class MetadataError(MagnetarError):
    """The metadata store refused or could not answer."""

    retriable = True


class VersionMismatch(MetadataError):
    """A compare-and-set lost: `key` is not at the expected version. Nothing was written."""

    retriable = False

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(f"metadata key {key!r} is at version {actual}, expected {expected}")
        self.key = key
        self.expected = expected
        self.actual = actual


class UnknownOutcome(MetadataError):
    """A write may or may not have happened; re-read the guard key, never retry blindly."""


class WatchLost(MetadataError):
    """A watch fell behind or was compacted away; list the prefix again and watch anew."""


class StorageError(MagnetarError):
    """Something about ledgers or the log under them."""


class LogFailed(StorageError):
    """A write or sync of the log failed; nothing of that group is acknowledged."""

    retriable = True


class LogFull(StorageError):
    """Free disk space is under the reserve; appends resume by themselves when there is space again."""

    retriable = True


class NotEnoughBookies(StorageError):
    """Fewer bookies are up and writable, or answer, than the ledger's quorums need."""

    retriable = True


class Backpressure(StorageError):
    """More bytes are pending than the budget allows; try again once some are confirmed."""

    retriable = True


class DataCorruption(StorageError):
    """Stored bytes fail their checksum or format; they are never served as data."""


class UnsupportedFormat(StorageError):
    """A file, record or metadata value has a version or feature bit this release does not know."""


class LedgerError(StorageError):
    """Something about one ledger."""


class LedgerFenced(LedgerError):
    """Another owner fenced this ledger. For an append in flight its fate is unknown, not 'not written'."""


class LedgerClosed(LedgerError):
    """The ledger was closed; it takes no more entries. Who meets it at a topic met the topic as it closed."""

    retriable = True


class NoSuchLedger(LedgerError):
    """The ledger does not exist, or exists under another key (ids were reused after a restore)."""


class NoSuchEntry(LedgerError):
    """The ledger certainly does not hold this entry."""


class EntryUnreadable(LedgerError):
    """The entry exists but its bytes are damaged on the only copy."""


class EntryUnknown(LedgerError):
    """This store cannot say whether the entry exists (storage contract, section 3, doubt)."""


class OwnershipLost(StorageError):
    """Another owner took the topic over; its connections are closed and clients look it up again."""

    retriable = True


class TopicTerminated(StorageError):
    """The topic was terminated: it takes no more messages, and that is final."""


class CursorLedgerMissing(StorageError):
    """The ledger with a topic's cursors is gone; the topic is not loaded rather than read from 'earliest'."""


class BrokerError(MagnetarError):
    """Raised by a broker to refuse a client request that it understood."""


class TopicNotFound(BrokerError):
    """No such topic, and it may not be created automatically."""


class NamespaceNotFound(TopicNotFound):
    """No such tenant or namespace; these are never created automatically."""


class TopicBusy(BrokerError):
    """Producers, consumers or subscriptions of the topic forbid to delete it without force."""


class TopicExists(BrokerError):
    """A topic with that name is there already, partitioned or not."""


class NamespaceExists(TopicExists):
    """A tenant or namespace with that name is there already."""


class NamespaceNotEmpty(TopicBusy):
    """A namespace with topics, or a tenant with namespaces, cannot be deleted."""


class InvalidPartitions(BrokerError):
    """A number of partitions that a topic cannot have."""


class SubscriptionNotFound(BrokerError):
    """No such subscription, and it may not be created automatically."""


class UnsubscribeRefused(BrokerError):
    """Only the single connected consumer of a subscription may delete it without force."""


class ConsumerNotFound(BrokerError):
    """No consumer with that id on this connection."""


class ConsumerBusy(BrokerError):
    """The subscription has a consumer already, or is of a different type."""

    retriable = True


class TooManyConsumers(ConsumerBusy):
    """The topic, the subscription or one address has as many consumers as it may have."""


class ConsumerAssignFailed(BrokerError):
    """A Key_Shared consumer asks for hash ranges that it cannot have, or there is none left to give it."""


class ProducerBusy(BrokerError):
    """A live producer with that name is connected to the topic, or one that has it alone, or too many."""

    retriable = True


class ProducerBlocked(BrokerError):
    """The topic's backlog is beyond its quota; the producer waits until it is below again."""

    retriable = True


class ProducerQuotaExceeded(BrokerError):
    """The topic's backlog is beyond its quota, and its producers are to fail rather than to wait."""


class ProducerRefused(BrokerError):
    """The producer comes back with messages that were refused again and again; it is to fail them."""


class ProducerFenced(BrokerError):
    """Another producer has the topic alone, or had it since this one did; that is final."""


class EncryptionRequired(BrokerError):
    """A producer or a message that is not encrypted, where everything has to be."""


class NotAllowed(BrokerError):
    """The request is valid and forbidden here; asking again does not help."""


class InvalidPattern(NotAllowed):
    """A regular expression that cannot be compiled, or that names no domain of topics."""


class IncompleteSeek(NotAllowed):
    """A Seek with neither a message id nor a publish time."""


class NotSupportedYet(NotAllowed):
    """Pulsar has this, this version of Magnetar does not."""


class Unauthorized(BrokerError):
    """The principal may not do this."""


class AuthenticationFailed(BrokerError):
    """A credential is missing or not accepted. The text never says why; the log does."""


class UnsupportedVersion(BrokerError):
    """The peer's protocol version is too old."""


class TooManyRequests(BrokerError):
    """A limit on concurrent requests is reached."""

    retriable = True


class ServiceNotReady(BrokerError):
    """The topic or broker is going away or coming up; look it up again."""

    retriable = True


class BeingChanged(ServiceNotReady):
    """Raised during a concurrent creation or change; retry."""


class BeingDeleted(ServiceNotReady):
    """Something of that name is being deleted, and nothing is made in its place before that is done."""
