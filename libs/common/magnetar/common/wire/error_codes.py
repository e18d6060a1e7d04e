"""Mapping from typed errors to the wire's ServerError codes.

A class not in the table has the code of its nearest ancestor; an exception that is not a MagnetarError is a
bug and becomes UnknownError. Codes are chosen by the clients' reaction: ServiceNotReady, PersistenceError,
MetadataError and TooManyRequests make them retry, the others fail the call.
"""

from __future__ import annotations

from typing import Final

from magnetar.common import errors
from magnetar.common.wire.pulsar_pb2 import ServerError

_CODES: Final[dict[type[Exception], ServerError.ValueType]] = {
    errors.MagnetarError: ServerError.UnknownError,
    errors.ProtocolError: ServerError.NotAllowedError,
    errors.ChecksumMismatch: ServerError.ChecksumError,
    errors.InvalidName: ServerError.InvalidTopicName,
    errors.MetadataError: ServerError.MetadataError,
    errors.StorageError: ServerError.PersistenceError,
    errors.Backpressure: ServerError.TooManyRequests,
    errors.OwnershipLost: ServerError.ServiceNotReady,
    errors.LedgerClosed: ServerError.ServiceNotReady,  # the topic is closing: look it up again
    errors.TopicTerminated: ServerError.TopicTerminatedError,
    errors.BrokerError: ServerError.UnknownError,
    errors.TopicNotFound: ServerError.TopicNotFound,
    # Requested by administrators only; no client waits for these.
    errors.TopicBusy: ServerError.NotAllowedError,
    errors.TopicExists: ServerError.NotAllowedError,
    errors.InvalidPartitions: ServerError.NotAllowedError,
    errors.SubscriptionNotFound: ServerError.SubscriptionNotFound,
    errors.UnsubscribeRefused: ServerError.MetadataError,  # as Apache Pulsar answers it
    errors.ConsumerNotFound: ServerError.MetadataError,  # as Apache Pulsar answers it
    errors.IncompleteSeek: ServerError.MetadataError,  # as Apache Pulsar answers it
    errors.ConsumerBusy: ServerError.ConsumerBusy,
    errors.ConsumerAssignFailed: ServerError.ConsumerAssignError,
    errors.ProducerBusy: ServerError.ProducerBusy,
    errors.ProducerBlocked: ServerError.ProducerBlockedQuotaExceededError,
    errors.ProducerQuotaExceeded: ServerError.ProducerBlockedQuotaExceededException,
    # Makes clients fail unanswered messages and try to open the producer again.
    errors.ProducerRefused: ServerError.ProducerBlockedQuotaExceededException,
    errors.ProducerFenced: ServerError.ProducerFenced,
    errors.EncryptionRequired: ServerError.MetadataError,  # as Apache Pulsar answers it
    errors.NotAllowed: ServerError.NotAllowedError,
    errors.TransactionNotFound: ServerError.TransactionNotFound,
    errors.InvalidTxnStatus: ServerError.InvalidTxnStatus,
    errors.TransactionConflict: ServerError.TransactionConflict,
    errors.TransactionCoordinatorNotFound: ServerError.TransactionCoordinatorNotFound,
    errors.IncompatibleSchema: ServerError.IncompatibleSchema,
    errors.InvalidPattern: ServerError.InvalidTopicName,  # as Apache Pulsar answers it
    errors.AuthenticationFailed: ServerError.AuthenticationError,
    errors.Unauthorized: ServerError.AuthorizationError,
    errors.UnsupportedVersion: ServerError.UnsupportedVersionError,
    errors.TooManyRequests: ServerError.TooManyRequests,
    errors.ServiceNotReady: ServerError.ServiceNotReady,
}


def code_of(error: Exception) -> ServerError.ValueType:
    """Returns the wire code of an error."""
    for ancestor in type(error).__mro__:
        code = _CODES.get(ancestor)
        if code is not None:
            return code
    return ServerError.UnknownError
