"""A bookie over gRPC: appends on a stream with its own connection, other calls on another connection.

Nothing is retried. The first append opens a stream; after a loss the next append opens another, no sooner
than a short, increasing delay; appends before that are unreachable at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message
from magnetar.common.obs import request_ids
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.rpc.options import ChannelOptions, channel_options, status_line
from magnetar.ledger.bookie_protocol.bookie_client import (
    AppendDone,
    BookieElsewhere,
    BookieUnreachable,
    EncodedAppend,
    ReadAnswer,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    BACKPRESSURE,
    BAD_RECORD,
    OK,
    UNREACHABLE,
    ClearLimboRequest,
    DeleteHintRequest,
    DescribeRequest,
    Description,
    EntryRanges,
    ExpectedBookie,
    FenceRequest,
    LedgerList,
    LedgerState,
    ListEntriesRequest,
    ListLedgersRequest,
    ReadLacRequest,
    ReadRequest,
    Record,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.bookie_protocol.grpc_append_stream import AppendStream
from magnetar.ledger.bookie_protocol.grpc_methods import (
    APPEND,
    CLEAR_LIMBO,
    DELETE_HINT,
    DESCRIBE,
    EXPECTED_KEY,
    FENCE,
    LIST_ENTRIES,
    LIST_LEDGERS,
    MESSAGE_BYTES_MAX,
    READ,
    READ_LAC,
    VERSION_METADATA,
    Method,
    method_path,
)
from magnetar.ledger.bookie_protocol.records import encode_lac
from magnetar.ledger.ledger_store import LedgerRef
from prometheus_client import Counter

log = get_logger(__name__)

STREAMS_LOST: Final = Counter(
    "magnetar_bookie_client_streams_lost",
    "Append streams to bookies that broke, their appends unanswered.",
    ["bookie"],
    registry=REGISTRY,
)

_DRAIN_S: Final = 30.0
"""Seconds that calls have to end on a channel with earlier credentials: longer than any of them takes."""

Answer = TypeVar("Answer", bound=Message)
Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Timeouts in seconds and limits in bytes for the calls to one bookie."""

    append_timeout_s: float = 5.0
    """Timeout after which an unanswered append breaks its stream; everything on it is then unreachable."""
    read_timeout_s: float = 5.0
    fence_timeout_s: float = 10.0
    call_timeout_s: float = 10.0
    """Timeout of listings, hints and descriptions."""
    connect_timeout_s: float = 2.0
    reopen_after_s: float = 0.05
    """Delay between the loss of a stream and the next one; doubles until `reopen_after_max_s`."""
    reopen_after_max_s: float = 1.0
    pending_bytes_max: int = 64 << 20
    """Limit above which appends get BACKPRESSURE; a single append is always accepted."""
    message_bytes_max: int = MESSAGE_BYTES_MAX

    def channel_options(self) -> ChannelOptions:
        """Returns channel options: own connections, fast detection of dead peers, fast reconnects."""
        return channel_options(self.message_bytes_max, self.connect_timeout_s, self.reopen_after_max_s)


class GrpcBookieClient:
    """Implements `bookie_client.BookieClient`. Created and closed by `GrpcBookieClients`.

    `address()` returns the bookie's current address, or None if unknown; `directory()` the id of its data
    directory, b"" for any.
    """

    def __init__(
        self,
        bookie_id: str,
        address: Callable[[], str | None],
        directory: Callable[[], bytes],
        connect: Callable[[str], Any],
        options: ClientOptions,
        generation: Callable[[], int] = lambda: 0,
    ) -> None:
        """`generation` rises when `connect` has other credentials than before."""
        self._bookie_id = bookie_id
        self._address = address
        self._directory = directory
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._appends = _Channel(connect, generation)
        self._reads = _Channel(connect, generation)
        self._stream: AppendStream | None = None
        self._reopen_at = 0.0
        self._reopen_after_s = options.reopen_after_s
        self._lost_because = ""
        self._expected = b""
        self._named: Metadata = VERSION_METADATA
        self._name(directory())
        self._closed = False

    @property
    def bookie_id(self) -> str:
        return self._bookie_id

    @property
    def pending_bytes(self) -> int:
        return 0 if self._stream is None else self._stream.pending.bytes

    def append(self, append: EncodedAppend, done: AppendDone) -> None:
        """Appends; see `BookieClient.append`. May itself return BACKPRESSURE and BAD_RECORD (too long)."""
        length = len(append.wire)
        stream = self._stream
        if stream is None:
            stream = self._open_stream()
            if stream is None:
                self._loop.call_soon(done, UNREACHABLE, self._lost_because)
                return
        pending = stream.pending.bytes
        if pending and pending + length > self._options.pending_bytes_max:
            self._loop.call_soon(done, BACKPRESSURE, f"{pending} bytes wait for bookie {self._bookie_id}")
        elif length > self._options.message_bytes_max - 64:
            self._loop.call_soon(done, BAD_RECORD, f"an append of {length} bytes is longer than a message")
        else:
            stream.append(append, done)

    def write_lac(self, ref: LedgerRef, lac: int) -> None:
        """Sends a LAC; see `BookieClient.write_lac`. Dropped without a stream: a later append carries a
        higher one.
        """
        if self._stream is not None:
            self._stream.send(encode_lac(ref, lac))

    async def read(
        self, ref: LedgerRef, first: int, last: int, max_bytes: int, *, fence: bool = False
    ) -> ReadAnswer:
        """See `BookieClient.read`. Raises BookieUnreachable."""
        request = ReadRequest(
            ledger=_wire(ref), first_entry_id=first, last_entry_id=last, max_bytes=max_bytes, fence=fence
        )
        options = self._options
        timeout_s = options.fence_timeout_s if fence else options.read_timeout_s
        records: list[Record] = []
        part = None
        channel = self._reads_channel()
        try:
            call = channel.unary_stream(READ.path, ReadRequest.SerializeToString, READ.response.FromString)(
                request, timeout=timeout_s, metadata=self._said()
            )
            async for part in call:
                records.extend(part.records)
                if part.code != OK:
                    break
        except grpc.aio.AioRpcError as error:
            raise self._unreachable(READ, error) from None
        except asyncio.CancelledError:
            self._check_canceled(READ)
            raise
        if part is None:
            raise BookieUnreachable(f"bookie {self._bookie_id} ended a read without an answer")
        return ReadAnswer(records, part.code, part.stopped_at, part.reason, part.torn)

    async def read_lac(self, ref: LedgerRef, *, above: int = -1, wait_ms: int = 0) -> LedgerState:
        request = ReadLacRequest(ledger=_wire(ref), above=above, wait_ms=wait_ms)
        return await self._call(READ_LAC, request, LedgerState, self._options.read_timeout_s + wait_ms / 1000)

    async def fence(self, ref: LedgerRef) -> LedgerState:
        request = FenceRequest(ledger=_wire(ref))
        return await self._call(FENCE, request, LedgerState, self._options.fence_timeout_s)

    async def list_ledgers(
        self, *, after_ledger_id: int = -1, limit: int = 0, only_limbo: bool = False
    ) -> LedgerList:
        request = ListLedgersRequest(after_ledger_id=after_ledger_id, limit=limit, only_limbo=only_limbo)
        return await self._call(LIST_LEDGERS, request, LedgerList, self._options.call_timeout_s)

    async def delete_hint(self, refs: Sequence[LedgerRef]) -> None:
        request = DeleteHintRequest(ledgers=map(_wire, refs))
        await self._call(DELETE_HINT, request, Message, self._options.call_timeout_s)

    async def clear_limbo(self, ref: LedgerRef) -> LedgerState:
        request = ClearLimboRequest(ledger=_wire(ref))
        return await self._call(CLEAR_LIMBO, request, LedgerState, self._options.fence_timeout_s)

    async def describe(self) -> Description:
        return await self._call(DESCRIBE, DescribeRequest(), Description, self._options.call_timeout_s)

    async def list_entries(self, ref: LedgerRef, first: int, last: int) -> EntryRanges:
        request = ListEntriesRequest(ledger=_wire(ref), first_entry_id=first, last_entry_id=last)
        return await self._call(LIST_ENTRIES, request, EntryRanges, self._options.read_timeout_s)

    async def close(self) -> None:
        """Ends the stream and all calls as unreachable; idempotent."""
        self._closed = True
        self._lost_because = f"the client of bookie {self._bookie_id} is closed"
        if self._stream is not None:
            await self._stream.close(self._lost_because)
        await self._appends.close()
        await self._reads.close()

    # --- internal ---

    async def _call(self, method: Method, request: Message, kind: type[Answer], timeout_s: float) -> Answer:
        channel = self._reads_channel()
        try:
            answer = await channel.unary_unary(
                method.path, method.request.SerializeToString, method.response.FromString
            )(request, timeout=timeout_s, metadata=self._said())
        except grpc.aio.AioRpcError as error:
            raise self._unreachable(method, error) from None
        except asyncio.CancelledError:
            self._check_canceled(method)
            raise
        assert isinstance(answer, kind)
        return answer

    def _said(self) -> Metadata:
        """Returns a call's metadata: protocol version, addressed bookie, request id."""
        return self._expecting() + request_ids.call_metadata()

    def _expecting(self) -> Metadata:
        directory = self._directory()
        if directory != self._expected:
            self._name(directory)
        return self._named

    def _name(self, directory: bytes) -> None:
        expected = ExpectedBookie(bookie_id=self._bookie_id, directory_id=directory)
        self._expected = directory
        self._named = (*VERSION_METADATA, (EXPECTED_KEY, expected.SerializeToString()))

    def _reads_channel(self) -> Any:
        if self._closed:
            raise BookieUnreachable(self._lost_because)
        channel = self._reads.to(self._address())
        if channel is None:
            raise BookieUnreachable(f"the address of bookie {self._bookie_id} is unknown")
        return channel

    def _unreachable(self, method: Method, error: grpc.aio.AioRpcError) -> BookieUnreachable:
        line = status_line(error.code(), error.details())
        kind = BookieElsewhere if error.code() is grpc.StatusCode.NOT_FOUND else BookieUnreachable
        return kind(f"{method.name} of bookie {self._bookie_id}: {line}")

    def _check_canceled(self, method: Method) -> None:
        """Raises BookieUnreachable if the channel was closed, as opposed to a cancelled caller."""
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            what = f"{method.name} of bookie {self._bookie_id}"
            raise BookieUnreachable(f"{what}: the connection was closed meanwhile") from None

    def _open_stream(self) -> AppendStream | None:
        if self._closed or self._loop.time() < self._reopen_at:
            return None
        address, directory = self._address(), self._directory()
        channel = self._appends.to(address)
        if channel is None:
            self._lost_because = f"the address of bookie {self._bookie_id} is unknown"
            return None
        call = channel.stream_stream(method_path(APPEND))(metadata=self._expecting())
        self._stream = AppendStream(
            call,
            self._bookie_id,
            self._options.append_timeout_s,
            self._answered,
            self._lost,
            lambda: self._has_moved(address, directory),
        )
        return self._stream

    def _has_moved(self, address: str | None, directory: bytes) -> bool:
        return self._address() not in (None, address) or self._directory() not in (b"", directory)

    def _answered(self) -> None:
        self._reopen_after_s = self._options.reopen_after_s

    def _lost(self, reason: str) -> None:
        self._stream = None
        self._lost_because = reason
        if self._closed:
            return
        STREAMS_LOST.labels(self._bookie_id).inc()
        log.warning("append stream lost", bookie=self._bookie_id, reason=reason)
        self._reopen_at = self._loop.time() + self._reopen_after_s
        self._reopen_after_s = min(2 * self._reopen_after_s, self._options.reopen_after_max_s)


class _Channel:
    """A channel to a bookie; another one once its address or our credentials have changed."""

    __slots__ = ("_address", "_channel", "_closing", "_connect", "_generation", "_opened_with")

    def __init__(self, connect: Callable[[str], Any], generation: Callable[[], int]) -> None:
        self._connect = connect
        self._generation = generation
        self._opened_with = 0
        self._address: str | None = None
        self._channel: Any = None
        self._closing: set[asyncio.Task[None]] = set()

    def to(self, address: str | None) -> Any:
        generation = self._generation()
        if address != self._address or generation != self._opened_with:
            # Calls under way at the same address may end: only the credentials are others.
            self._give_up(_DRAIN_S if address == self._address else None)
            self._address, self._opened_with = address, generation
            if address is not None:
                self._channel = self._connect(address)
        return self._channel

    def _give_up(self, grace_s: float | None = None) -> None:
        if self._channel is not None:
            task = asyncio.get_running_loop().create_task(self._channel.close(grace_s))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            self._channel = None

    async def close(self) -> None:
        self._give_up()
        self._address = None
        if self._closing:
            await asyncio.wait(self._closing)


def _wire(ref: LedgerRef) -> WireRef:
    return WireRef(id=ref.id, key=ref.key)
