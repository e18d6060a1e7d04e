"""One client's append stream: appends in, confirmations out, one task for each direction.

Bytes accepted and not yet confirmed to the client are limited: above the limit the stream is not read, and
gRPC's flow control slows the client down. Results of one turn of the event loop are sent in one message.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from magnetar.bookie.bookie_core import BookieCore
from magnetar.bookie.grpc_errors import check_version
from magnetar.bookie.metrics import BookieStats
from magnetar.common.errors import DataCorruption
from magnetar.common.rpc.refusals import BadCall
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK, AppendBatch, AppendResult, AppendResults
from magnetar.ledger.segment_log.codec_v1 import record_entry_count

RESULTS_MAX: Final = 4096
"""Maximum number of results in one message."""

_parse = AppendBatch.FromString


class AppendSession:
    """Serves one Append call with `run`; `finish` ends it cleanly. All calls on the event loop."""

    def __init__(
        self, core: BookieCore, stats: BookieStats, context: Any, unconfirmed_bytes_max: int
    ) -> None:
        self._core = core
        self._stats = stats
        self._now = asyncio.get_running_loop().time
        self._context = context
        self._unconfirmed_max = unconfirmed_bytes_max
        self._unconfirmed = 0
        # Messages not yet wholly answered: (entries accepted up to its end, arrival time).
        self._unsettled: deque[tuple[int, float]] = deque()
        # Messages not yet wholly confirmed: (the same, arrival time, bytes).
        self._unconfirmed_messages: deque[tuple[int, float, int]] = deque()
        self._entries_taken = 0
        self._entries_settled = 0
        self._entries_confirmed = 0
        self._results: list[AppendResult] = []
        self._wake: asyncio.Future[None] | None = None
        self._room = asyncio.Event()
        self._no_more = False
        self._reader: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serves until the client or `finish` ends the stream. Raises BadCall for an invalid message."""
        loop = asyncio.get_running_loop()
        writer = loop.create_task(self._write(), name="confirmations")
        self._reader = reader = loop.create_task(self._read(), name="appends")
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and not reader.cancelled():
                reader.result()
            # The client has ended the stream, or the bookie stops: accepted entries are still confirmed.
            self._no_more = True
            self._notify_writer()
            await writer
        finally:
            reader.cancel()
            writer.cancel()
            await asyncio.wait({reader, writer})

    def finish(self) -> None:
        """Stops reading; `run` returns once every accepted entry is confirmed."""
        if self._reader is not None:
            self._reader.cancel()

    async def _read(self) -> None:
        read, take, answer = self._context.read, self._core.append, self._answer
        first = True
        while (data := await read()) is not grpc.aio.EOF:
            try:
                batch = _parse(data)
            except DecodeError as error:
                raise BadCall(f"a message of an append stream is no AppendBatch: {error}") from None
            if first:
                check_version(batch.protocol_version)
                first = False
            if batch.lacs:
                self._core.write_lacs(batch.lacs)
            appends = batch.appends
            try:
                counts = [record_entry_count(append.record.header) for append in appends]
            except struct.error:
                raise BadCall("a record has less than a header") from None
            if not (entries := sum(counts)):
                continue
            now = self._now()
            self._entries_taken += entries
            self._unconfirmed += len(data)
            self._unsettled.append((self._entries_taken, now))
            self._unconfirmed_messages.append((self._entries_taken, now, len(data)))
            self._stats.written_bytes += len(data)
            try:
                for append in appends:
                    take(append, answer)
            except DataCorruption as error:
                raise BadCall(str(error)) from error
            while self._unconfirmed > self._unconfirmed_max:
                self._room.clear()
                await self._room.wait()

    async def _write(self) -> None:
        write = self._context.write
        loop = asyncio.get_running_loop()
        while True:
            while not self._results:
                if self._no_more and self._entries_confirmed >= self._entries_taken:
                    return
                self._wake = loop.create_future()
                await self._wake
                self._wake = None
            results = self._results
            if len(results) > RESULTS_MAX:
                self._results, results = results[RESULTS_MAX:], results[:RESULTS_MAX]
            else:
                self._results = []
            await write(AppendResults(results=results).SerializeToString())
            self._confirmed(results)

    def _answer(self, result: AppendResult) -> None:
        """Receives the result of entries from the core, possibly before the core's call returns."""
        count, unsettled = result.entry_count, self._unsettled
        if unsettled:
            now = self._now()
            self._stats.journal_adds.observe(
                now, now - unsettled[0][1], success=result.code == OK, count=count
            )
        self._entries_settled += count
        while unsettled and unsettled[0][0] <= self._entries_settled:
            unsettled.popleft()
        self._results.append(result)
        self._notify_writer()

    def _confirmed(self, results: list[AppendResult]) -> None:
        """Updates limits and latencies after results were sent. Only the oldest arrival time counts, so
        latencies are upper bounds.
        """
        messages = self._unconfirmed_messages
        entries = sum([result.entry_count for result in results])
        refused = sum([result.entry_count for result in results if result.code != OK])
        if messages:
            now = self._now()
            took = now - messages[0][1]
            if refused:
                self._stats.add_requests.observe(now, took, success=False, count=refused)
            if entries > refused:
                self._stats.add_requests.observe(now, took, count=entries - refused)
        self._entries_confirmed += entries
        while messages and messages[0][0] <= self._entries_confirmed:
            self._unconfirmed -= messages.popleft()[2]
        if self._unconfirmed <= self._unconfirmed_max:
            self._room.set()

    def _notify_writer(self) -> None:
        wake = self._wake
        if wake is not None and not wake.done():
            wake.set_result(None)
