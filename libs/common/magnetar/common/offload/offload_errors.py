"""Errors of the offload service on the wire, and which of them a job may retry."""

from __future__ import annotations

from typing import Final

import grpc
from magnetar.common.errors import (
    BrokerError,
    DataCorruption,
    EntryUnknown,
    EntryUnreadable,
    LedgerError,
    MagnetarError,
    MetadataError,
    NoSuchEntry,
    NoSuchLedger,
    NotEnoughBookies,
    ServiceNotReady,
    UnsupportedFormat,
)
from magnetar.common.offload.offload_refusals import (
    AttemptOver,
    BadLocation,
    CountsDiffer,
    HeldByTransaction,
    NoLedgerToOffload,
    NotWanted,
    OffloadedAlready,
    OffloadRefused,
    OffloadRunning,
    OnlyCopy,
)
from magnetar.common.rpc.wire_errors import WireErrors


class OffloadUnreachable(ServiceNotReady):
    """No broker answers at that address: it is down, unreachable or starting, or has no offload service."""


class OffloadTimedOut(OffloadUnreachable):
    """No answer in time. The step may or may not have been taken; it is safe to retry."""


class OffloadFailed(BrokerError):
    """The broker failed without a named error; see its log."""


WIRE: Final = WireErrors(
    {
        OffloadRefused: grpc.StatusCode.FAILED_PRECONDITION,
        NoLedgerToOffload: grpc.StatusCode.NOT_FOUND,
        NotWanted: grpc.StatusCode.FAILED_PRECONDITION,
        OffloadRunning: grpc.StatusCode.FAILED_PRECONDITION,
        OffloadedAlready: grpc.StatusCode.ALREADY_EXISTS,
        AttemptOver: grpc.StatusCode.FAILED_PRECONDITION,
        CountsDiffer: grpc.StatusCode.FAILED_PRECONDITION,
        HeldByTransaction: grpc.StatusCode.FAILED_PRECONDITION,
        OnlyCopy: grpc.StatusCode.FAILED_PRECONDITION,
        BadLocation: grpc.StatusCode.INVALID_ARGUMENT,
        NoSuchLedger: grpc.StatusCode.NOT_FOUND,
        NoSuchEntry: grpc.StatusCode.OUT_OF_RANGE,
        EntryUnreadable: grpc.StatusCode.DATA_LOSS,
        EntryUnknown: grpc.StatusCode.UNAVAILABLE,
        LedgerError: grpc.StatusCode.INTERNAL,
        DataCorruption: grpc.StatusCode.DATA_LOSS,
        UnsupportedFormat: grpc.StatusCode.FAILED_PRECONDITION,
    },
    unreachable=OffloadUnreachable,
    timed_out=OffloadTimedOut,
    failed=OffloadFailed,
)
"""Error classes and the names and statuses that stand for them."""

to_wire: Final = WIRE.to_wire
from_wire: Final = WIRE.from_wire

_PASSING: Final = (MetadataError, NotEnoughBookies, EntryUnknown)


def may_pass(error: MagnetarError) -> bool:
    """Return whether the same call may succeed later."""
    return error.retriable or isinstance(error, _PASSING)
