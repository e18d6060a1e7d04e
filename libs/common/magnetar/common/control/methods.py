"""The methods of the control plane, with their deadlines and retry rules.

A deadline covers the whole call: the Hello of a new connection and every retry. Only idempotent calls are
retried, and only after a transport failure: an error returned by the broker is final.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import grpc
from google.protobuf.message import Message
from magnetar.common.control.control_pb2 import (
    AssignRequest,
    AssignResponse,
    EndTransactionsRequest,
    EndTransactionsResponse,
    HelloRequest,
    HelloResponse,
    LoadsRequest,
    LoadsResponse,
    MergeRequest,
    MergeResponse,
    NonPersistentTopicsRequest,
    NonPersistentTopicsResponse,
    ReportRequest,
    ReportResponse,
    SplitRequest,
    SplitResponse,
    TakeRequest,
    TakeResponse,
    TransactionStatusRequest,
    TransactionStatusResponse,
    UnloadRequest,
    UnloadResponse,
)
from magnetar.common.rpc.callers import CallerTable
from magnetar.common.security.services.service_identity import Service

SERVICE: Final = "magnetar.control.v1.Broker"

MESSAGE_BYTES_MAX: Final = 8 << 20
"""Maximum message size in bytes, for both sides."""

RUN_KEY: Final = "magnetar-run"
"""Call metadata key: the intended run of the broker, so that a restarted broker at the address refuses the
call.
"""

VERSION_KEY: Final = "magnetar-control-version"
"""Call metadata key: the agreed protocol version."""

ERROR_KEY: Final = "magnetar-error"
"""Trailing metadata key: the name of the error that a broker returns."""

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True, eq=False)
class Method(Generic[Request, Response]):
    """One method."""

    name: str
    request: type[Request]
    response: type[Response]
    deadline_s: float
    """Deadline of the whole call, in seconds."""
    attempts: int = 1
    """Maximum number of attempts."""
    repeat_on: frozenset[grpc.StatusCode] = frozenset()
    """Transport failures after which the call is retried."""

    @property
    def path(self) -> str:
        """The method's gRPC path."""
        return f"/{SERVICE}/{self.name}"


_UNHEARD: Final = frozenset({grpc.StatusCode.UNAVAILABLE})

HELLO: Final = Method("Hello", HelloRequest, HelloResponse, 3.0, 2, _UNHEARD)

ASSIGN: Final = Method("Assign", AssignRequest, AssignResponse, 10.0, 3, _UNHEARD)
"""Idempotent: an owned bundle keeps its owner."""

TAKE: Final = Method("Take", TakeRequest, TakeResponse, 10.0)
"""Not retried: the ownership key shows whether the bundle was taken."""

UNLOAD: Final = Method("Unload", UnloadRequest, UnloadResponse, 60.0)
"""Not retried: the next owner may have the bundle already, and would be asked to unload it again. The
deadline is long because a bundle may have many topics to close.
"""

SPLIT: Final = Method("Split", SplitRequest, SplitResponse, 30.0)
"""Not retried: the split may have happened."""

MERGE: Final = Method("Merge", MergeRequest, MergeResponse, 30.0, 3, _UNHEARD)
"""Idempotent: a merged bundle stays merged."""

REPORT: Final = Method("Report", ReportRequest, ReportResponse, 5.0)
"""Not retried: the next report replaces it."""

LOADS: Final = Method("Loads", LoadsRequest, LoadsResponse, 5.0, 3, _UNHEARD)

NON_PERSISTENT_TOPICS: Final = Method(
    "NonPersistentTopics", NonPersistentTopicsRequest, NonPersistentTopicsResponse, 5.0, 3, _UNHEARD
)

END_TRANSACTIONS: Final = Method("EndTransactions", EndTransactionsRequest, EndTransactionsResponse, 30.0)
"""Idempotent, but not retried: the coordinator sends what is left with its next call. Callers shorten the
deadline.
"""

TRANSACTION_STATUS: Final = Method(
    "TransactionStatus", TransactionStatusRequest, TransactionStatusResponse, 3.0, 2, _UNHEARD
)

CALLERS: Final[CallerTable] = {
    HELLO.name: frozenset({Service.BROKER, Service.DISCOVERY, Service.ADMIN}),
    ASSIGN.name: frozenset({Service.BROKER, Service.DISCOVERY}),
    LOADS.name: frozenset({Service.BROKER, Service.DISCOVERY, Service.ADMIN}),
    NON_PERSISTENT_TOPICS.name: frozenset({Service.BROKER, Service.ADMIN}),
    **{each.name: frozenset({Service.BROKER}) for each in (TAKE, UNLOAD, SPLIT, MERGE, REPORT)},
    END_TRANSACTIONS.name: frozenset({Service.BROKER}),
    TRANSACTION_STATUS.name: frozenset({Service.BROKER}),
}
"""The services that may call each method of the control plane."""
