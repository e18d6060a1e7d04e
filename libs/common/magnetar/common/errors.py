"""Magnetar's typed errors.

Each edge (the binary protocol, HTTP, gRPC) maps this tree once to its own codes by walking the class
hierarchy; code between the edges never handles codes. Messages say what happened, to which object, and what
to do next. Broken invariants are assertions, not errors, and stop the process.
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
    """Contradictory lengths in a frame, or bytes that do not parse as a command."""

    reason = "malformed_frame"


class UnknownCommand(ProtocolError):
    """A command type that is not in this protocol version."""

    reason = "unknown_command"


class InvalidName(MagnetarError):
    """An invalid name of a topic, namespace, tenant, subscription or cluster."""


class ConfigError(MagnetarError):
    """The configuration is invalid; the message lists every problem."""


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
    """Base of errors of ledgers and of the log below them."""


class LogFailed(StorageError):
    """A write or sync of the log failed; nothing of that group is acknowledged."""

    retriable = True


class LogFull(StorageError):
    """Free disk space is under the reserve; appends resume by themselves when there is space again."""

    retriable = True


class NotEnoughBookies(StorageError):
    """Fewer bookies are available or answering than the ledger's quorums require."""

    retriable = True


class Backpressure(StorageError):
    """More bytes are pending than the budget allows; try again once some are confirmed."""

    retriable = True


class DataCorruption(StorageError):
    """Stored bytes fail their checksum or format; they are never served as data."""


class UnsupportedFormat(StorageError):
    """A file, record or metadata value has a version or feature bit this release does not know."""


class LedgerError(StorageError):
    """Base of errors of a single ledger."""


class LedgerFenced(LedgerError):
    """Another owner fenced this ledger. The outcome of an append in flight is unknown, not 'not written'."""


class LedgerClosed(LedgerError):
    """The ledger is closed and accepts no entries. On a topic it means that the topic was closing."""

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
    """Another owner took over the topic; its connections are closed and clients look it up again."""

    retriable = True


class TopicTerminated(StorageError):
    """The topic was terminated: it accepts no more messages, permanently."""


class CompactionRunning(StorageError):
    """The topic is being compacted, or its compacted view removed, already."""

    retriable = True


class CursorLedgerMissing(StorageError):
    """The ledger with a topic's cursors is gone; the topic is not loaded rather than read from 'earliest'."""


class BrokerError(MagnetarError):
    """Raised by a broker to refuse a client request that it understood."""


class TopicNotFound(BrokerError):
    """The topic does not exist and may not be created automatically."""


class NamespaceNotFound(TopicNotFound):
    """The tenant or namespace does not exist; neither is created automatically."""


class TopicBusy(BrokerError):
    """The topic has producers, consumers or subscriptions, so it cannot be deleted without force."""


class TopicExists(BrokerError):
    """A topic with that name already exists, partitioned or not."""


class NamespaceExists(TopicExists):
    """A tenant or namespace with that name already exists."""


class NamespaceNotEmpty(TopicBusy):
    """A namespace with topics, or a tenant with namespaces, cannot be deleted."""


class InvalidPartitions(BrokerError):
    """An invalid number of partitions."""


class SubscriptionNotFound(BrokerError):
    """The subscription does not exist and may not be created automatically."""


class UnsubscribeRefused(BrokerError):
    """Only the single connected consumer of a subscription may delete it without force."""


class ConsumerNotFound(BrokerError):
    """No consumer with that id on this connection."""


class ConsumerBusy(BrokerError):
    """The subscription already has a consumer, or has a different type."""

    retriable = True


class TooManyConsumers(ConsumerBusy):
    """The topic, the subscription or one client address has reached its consumer limit."""


class ConsumerAssignFailed(BrokerError):
    """A Key_Shared consumer requested hash ranges that are unavailable, or no hash range is left for it."""


class ProducerBusy(BrokerError):
    """The topic has a connected producer of that name, an exclusive producer, or its maximum number of
    producers.
    """

    retriable = True


class ProducerBlocked(BrokerError):
    """The topic's backlog exceeds its quota; the producer waits until it is below again."""

    retriable = True


class ProducerQuotaExceeded(BrokerError):
    """The topic's backlog exceeds its quota, and the policy makes producers fail instead of wait."""


class ProducerRefused(BrokerError):
    """The producer reconnected with messages that were refused repeatedly; it must fail them."""


class ProducerFenced(BrokerError):
    """Another producer has, or has had, exclusive access to the topic since this one connected; this is
    final.
    """


class EncryptionRequired(BrokerError):
    """A producer or message is not encrypted where encryption is required."""


class NotAllowed(BrokerError):
    """The request is valid but forbidden here; a retry does not help."""


class InvalidPattern(NotAllowed):
    """An invalid regular expression, or one that selects no topic domain."""


class IncompleteSeek(NotAllowed):
    """A Seek with neither a message id nor a publish time."""


class NotSupportedYet(NotAllowed):
    """A feature of Pulsar that this version of Magnetar does not have."""


class TransactionNotFound(BrokerError):
    """The coordinator does not know the transaction: it never began, it is over and forgotten, or it is not
    the caller's.
    """


class InvalidTxnStatus(BrokerError):
    """The transaction is not in a state that allows the request; an outcome never changes."""


class TransactionConflict(BrokerError):
    """The messages are acknowledged, or another transaction is about to acknowledge them."""


class TransactionCoordinatorNotFound(BrokerError):
    """The broker does not run this transaction coordinator; clients look it up again."""

    retriable = True


class TransactionNotAllowed(NotAllowed):
    """Transactions are off here, or the transaction is over in this topic."""


class IncompatibleSchema(BrokerError):
    """The topic's compatibility strategy does not take the schema, or the topic requires one."""


class InvalidSchema(IncompatibleSchema):
    """The data of a schema is not a definition of its type."""


class Unauthorized(BrokerError):
    """The principal is not authorized for this operation."""


class AuthenticationFailed(BrokerError):
    """A credential is missing or not accepted. The text never says why; the log does."""


class UnsupportedVersion(BrokerError):
    """The peer's protocol version is too old."""


class TooManyRequests(BrokerError):
    """A limit on concurrent requests is reached."""

    retriable = True


class ServiceNotReady(BrokerError):
    """The topic or broker is closing or starting; look it up again."""

    retriable = True


class TooManyTransactions(ServiceNotReady):
    """The coordinator has its maximum of open transactions, or its log is behind; retry later."""


class BeingChanged(ServiceNotReady):
    """Raised during a concurrent creation or change; retry."""


class BeingDeleted(ServiceNotReady):
    """An object of that name is being deleted; it can be created again once the deletion is done."""
