"""HTTP statuses of typed errors; bodies are Pulsar's: `{"reason": "..."}`.

The statuses are those of Pulsar's admin API where it has the case: 404 for what does not exist, 412 for an
invalid name, 409 for a conflict, 405 for what is not allowed here, 503 for what may succeed later.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from magnetar.common import errors
from magnetar.common.http.error_bodies import refused
from magnetar.common.obs.metrics import REGISTRY
from prometheus_client import Counter

_FAILED: Final = Counter(
    "magnetar_http_requests_failed",
    "HTTP requests answered with an error, by status.",
    ["status"],
    registry=REGISTRY,
)


class Refused(Exception):
    """An error response with Pulsar's status and wording."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


HTTP_STATUS: Final[dict[type[errors.MagnetarError], int]] = {
    errors.MagnetarError: 500,
    errors.ProtocolError: 400,
    errors.InvalidName: 412,
    errors.MetadataError: 503,
    errors.VersionMismatch: 409,
    errors.BrokerError: 400,
    errors.TopicNotFound: 404,
    errors.TopicBusy: 412,
    errors.TopicExists: 409,
    errors.NamespaceExists: 409,
    errors.NamespaceNotEmpty: 409,
    errors.InvalidPartitions: 406,
    errors.SubscriptionNotFound: 404,
    errors.UnsubscribeRefused: 412,
    errors.ConsumerNotFound: 404,
    errors.ConsumerBusy: 409,
    errors.ProducerBusy: 409,
    errors.ProducerBlocked: 503,
    errors.NotAllowed: 405,
    errors.TransactionNotFound: 404,
    errors.InvalidTxnStatus: 409,
    errors.TransactionConflict: 409,
    errors.TransactionCoordinatorNotFound: 503,
    errors.IncompatibleSchema: 409,
    errors.InvalidSchema: 422,
    errors.NotSupportedYet: 501,
    errors.AuthenticationFailed: 401,
    errors.Unauthorized: 403,
    errors.TooManyRequests: 503,
    errors.ServiceNotReady: 503,
    errors.BeingChanged: 409,
    errors.BeingDeleted: 409,
}
"""The status of an error class and of its subclasses that have no entry of their own."""


def status_of(error: errors.MagnetarError) -> int:
    """Returns the status of the nearest class of `error` that has one; retriable errors are never a 500."""
    for each in type(error).__mro__:
        status = HTTP_STATUS.get(each)
        if status is not None:
            return 503 if status == 500 and error.retriable else status
    raise AssertionError("MagnetarError itself has a status")


def failed(status: int, reason: str) -> web.Response:
    """Returns an error response in Pulsar's form, and counts it."""
    _FAILED.labels(status=str(status)).inc()
    return refused(status, reason)
