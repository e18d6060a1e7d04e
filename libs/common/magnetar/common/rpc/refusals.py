"""Calls that a gRPC service refuses as calls, whatever they are about: garbage, overload, a wrong version."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from magnetar.common.errors import MagnetarError

Request = TypeVar("Request", bound=Message)


class CallRefused(MagnetarError):
    """The call is ended with `status`; no other client is affected."""

    status: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL


class BadCall(CallRefused):
    """Bytes that are no message of the method, or a message that contradicts itself."""

    status = grpc.StatusCode.INVALID_ARGUMENT


class UnknownMethod(CallRefused):
    """No such method in this version."""

    status = grpc.StatusCode.UNIMPLEMENTED


class TooManyCalls(CallRefused):
    """The bound on concurrent calls is reached."""

    retriable = True
    status = grpc.StatusCode.RESOURCE_EXHAUSTED


class Stopping(CallRefused):
    """The service is starting or stopping; ask another one."""

    retriable = True
    status = grpc.StatusCode.UNAVAILABLE


def parse(kind: type[Request], data: bytes) -> Request:
    """A request out of its bytes. Raises BadCall."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise BadCall(f"the request is no {kind.__name__}: {error}") from None
