"""Errors of the control plane, and their names on the wire."""

from __future__ import annotations

from typing import Final

import grpc
from magnetar.common.errors import BrokerError, ServiceNotReady, TopicBusy, TopicExists, UnsupportedVersion
from magnetar.common.rpc.wire_errors import WireErrors


class BrokerUnreachable(ServiceNotReady):
    """The broker did not answer: it is down, unreachable, starting or stopping.

    After a broken connection the request may have been executed all the same.
    """


class CallTimedOut(BrokerUnreachable):
    """No answer within the call's deadline. The request may or may not have been executed."""


class AnotherRun(ServiceNotReady):
    """The address now belongs to another run of the broker, or to another broker: the registration used is
    stale.
    """


class NobodyLeads(ServiceNotReady):
    """There is no leader, or none is reachable: the caller decides without one."""


class NotInteroperable(UnsupportedVersion):
    """The two releases share no version of the control protocol: upgrade one release at a time."""


class BrokerFailed(BrokerError):
    """The called broker failed without a named error; see its log."""


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
"""Errors and their wire codes."""

to_wire: Final = WIRE.to_wire
from_wire: Final = WIRE.from_wire
