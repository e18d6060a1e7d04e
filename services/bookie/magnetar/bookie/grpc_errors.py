"""Refusals of whole gRPC calls: a status with text, a count, and a rate-limited log line.

Errors of a ledger or an entry are answer codes instead; see proto/bookie/v1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import grpc
from magnetar.bookie.identity import Identity, NotThisBookie
from magnetar.bookie.ledger_storage import BadRequest
from magnetar.common.errors import Backpressure, LogFailed, LogFull, MagnetarError, UnsupportedFormat
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.rpc.refusal_log import CHARS_MAX, RefusalLog
from magnetar.common.rpc.refusals import BadCall, CallRefused, parse
from magnetar.ledger.bookie_protocol.bookie_client import PROTOCOL_VERSION
from magnetar.ledger.bookie_protocol.bookie_pb2 import ExpectedBookie
from magnetar.ledger.bookie_protocol.grpc_methods import EXPECTED_KEY, VERSION_KEY
from prometheus_client import Counter

log = get_logger(__name__)

REFUSED: Final = Counter(
    "magnetar_bookie_refused_calls",
    "Calls refused as such, by gRPC status: garbage, unknown methods, later protocols, overload, calls that "
    "are meant for another bookie.",
    ["status"],
    registry=REGISTRY,
)


class OtherVersion(CallRefused):
    """The client's protocol version is not compatible with this bookie's."""

    status = grpc.StatusCode.FAILED_PRECONDITION


_STATUS: Final[dict[type[MagnetarError], grpc.StatusCode]] = {
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    NotThisBookie: grpc.StatusCode.NOT_FOUND,
    UnsupportedFormat: grpc.StatusCode.FAILED_PRECONDITION,
    LogFailed: grpc.StatusCode.UNAVAILABLE,
    LogFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Backpressure: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""gRPC statuses of the errors that the bookie's core raises instead of returning a code."""


def check_version(version: int) -> None:
    """Checks that the version is this one or a neighbor. Raises OtherVersion, or BadCall if it is missing."""
    if version < 1:
        raise BadCall("the first message of an append stream says no protocol_version")
    if abs(version - PROTOCOL_VERSION) > 1:
        raise OtherVersion(
            f"the client speaks version {version} of the bookie protocol, this bookie {PROTOCOL_VERSION}: "
            "only neighboring versions understand each other, upgrade one release at a time"
        )


def check_metadata(metadata: Sequence[tuple[str, str | bytes]] | None, identity: Identity) -> None:
    """Checks that a call's metadata names this bookie and a supported version; either may be absent.

    Raises NotThisBookie, OtherVersion or BadCall.
    """
    for key, value in metadata or ():
        if key == EXPECTED_KEY:
            assert isinstance(value, bytes), "gRPC gives values of keys that end with -bin as bytes"
            identity.require(parse(ExpectedBookie, value))
        if key == VERSION_KEY:
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            if not text.isdecimal():
                raise BadCall(f"{VERSION_KEY} is {text!r}, not a number")
            check_version(int(text))


class Refusals:
    """Ends a server's failed calls with a status, and counts and logs them."""

    def __init__(self) -> None:
        self._told = RefusalLog(log)

    async def refuse(self, context: Any, method: str, error: Exception) -> None:
        """Ends a call with the status of `error`; always raises, as `context.abort` does."""
        status = _status_of(error)
        REFUSED.labels(status.name).inc()
        self._told.note(context, method, status, error)
        await context.abort(status, (str(error) or type(error).__name__)[:CHARS_MAX])


def _status_of(error: Exception) -> grpc.StatusCode:
    if isinstance(error, CallRefused):
        return error.status
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), grpc.StatusCode.INTERNAL)
