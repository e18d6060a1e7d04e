"""Bookies as a simulated process sees them: `BookieClients` over the simulated network.

The same messages as gRPC carries, as bytes; the same rules: appends of a loop turn travel together on a
stream of their own, a broken stream leaves its appends unreachable and is opened again after a while, nothing
is retried.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message
from magnetar.ledger.bookie_protocol.bookie_client import (
    AppendDone,
    BookieUnreachable,
    EncodedAppend,
    ReadAnswer,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    BACKPRESSURE,
    UNREACHABLE,
    AppendResults,
    ClearLimboRequest,
    DeleteHintRequest,
    DeleteHintResponse,
    DescribeRequest,
    Description,
    EntryRanges,
    FenceRequest,
    LedgerList,
    LedgerState,
    ListEntriesRequest,
    ListLedgersRequest,
    ReadLacRequest,
    ReadPart,
    ReadRequest,
    Record,
)
from magnetar.ledger.bookie_protocol.bookie_pb2 import LedgerRef as WireRef
from magnetar.ledger.bookie_protocol.grpc_methods import FIRST_BATCH
from magnetar.ledger.bookie_protocol.pending_appends import PendingAppends
from magnetar.ledger.bookie_protocol.records import encode_lac
from magnetar.ledger.bookie_protocol.registry import BookieRegistry
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.sim.network import NetworkDown, SimNetwork, SimStream
from magnetar.sim.process import SimProcess

from tests.simulation.quorum.expected import meant_for
from tests.simulation.quorum.happenings import HELD_BACK

Answer = TypeVar("Answer", bound=Message)

TIMEOUT_S: Final = 0.3
"""For any answer; a stream with an append that waits longer is given up."""

REOPEN_AFTER_S: Final = 0.05

PENDING_BYTES_MAX: Final = 1 << 20


class SimBookieClients:
    """One process's connections."""

    def __init__(
        self,
        network: SimNetwork,
        process: SimProcess,
        registry: BookieRegistry,
        *,
        on_append: Callable[[str, EncodedAppend], None] | None = None,
        happened: Counter[str] | None = None,
    ) -> None:
        self.pending_bytes_max: int | None = None
        """The bound of each stream, if other than usual."""
        self.on_append = on_append
        self.happened = Counter() if happened is None else happened
        self._network = network
        self._process = process
        self._registry = registry
        self._clients: dict[str, SimBookieClient] = {}

    def client(self, bookie_id: str) -> SimBookieClient:
        client = self._clients.get(bookie_id)
        if client is None:
            client = SimBookieClient(self._network, self._process, bookie_id, self._registry, self)
            self._clients[bookie_id] = client
        return client

    async def close(self) -> None:
        for client in self._clients.values():
            client.close()


class SimBookieClient:
    """Implements `BookieClient`."""

    def __init__(
        self,
        network: SimNetwork,
        process: SimProcess,
        bookie_id: str,
        registry: BookieRegistry,
        clients: SimBookieClients,
    ) -> None:
        self._network = network
        self._process = process
        self._bookie_id = bookie_id
        self._all = clients
        self._registry = registry
        self._stream: _AppendStream | None = None
        self._reopen_at = 0.0
        self._closed = False

    @property
    def bookie_id(self) -> str:
        return self._bookie_id

    @property
    def pending_bytes(self) -> int:
        return 0 if self._stream is None else self._stream.pending.bytes

    def append(self, append: EncodedAppend, done: AppendDone) -> None:
        loop, stream = self._network.loop, self._stream
        if stream is None:
            address = self._registry.address(self._bookie_id)
            if self._closed or loop.time() < self._reopen_at or address is None:
                loop.call_soon(done, UNREACHABLE, f"no stream to {self._bookie_id}")
                return
            stream = self._stream = self._open_stream(address)
        if self._all.on_append is not None:
            self._all.on_append(self._bookie_id, append)
        pending = stream.pending.bytes
        maximum = self._all.pending_bytes_max
        if pending and pending + len(append.wire) > (PENDING_BYTES_MAX if maximum is None else maximum):
            self._all.happened[HELD_BACK] += 1
            loop.call_soon(done, BACKPRESSURE, f"{pending} bytes wait for {self._bookie_id}")
            return
        stream.append(append, done)

    def write_lac(self, ref: LedgerRef, lac: int) -> None:
        if self._stream is not None:
            self._stream.write(encode_lac(ref, lac))

    async def read(
        self, ref: LedgerRef, first: int, last: int, max_bytes: int, *, fence: bool = False
    ) -> ReadAnswer:
        request = ReadRequest(
            ledger=_wire(ref), first_entry_id=first, last_entry_id=last, max_bytes=max_bytes, fence=fence
        )
        records: list[Record] = []
        part = None
        for message in await self._ask("Read", request):
            part = ReadPart.FromString(message)
            records.extend(part.records)
        if part is None:
            raise BookieUnreachable(f"{self._bookie_id} ended a read without an answer")
        return ReadAnswer(records, part.code, part.stopped_at, part.reason, part.torn)

    async def read_lac(self, ref: LedgerRef, *, above: int = -1, wait_ms: int = 0) -> LedgerState:
        request = ReadLacRequest(ledger=_wire(ref), above=above, wait_ms=wait_ms)
        return await self._call("ReadLac", request, LedgerState, wait_ms / 1000)

    async def fence(self, ref: LedgerRef) -> LedgerState:
        return await self._call("Fence", FenceRequest(ledger=_wire(ref)), LedgerState)

    async def list_ledgers(
        self, *, after_ledger_id: int = -1, limit: int = 0, only_limbo: bool = False
    ) -> LedgerList:
        request = ListLedgersRequest(after_ledger_id=after_ledger_id, limit=limit, only_limbo=only_limbo)
        return await self._call("ListLedgers", request, LedgerList)

    async def delete_hint(self, refs: Sequence[LedgerRef]) -> None:
        request = DeleteHintRequest(ledgers=[_wire(ref) for ref in refs])
        await self._call("DeleteHint", request, DeleteHintResponse)

    async def clear_limbo(self, ref: LedgerRef) -> LedgerState:
        return await self._call("ClearLimbo", ClearLimboRequest(ledger=_wire(ref)), LedgerState)

    async def describe(self) -> Description:
        return await self._call("Describe", DescribeRequest(), Description)

    async def list_entries(self, ref: LedgerRef, first: int, last: int) -> EntryRanges:
        request = ListEntriesRequest(ledger=_wire(ref), first_entry_id=first, last_entry_id=last)
        return await self._call("ListEntries", request, EntryRanges)

    def close(self) -> None:
        self._closed = True
        if self._stream is not None:
            self._stream.lose("the client is closed")

    # --- inside ---

    async def _call(self, method: str, request: Message, kind: type[Answer], longer_s: float = 0.0) -> Answer:
        messages = await self._ask(method, request, longer_s)
        assert len(messages) == 1, f"{method} has one answer"
        return kind.FromString(messages[0])

    async def _ask(self, method: str, request: Message, longer_s: float = 0.0) -> Sequence[bytes]:
        if self._closed:
            raise BookieUnreachable("the client is closed")
        bookie_id, registry = self._bookie_id, self._registry
        address = registry.address(bookie_id)
        if address is None:
            raise BookieUnreachable(f"the address of {bookie_id} is not known")
        data = meant_for(bookie_id, registry.directory(bookie_id), request.SerializeToString())
        try:
            return await self._network.call(self._process, address, method, data, TIMEOUT_S + longer_s)
        except NetworkDown as error:
            raise BookieUnreachable(str(error)) from None

    def _open_stream(self, address: str) -> _AppendStream:
        bookie_id, registry = self._bookie_id, self._registry
        directory = registry.directory(bookie_id)
        first = meant_for(bookie_id, directory, FIRST_BATCH)

        def has_moved() -> bool:
            known = registry.directory(bookie_id)
            return registry.address(bookie_id) not in (None, address) or known not in (b"", directory)

        return _AppendStream(self._network, self._process, address, first, self._lost, has_moved)

    def _lost(self) -> None:
        self._stream = None
        self._reopen_at = self._network.loop.time() + REOPEN_AFTER_S


class _AppendStream:
    """A stream from its first append to its loss."""

    def __init__(
        self,
        network: SimNetwork,
        process: SimProcess,
        address: str,
        first: bytes,
        on_lost: Callable[[], None],
        has_moved: Callable[[], bool],
    ) -> None:
        self.pending = PendingAppends()
        self._loop = network.loop
        self._on_lost = on_lost
        self._has_moved = has_moved
        self._outgoing: list[bytes] = [first]
        self._flush: asyncio.Handle | None = None
        self._lost = False
        self._stream: SimStream = network.connect(
            process, address, self._answered, lambda: self.lose("the stream broke")
        )
        self._timer = self._loop.call_later(TIMEOUT_S / 4, self._look_at_oldest)

    def append(self, append: EncodedAppend, done: AppendDone) -> None:
        self.pending.add(append, done, self._loop.time())
        self.write(append.wire)

    def write(self, wire: bytes) -> None:
        """Send something with everything else of this turn."""
        self._outgoing.append(wire)
        if self._flush is None:
            self._flush = self._loop.call_soon(self._send)

    def lose(self, reason: str) -> None:
        if self._lost:
            return
        self._lost = True
        self._timer.cancel()
        self._stream.close()
        self._on_lost()
        self.pending.fail_all(reason)

    def _send(self) -> None:
        outgoing, self._outgoing, self._flush = self._outgoing, [], None
        if not self._lost:
            self._stream.send(b"".join(outgoing))

    def _answered(self, message: bytes) -> None:
        self.pending.settle(AppendResults.FromString(message).results)

    def _look_at_oldest(self) -> None:
        oldest = self.pending.oldest()
        if oldest is not None and self._loop.time() - oldest >= TIMEOUT_S:
            self.lose(f"an append was not answered within {TIMEOUT_S:g} s")
        elif self._has_moved():
            self.lose("the bookie has registered at another address or with another disk")
        else:
            self._timer = self._loop.call_later(TIMEOUT_S / 4, self._look_at_oldest)


def _wire(ref: LedgerRef) -> WireRef:
    return WireRef(id=ref.id, key=ref.key)
