"""The calls of the control plane: how long each may take, and which may be made again when it was not heard.

A deadline is for the whole call, with the Hello of a new connection and every repetition. Only what may be
done twice without harm is made again, and only when the transport failed: an error that a broker answers is
an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import grpc
from google.protobuf.message import Message
from magnetar.common.control.control_pb2 import (
    AssignRequest,
    AssignResponse,
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
    UnloadRequest,
    UnloadResponse,
)
from magnetar.common.rpc.callers import CallerTable
from magnetar.common.security.services.service_identity import Service

SERVICE: Final = "magnetar.control.v1.Broker"

MESSAGE_BYTES_MAX: Final = 8 << 20
"""Longest message either side takes."""

RUN_KEY: Final = "magnetar-run"
"""Call metadata: which run of the broker is meant, so that the next one at its address does not answer."""

VERSION_KEY: Final = "magnetar-control-version"
"""Call metadata: the version that both agreed upon."""

ERROR_KEY: Final = "magnetar-error"
"""Trailing metadata: the name of the error that a broker answers."""

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True, eq=False)
class Method(Generic[Request, Response]):
    """One call."""

    name: str
    request: type[Request]
    response: type[Response]
    deadline_s: float
    """For all of it, in seconds."""
    attempts: int = 1
    """How often it is made at most."""
    repeat_on: frozenset[grpc.StatusCode] = frozenset()
    """Failures of the transport after which it is made again."""

    @property
    def path(self) -> str:
        """The gRPC name on the wire."""
        return f"/{SERVICE}/{self.name}"


_UNHEARD: Final = frozenset({grpc.StatusCode.UNAVAILABLE})

HELLO: Final = Method("Hello", HelloRequest, HelloResponse, 3.0, 2, _UNHEARD)

ASSIGN: Final = Method("Assign", AssignRequest, AssignResponse, 10.0, 3, _UNHEARD)
"""Twice is once: a bundle that has an owner keeps it."""

TAKE: Final = Method("Take", TakeRequest, TakeResponse, 10.0)
"""Never twice: whether it was taken, the owner's key says."""

UNLOAD: Final = Method("Unload", UnloadRequest, UnloadResponse, 60.0)
"""Never twice: the next owner may have it already, and would be asked to give it away again. It is long
because a bundle may have many topics to close."""

SPLIT: Final = Method("Split", SplitRequest, SplitResponse, 30.0)
"""Never twice: the parts may be there already."""

MERGE: Final = Method("Merge", MergeRequest, MergeResponse, 30.0, 3, _UNHEARD)
"""Twice is once: what is one bundle already stays one."""

REPORT: Final = Method("Report", ReportRequest, ReportResponse, 5.0)
"""Once: the next report says more."""

LOADS: Final = Method("Loads", LoadsRequest, LoadsResponse, 5.0, 3, _UNHEARD)

NON_PERSISTENT_TOPICS: Final = Method(
    "NonPersistentTopics", NonPersistentTopicsRequest, NonPersistentTopicsResponse, 5.0, 3, _UNHEARD
)

CALLERS: Final[CallerTable] = {
    HELLO.name: frozenset({Service.BROKER, Service.DISCOVERY, Service.ADMIN}),
    ASSIGN.name: frozenset({Service.BROKER, Service.DISCOVERY}),
    LOADS.name: frozenset({Service.BROKER, Service.DISCOVERY, Service.ADMIN}),
    NON_PERSISTENT_TOPICS.name: frozenset({Service.BROKER, Service.ADMIN}),
    **{each.name: frozenset({Service.BROKER}) for each in (TAKE, UNLOAD, SPLIT, MERGE, REPORT)},
}
"""The services that may call each method of the control plane."""
