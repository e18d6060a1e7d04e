"""How an error of the offload service travels, and what a job may expect to pass by itself."""

from __future__ import annotations

from typing import Final, NoReturn

import grpc
from magnetar.common.errors import (
    Backpressure,
    BeingChanged,
    BeingDeleted,
    BrokerError,
    DataCorruption,
    EntryUnknown,
    EntryUnreadable,
    InvalidName,
    LedgerError,
    MagnetarError,
    MetadataError,
    NamespaceNotFound,
    NoSuchEntry,
    NoSuchLedger,
    NotAllowed,
    NotEnoughBookies,
    NotSupportedYet,
    OwnershipLost,
    ServiceNotReady,
    StorageError,
    TooManyRequests,
    TopicNotFound,
    Unauthorized,
    UnknownOutcome,
    UnsupportedFormat,
)
from magnetar.common.offload.offload_refusals import (
    AttemptOver,
    BadLocation,
    CountsDiffer,
    NoLedgerToOffload,
    NotWanted,
    OffloadedAlready,
    OffloadRefused,
    OffloadRunning,
    OnlyCopy,
)
from magnetar.common.rpc.options import status_line
from magnetar.common.rpc.refusals import CallRefused

REASON_CHARS_MAX: Final = 1_000
"""Of an error's text on the wire."""


class OffloadUnreachable(ServiceNotReady):
    """No broker answers at that address: it is gone, cut off, starting, or no offload service is there."""


class OffloadTimedOut(OffloadUnreachable):
    """No answer in time. Whether the step was taken is unknown; it may be taken again."""


class OffloadFailed(BrokerError):
    """The broker failed in a way that it has no error for; its log says more."""


_STATUS: Final[dict[type[MagnetarError], grpc.StatusCode]] = {
    OffloadRefused: grpc.StatusCode.FAILED_PRECONDITION,
    NoLedgerToOffload: grpc.StatusCode.NOT_FOUND,
    NotWanted: grpc.StatusCode.FAILED_PRECONDITION,
    OffloadRunning: grpc.StatusCode.FAILED_PRECONDITION,
    OffloadedAlready: grpc.StatusCode.ALREADY_EXISTS,
    AttemptOver: grpc.StatusCode.FAILED_PRECONDITION,
    CountsDiffer: grpc.StatusCode.FAILED_PRECONDITION,
    OnlyCopy: grpc.StatusCode.FAILED_PRECONDITION,
    BadLocation: grpc.StatusCode.INVALID_ARGUMENT,
    NamespaceNotFound: grpc.StatusCode.NOT_FOUND,
    TopicNotFound: grpc.StatusCode.NOT_FOUND,
    InvalidName: grpc.StatusCode.INVALID_ARGUMENT,
    NotAllowed: grpc.StatusCode.FAILED_PRECONDITION,
    NotSupportedYet: grpc.StatusCode.UNIMPLEMENTED,
    Unauthorized: grpc.StatusCode.PERMISSION_DENIED,
    ServiceNotReady: grpc.StatusCode.UNAVAILABLE,
    BeingChanged: grpc.StatusCode.ABORTED,
    BeingDeleted: grpc.StatusCode.ABORTED,
    TooManyRequests: grpc.StatusCode.RESOURCE_EXHAUSTED,
    OwnershipLost: grpc.StatusCode.ABORTED,
    MetadataError: grpc.StatusCode.UNAVAILABLE,
    UnknownOutcome: grpc.StatusCode.UNKNOWN,
    Backpressure: grpc.StatusCode.RESOURCE_EXHAUSTED,
    NotEnoughBookies: grpc.StatusCode.UNAVAILABLE,
    NoSuchLedger: grpc.StatusCode.NOT_FOUND,
    NoSuchEntry: grpc.StatusCode.OUT_OF_RANGE,
    EntryUnreadable: grpc.StatusCode.DATA_LOSS,
    EntryUnknown: grpc.StatusCode.UNAVAILABLE,
    LedgerError: grpc.StatusCode.INTERNAL,
    DataCorruption: grpc.StatusCode.DATA_LOSS,
    UnsupportedFormat: grpc.StatusCode.FAILED_PRECONDITION,
    StorageError: grpc.StatusCode.INTERNAL,
    OffloadFailed: grpc.StatusCode.INTERNAL,
}
"""What travels by name. Other errors travel as the nearest of these that they are."""

_BY_NAME: Final = {kind.__name__: kind for kind in _STATUS}

_BY_STATUS: Final[dict[grpc.StatusCode, type[MagnetarError]]] = {
    grpc.StatusCode.UNAVAILABLE: OffloadUnreachable,
    grpc.StatusCode.CANCELLED: OffloadUnreachable,
    grpc.StatusCode.DEADLINE_EXCEEDED: OffloadTimedOut,
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
    kind = next((kind for kind in type(error).__mro__ if kind in _STATUS), OffloadFailed)
    return _STATUS[kind], kind.__name__


def from_wire(status: grpc.StatusCode, name: str, reason: str, call: str) -> MagnetarError:
    """The error that a failed call was told. `call` says which of which broker, for people."""
    kind = _BY_NAME.get(name) or _BY_STATUS.get(status, OffloadFailed)
    return kind(f"{reason} ({call})" if name else f"{call}: {status_line(status, reason)}")


def raise_from_wire(status: grpc.StatusCode, name: str, reason: str, call: str) -> NoReturn:
    """Raise what `from_wire` says."""
    raise from_wire(status, name, reason, call)


_PASSING: Final = (MetadataError, NotEnoughBookies, EntryUnknown)


def may_pass(error: MagnetarError) -> bool:
    """Whether the same call may succeed a moment later."""
    return error.retriable or isinstance(error, _PASSING)
