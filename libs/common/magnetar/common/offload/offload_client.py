"""A plain client of the offload service, for jobs: no event loop, and threads may share it.

    with OffloadChannel("127.0.0.1:6750") as channel:
        for ledger in channel.wanted().ledgers: ...

Every call is made again while the broker is away, until its deadline: it may be started again meanwhile.
Errors are those of magnetar.common.offload.offload_refusals and magnetar.common.errors, by name as the broker
raised them. Brokers with mutual TLS are reached at grpcs://HOST:PORT, with the certificate of a job.
A channel is of the process that made it: a process that forks makes its own afterwards.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message
from magnetar.common.errors import MagnetarError, ServiceNotReady
from magnetar.common.offload.client_calls import (
    PAUSE_S,
    Attempts,
    Deletions,
    Described,
    error_of,
    pause_before_next,
)
from magnetar.common.offload.client_channel import ClientChannel
from magnetar.common.offload.methods import (
    ATTEMPTS,
    BEGIN,
    COMPLETE,
    DELETED,
    DELETIONS,
    DESCRIBE,
    FAIL,
    READ,
    TOPICS,
    WANT,
    WANTED,
    Method,
)
from magnetar.common.offload.offload_errors import OffloadUnreachable
from magnetar.common.offload.offload_pb2 import (
    AttemptsRequest,
    BeginRequest,
    CompleteRequest,
    DeletedRequest,
    DeletionsRequest,
    DescribeRequest,
    DescribeResponse,
    FailRequest,
    Ledger,
    ReadRequest,
    TopicsRequest,
    WantedRequest,
    WantedResponse,
    WantRequest,
)
from magnetar.common.offload.service_url import ServiceUrl, parse_service_url
from magnetar.common.security.services.credentials import CredentialFiles

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

OWNERS_MAX: Final = 5
"""Moves of a topic between brokers that one description follows."""

OWNER_S: Final = 5.0
"""Seconds to wait before the owner is looked up again."""


class OffloadChannel:
    """One broker's offload service. Connects at the first call; `close` it, or use `with`."""

    def __init__(
        self, address: str, tls: CredentialFiles | None = None, *, deadline_s: float | None = None
    ) -> None:
        """Creates a channel to HOST:PORT, or with mutual TLS to grpcs://HOST:PORT by the files `tls`.

        `deadline_s` replaces each method's deadline. Raises ValueError for an invalid address or missing
        files, ConfigError for files that cannot be used.
        """
        self._url = parse_service_url(address)
        self._tls = tls
        self._channel = ClientChannel(self._url, tls)
        self._deadline_s = deadline_s
        self._closed = threading.Event()

    @property
    def address(self) -> str:
        """The service's address, in the form that `__init__` takes."""
        return str(self._url)

    def __enter__(self) -> OffloadChannel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every call; idempotent."""
        self._closed.set()
        self._channel.close()

    # Steps

    def wanted(self, topics: Iterable[str] = (), *, most: int = 0) -> WantedResponse:
        """Returns ledgers that wait for a job, the oldest request first, and whether there are more."""
        return self._call(WANTED, WantedRequest(topics=topics, most=most))

    def want(
        self,
        topic: str,
        *,
        before: tuple[int, int] = (0, 0),
        location: str = "",
        exact: bool | None = None,
        again: bool = False,
    ) -> list[Ledger]:
        """Requests offload of a topic's closed ledgers: those wholly before (ledger id, entry id), or all.
        Returns the ledgers then waiting or running.

        `location` and `exact` override the policies. With `again`, offloaded ledgers whose entries are still
        on bookies are included, and their objects are written anew. Raises BadLocation, TopicNotFound.
        """
        request = WantRequest(
            topic=topic,
            before_ledger_id=before[0],
            before_entry_id=before[1],
            location=location,
            again=again,
        )
        if exact is not None:
            request.exact = exact
        return list(self._call(WANT, request).ledgers)

    def begin(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes) -> Ledger:
        """Claims a ledger for an attempt, named by 16 random bytes; a repeated call is a heartbeat.

        Repeat it every few minutes while the attempt runs. Raises NotWanted, OffloadRunning,
        OffloadedAlready, AttemptOver, NoLedgerToOffload.
        """
        request = BeginRequest(topic=topic, creation_id=creation_id, ledger_id=ledger_id, attempt=attempt)
        return self._call(BEGIN, request).ledger

    def complete(self, request: CompleteRequest) -> Ledger:
        """Reports the attempt's objects as complete. Raises CountsDiffer, AttemptOver, NoLedgerToOffload."""
        return self._call(COMPLETE, request).ledger

    def fail(self, topic: str, creation_id: int, ledger_id: int, attempt: bytes, reason: str) -> None:
        """Gives up the attempt. Raises AttemptOver, OffloadedAlready, NoLedgerToOffload."""
        self._call(
            FAIL,
            FailRequest(
                topic=topic,
                creation_id=creation_id,
                ledger_id=ledger_id,
                attempt=attempt,
                reason=reason[:4_000],
            ),
        )

    # Topics and entries

    def topics(self, names: Iterable[str] = (), pattern: str = "") -> list[str]:
        """Returns full names of the given topics, or of those whose name matches the regular expression;
        partitioned topics are replaced by their partitions. Raises TopicNotFound, NotAllowed.
        """
        return list(self._call(TOPICS, TopicsRequest(names=names, pattern=pattern)).topics)

    def describe(self, topic: str, *, after_ledger_id: int = 0, ledger_id: int = 0) -> Described:
        """Describes where a topic's entries are, including the open ledger up to its owner's last confirmed
        entry.

        `after_ledger_id` limits the result to ledgers behind that one, `ledger_id` to one. Raises
        TopicNotFound; ServiceNotReady if the owner cannot be found.
        """
        deadline = time.monotonic() + self._limit_s(DESCRIBE)
        why: MagnetarError = ServiceNotReady(f"topic {topic} keeps moving between brokers; try again")
        moves = attempt = 0
        while moves < OWNERS_MAX:
            try:
                found = self._describe(topic, after_ledger_id, ledger_id)
                if not found.owner:
                    return _described(topic, found, self.address)
                with self._owner(found.owner) as owner:
                    theirs = owner._describe(topic, after_ledger_id, ledger_id)
                if not theirs.owner:
                    return _described(topic, theirs, owner.address)
                moves, pause_s = moves + 1, PAUSE_S
            except MagnetarError as error:
                # The owner died or is unloading the topic; another broker will own it soon.
                why, again_s = error, pause_before_next(error, attempt, deadline - time.monotonic())
                if again_s is None:
                    raise
                attempt, pause_s = attempt + 1, again_s
            if time.monotonic() >= deadline or self._closed.wait(pause_s):
                break
        raise why

    def find(self, topic: str, ledger_id: int) -> Ledger | None:
        """Returns one ledger as the topic's owner describes it; None if the topic no longer has it.

        Raises as `describe`.
        """
        found = self.describe(topic, ledger_id=ledger_id).ledgers
        return next((each for each in found if each.ledger_id == ledger_id), None)  # older brokers tell all

    def read(
        self, topic: str, ledger_id: int, ledger_key: int, first_entry_id: int, last_entry_id: int
    ) -> Iterator[bytes]:
        """Yields entries of a ledger as records, both ends included. Ask the topic's owner for an open
        ledger.

        An interruption raises; magnetar.ledger.offload_reads resumes instead. The call ends with
        OffloadTimedOut at its deadline even if the consumer is slow, so a hanging broker blocks no reader and
        a paused reader holds no resources at the broker. Close the iterator if it is not read to its end.
        """
        request = ReadRequest(
            topic=topic,
            ledger_id=ledger_id,
            ledger_key=ledger_key,
            first_entry_id=first_entry_id,
            last_entry_id=last_entry_id,
            transactions=True,
        )
        what = f"Read of {self.address}"
        with self._channel.lend() as channel:
            call = channel.unary_stream(READ.path, READ.request.SerializeToString, READ.response.FromString)(
                request, timeout=self._limit_s(READ)
            )
            try:
                for part in call:
                    yield part.records
            except grpc.RpcError as error:
                raise error_of(error, what) from None
            finally:
                call.cancel()

    # Sweeping

    def attempts(self, location: str = "") -> Attempts:
        """Returns the directories that must stay, below one location or below any."""
        paths: list[str] = []
        complete, after = True, ""
        while True:
            found = self._call(ATTEMPTS, AttemptsRequest(location=location, after_topic=after))
            paths += found.paths
            complete = complete and found.complete
            after = found.next_after_topic
            if not after:
                return Attempts(paths, complete)

    def deletions(self, location: str = "", after_intent_id: str = "") -> Deletions:
        """Returns objects to delete, at one location or anywhere; if there are more, call again with the last
        intent id.
        """
        found = self._call(DELETIONS, DeletionsRequest(location=location, after_intent_id=after_intent_id))
        return Deletions(list(found.deletions), found.more, found.instance_id)

    def deleted(self, intent_id: str) -> None:
        """Reports the objects of a deletion as deleted."""
        self._call(DELETED, DeletedRequest(intent_id=intent_id))

    # --- internal ---

    def _describe(self, topic: str, after: int, only: int) -> DescribeResponse:
        request = DescribeRequest(topic=topic, after_ledger_id=after, ledger_id=only)
        whole = self._call(DESCRIBE, request)
        page = whole
        while page.more:
            after = page.ledgers[-1].ledger_id
            request = DescribeRequest(topic=topic, after_ledger_id=after, ledger_id=only)
            page = self._call(DESCRIBE, request)
            if page.creation_id != whole.creation_id or page.owner != whole.owner:
                raise ServiceNotReady(
                    f"topic {topic} was recreated or moved while it was described; try again"
                )
            whole.ledgers.extend(page.ledgers)
        return whole

    def _owner(self, target: str) -> OffloadChannel:
        """A channel to the topic's owner at host:port, with the same TLS as this one."""
        deadline_s = min(OWNER_S, self._limit_s(DESCRIBE))
        return OffloadChannel(str(ServiceUrl(target, self._url.tls)), self._tls, deadline_s=deadline_s)

    def _limit_s(self, method: Method[Any, Any]) -> float:
        return method.deadline_s if self._deadline_s is None else self._deadline_s

    def _call(self, method: Method[Request, Response], request: Request) -> Response:
        what = f"{method.name} of {self.address}"
        deadline = time.monotonic() + self._limit_s(method)
        attempt = 0
        while True:
            try:
                answer = self._exchange(method, request, max(0.001, deadline - time.monotonic()))
            except grpc.RpcError as error:
                found: MagnetarError = error_of(error, what)
            except ValueError as error:  # gRPC's word for a channel that was closed
                found = OffloadUnreachable(f"{what}: {error}")
            else:
                assert isinstance(answer, method.response)
                return answer
            pause_s = pause_before_next(found, attempt, deadline - time.monotonic())
            if pause_s is None or self._closed.wait(pause_s):
                raise found
            attempt += 1

    def _exchange(self, method: Method[Any, Any], request: Message, timeout_s: float) -> Message:
        with self._channel.lend() as channel:
            call = channel.unary_unary(
                method.path, method.request.SerializeToString, method.response.FromString
            )
            answer: Message = call(request, timeout=timeout_s)
            return answer


def _described(topic: str, found: DescribeResponse, address: str) -> Described:
    ledgers = list(found.ledgers)
    return Described(topic, found.creation_id, ledgers, address, found.schema_type, found.schema)
