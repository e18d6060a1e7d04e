"""The errors of the control plane, and how one broker's error becomes the same error with its caller."""

from __future__ import annotations

from typing import Final

import grpc
from magnetar.common.errors import BrokerError, ServiceNotReady, TopicBusy, TopicExists, UnsupportedVersion
from magnetar.common.rpc.wire_errors import WireErrors


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


WIRE: Final = WireErrors(
    {
        TopicExists: grpc.StatusCode.ALREADY_EXISTS,
        TopicBusy: grpc.StatusCode.FAILED_PRECONDITION,
        BrokerUnreachable: grpc.StatusCode.UNAVAILABLE,
        CallTimedOut: grpc.StatusCode.DEADLINE_EXCEEDED,
        AnotherRun: grpc.StatusCode.FAILED_PRECONDITION,
        NobodyLeads: grpc.StatusCode.UNAVAILABLE,
        NotInteroperable: grpc.StatusCode.FAILED_PRECONDITION,
    },
    unreachable=BrokerUnreachable,
    timed_out=CallTimedOut,
    failed=BrokerFailed,
)
"""Errors and their codes on the wire."""

to_wire: Final = WIRE.to_wire
from_wire: Final = WIRE.from_wire
