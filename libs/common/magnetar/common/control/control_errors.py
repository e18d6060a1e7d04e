"""The errors of the control plane, and how one broker's error becomes the same error with its caller."""

from __future__ import annotations

from typing import Final, NoReturn

import grpc
from magnetar.common.errors import (
    Backpressure,
    BeingChanged,
    BeingDeleted,
    BrokerError,
    InvalidName,
    MagnetarError,
    MetadataError,
    NamespaceNotFound,
    NotAllowed,
    NotEnoughBookies,
    NotSupportedYet,
    OwnershipLost,
    ServiceNotReady,
    StorageError,
    TooManyRequests,
    TopicBusy,
    TopicExists,
    TopicNotFound,
    Unauthorized,
    UnknownOutcome,
    UnsupportedVersion,
)
from magnetar.common.rpc.options import status_line
from magnetar.common.rpc.refusals import CallRefused

REASON_CHARS_MAX: Final = 1_000
"""Of an error's text on the wire."""


class BrokerUnreachable(ServiceNotReady):
    """The broker did not answer: it is gone, cut off, or starting or stopping.

    Where the connection broke meanwhile it may have done what was asked all the same.
    """


class CallTimedOut(BrokerUnreachable):
    """No answer within the call's deadline. Whether the broker did what was asked is unknown."""


class AnotherRun(ServiceNotReady):
    """At that address is another start of the broker, or another broker: what is known of it is old."""


class NobodyLeads(ServiceNotReady):
    """No broker leads now, or none that can be asked: whoever asks decides without one."""


class NotInteroperable(UnsupportedVersion):
    """The two releases have no version of the control protocol in common: upgrade one release at a time."""


class BrokerFailed(BrokerError):
    """The called broker failed in a way that it has no error for; its log says more."""


_STATUS: Final[dict[type[MagnetarError], grpc.StatusCode]] = {
    NamespaceNotFound: grpc.StatusCode.NOT_FOUND,
    TopicNotFound: grpc.StatusCode.NOT_FOUND,
    TopicExists: grpc.StatusCode.ALREADY_EXISTS,
    TopicBusy: grpc.StatusCode.FAILED_PRECONDITION,
    InvalidName: grpc.StatusCode.INVALID_ARGUMENT,
    NotAllowed: grpc.StatusCode.FAILED_PRECONDITION,
    NotSupportedYet: grpc.StatusCode.UNIMPLEMENTED,
    Unauthorized: grpc.StatusCode.PERMISSION_DENIED,
    ServiceNotReady: grpc.StatusCode.UNAVAILABLE,
    BeingChanged: grpc.StatusCode.ABORTED,
    BeingDeleted: grpc.StatusCode.ABORTED,
    BrokerUnreachable: grpc.StatusCode.UNAVAILABLE,
    CallTimedOut: grpc.StatusCode.DEADLINE_EXCEEDED,
    AnotherRun: grpc.StatusCode.FAILED_PRECONDITION,
    NobodyLeads: grpc.StatusCode.UNAVAILABLE,
    NotInteroperable: grpc.StatusCode.FAILED_PRECONDITION,
    TooManyRequests: grpc.StatusCode.RESOURCE_EXHAUSTED,
    OwnershipLost: grpc.StatusCode.ABORTED,
    MetadataError: grpc.StatusCode.UNAVAILABLE,
    UnknownOutcome: grpc.StatusCode.UNKNOWN,
    Backpressure: grpc.StatusCode.RESOURCE_EXHAUSTED,
    NotEnoughBookies: grpc.StatusCode.UNAVAILABLE,
    StorageError: grpc.StatusCode.INTERNAL,
    BrokerFailed: grpc.StatusCode.INTERNAL,
}
"""What travels by name. Other errors travel as the nearest of these that they are."""

_BY_NAME: Final = {kind.__name__: kind for kind in _STATUS}

_BY_STATUS: Final[dict[grpc.StatusCode, type[MagnetarError]]] = {
    grpc.StatusCode.UNAVAILABLE: BrokerUnreachable,
    grpc.StatusCode.CANCELLED: BrokerUnreachable,
    grpc.StatusCode.DEADLINE_EXCEEDED: CallTimedOut,
    grpc.StatusCode.UNIMPLEMENTED: NotSupportedYet,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TooManyRequests,
    grpc.StatusCode.FAILED_PRECONDITION: NotAllowed,
    grpc.StatusCode.INVALID_ARGUMENT: NotAllowed,
    grpc.StatusCode.PERMISSION_DENIED: Unauthorized,
    grpc.StatusCode.UNAUTHENTICATED: Unauthorized,
}
"""For statuses without a name: the transport's own, and those of calls that were refused as such."""


def to_wire(error: Exception) -> tuple[grpc.StatusCode, str]:
    """An error as a status and a name; the name is empty for calls that are refused as such."""
    if isinstance(error, CallRefused):
        return error.status, ""
    kind = next((kind for kind in type(error).__mro__ if kind in _STATUS), BrokerFailed)
    return _STATUS[kind], kind.__name__


def raise_from_wire(status: grpc.StatusCode, name: str, reason: str, call: str) -> NoReturn:
    """Raise what a failed call was told. `call` says which of which broker, for people."""
    kind = _BY_NAME.get(name) or _BY_STATUS.get(status, BrokerFailed)
    if name:
        raise kind(f"{reason} ({call})")
    raise kind(f"{call}: {status_line(status, reason)}")
