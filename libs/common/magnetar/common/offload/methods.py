"""The methods of the offload service, with their deadlines.

All are idempotent and may be retried when no answer arrived: a step already taken by the same attempt is
answered the same way. A deadline covers the whole call with its retries, long enough for a broker to restart
meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message
from magnetar.common.offload.offload_pb2 import (
    AttemptsRequest,
    AttemptsResponse,
    BeginRequest,
    BeginResponse,
    CompleteRequest,
    CompleteResponse,
    DeletedRequest,
    DeletedResponse,
    DeletionsRequest,
    DeletionsResponse,
    DescribeRequest,
    DescribeResponse,
    FailRequest,
    FailResponse,
    ReadRequest,
    ReadResponse,
    TopicsRequest,
    TopicsResponse,
    WantedRequest,
    WantedResponse,
    WantRequest,
    WantResponse,
)
from magnetar.common.rpc.callers import CallerTable
from magnetar.common.security.services.service_identity import Service

SERVICE: Final = "magnetar.offload.v1.Offload"

MESSAGE_BYTES_MAX: Final = 8 << 20
"""Maximum message size in bytes for both sides: more than the largest entry with its record."""

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
    """Deadline of the whole call in seconds. A longer read is continued by another call."""

    @property
    def path(self) -> str:
        """Path of the method on the wire."""
        return f"/{SERVICE}/{self.name}"


WANTED: Final = Method("Wanted", WantedRequest, WantedResponse, 120.0)
"""Long deadline: without named topics, every topic is scanned."""
WANT: Final = Method("Want", WantRequest, WantResponse, 120.0)
BEGIN: Final = Method("Begin", BeginRequest, BeginResponse, 60.0)
COMPLETE: Final = Method("Complete", CompleteRequest, CompleteResponse, 60.0)
FAIL: Final = Method("Fail", FailRequest, FailResponse, 60.0)
DESCRIBE: Final = Method("Describe", DescribeRequest, DescribeResponse, 60.0)
TOPICS: Final = Method("Topics", TopicsRequest, TopicsResponse, 60.0)
READ: Final = Method("Read", ReadRequest, ReadResponse, 60.0)
ATTEMPTS: Final = Method("Attempts", AttemptsRequest, AttemptsResponse, 120.0)
DELETIONS: Final = Method("Deletions", DeletionsRequest, DeletionsResponse, 60.0)
DELETED: Final = Method("Deleted", DeletedRequest, DeletedResponse, 60.0)

CALLERS: Final[CallerTable] = {
    each.name: frozenset({Service.JOB, Service.BROKER, Service.ADMIN})
    if each in (DESCRIBE, TOPICS, READ, WANTED, ATTEMPTS, DELETIONS)
    else frozenset({Service.JOB})
    for each in (
        *(WANTED, WANT, BEGIN, COMPLETE, FAIL, DESCRIBE, TOPICS, READ, ATTEMPTS, DELETIONS, DELETED),
    )
}
"""The services that may call each method of the offload service: jobs; brokers and operators only read."""
