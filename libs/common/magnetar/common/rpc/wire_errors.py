"""Errors on gRPC: by class name, and as a status for clients that do not know the name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import grpc
from magnetar.common.errors import (
    Backpressure,
    BeingChanged,
    BeingDeleted,
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
    TopicNotFound,
    Unauthorized,
    UnknownOutcome,
)
from magnetar.common.rpc.options import status_line
from magnetar.common.rpc.refusals import CallRefused

REASON_CHARS_MAX: Final = 1_000
"""Maximum characters of an error text on the wire."""

_OF_ALL: Final[dict[type[MagnetarError], grpc.StatusCode]] = {
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
    StorageError: grpc.StatusCode.INTERNAL,
}
"""Errors that every broker service may return."""


class WireErrors:
    """The errors of one service."""

    def __init__(
        self,
        own: Mapping[type[MagnetarError], grpc.StatusCode],
        *,
        unreachable: type[MagnetarError],
        timed_out: type[MagnetarError],
        failed: type[MagnetarError],
    ) -> None:
        """Creates the mapping. `own` are the errors specific to this service; `failed` stands for errors
        without a name of their own.
        """
        self.statuses: Final = {**_OF_ALL, **own, failed: grpc.StatusCode.INTERNAL}
        """Errors that travel by name. Other errors travel as their nearest base class in here."""
        self._by_name = {kind.__name__: kind for kind in self.statuses}
        self._failed = failed
        # Statuses without a name: those of the transport, and of calls refused as such.
        self._by_status: dict[grpc.StatusCode, type[MagnetarError]] = {
            grpc.StatusCode.UNAVAILABLE: unreachable,
            grpc.StatusCode.CANCELLED: unreachable,
            grpc.StatusCode.DEADLINE_EXCEEDED: timed_out,
            grpc.StatusCode.UNIMPLEMENTED: NotSupportedYet,
            grpc.StatusCode.RESOURCE_EXHAUSTED: TooManyRequests,
            grpc.StatusCode.FAILED_PRECONDITION: NotAllowed,
            grpc.StatusCode.INVALID_ARGUMENT: NotAllowed,
            grpc.StatusCode.PERMISSION_DENIED: Unauthorized,
            grpc.StatusCode.UNAUTHENTICATED: Unauthorized,
        }

    def to_wire(self, error: Exception) -> tuple[grpc.StatusCode, str]:
        """Returns the status and name of an error; the name is empty for calls refused as such."""
        if isinstance(error, CallRefused):
            return error.status, ""
        kind = next((kind for kind in type(error).__mro__ if kind in self.statuses), self._failed)
        return self.statuses[kind], kind.__name__

    def from_wire(self, status: grpc.StatusCode, name: str, reason: str, call: str) -> MagnetarError:
        """Returns the error of a failed call. `call` describes the call and the broker, for messages."""
        kind = self._by_name.get(name) or self._by_status.get(status, self._failed)
        return kind(f"{reason} ({call})" if name else f"{call}: {status_line(status, reason)}")
