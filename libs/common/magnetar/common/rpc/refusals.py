"""Refusals of gRPC calls as such, independent of their purpose: malformed input, overload, a wrong
version.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from magnetar.common.errors import MagnetarError

Request = TypeVar("Request", bound=Message)


class CallRefused(MagnetarError):
    """The call ends with `status`; no other client is affected."""

    status: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL


class BadCall(CallRefused):
    """Bytes that do not parse as the method's message, or a contradictory message."""

    status = grpc.StatusCode.INVALID_ARGUMENT


class UnknownMethod(CallRefused):
    """The method does not exist in this version."""

    status = grpc.StatusCode.UNIMPLEMENTED


class TooManyCalls(CallRefused):
    """The limit of concurrent calls is reached."""

    retriable = True
    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class Stopping(CallRefused):
    """The service is starting or stopping; ask another one."""

    retriable = True
    status = grpc.StatusCode.UNAVAILABLE


def parse(kind: type[Request], data: bytes) -> Request:
    """Parses a request. Raises BadCall."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise BadCall(f"invalid {kind.__name__}: {error}") from None
