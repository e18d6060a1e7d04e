"""The client side of one Append call: one task writes, one reads, and its loss is final.

Appends of one turn of the event loop share a message. Concurrent writes on one gRPC stream fail, so only the
writer task writes; while it waits for flow control, further appends collect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from magnetar.common.obs.logs import get_logger
from magnetar.common.rpc.options import status_line
from magnetar.ledger.bookie_protocol.bookie_client import AppendDone, EncodedAppend
from magnetar.ledger.bookie_protocol.bookie_pb2 import AppendResults
from magnetar.ledger.bookie_protocol.grpc_methods import BATCH_BYTES_MAX, FIRST_BATCH
from magnetar.ledger.bookie_protocol.pending_appends import PendingAppends, UnexpectedResult

log = get_logger(__name__)

_parse = AppendResults.FromString


class AppendStream:
    """A stream from its first append to its loss. `on_answer` is called with each message of results.

    `has_moved()` is called periodically and returns whether the bookie has moved, so that the stream leads to
    another process.
    """

    def __init__(
        self,
        call: Any,
        bookie_id: str,
        timeout_s: float,
        on_answer: Callable[[], None],
        on_lost: Callable[[str], None],
        has_moved: Callable[[], bool] = lambda: False,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.pending = PendingAppends()
        self._call = call
        self._bookie_id = bookie_id
        self._timeout_s = timeout_s
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._has_moved = has_moved
        self._loop = loop
        self._outgoing: deque[bytes] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._lost = False
        self._timer = loop.call_later(timeout_s / 4, self._look_at_oldest)
        self._writer = loop.create_task(self._write(), name=f"append to {bookie_id}")
        self._reader = loop.create_task(self._read(), name=f"confirmations of {bookie_id}")

    def append(self, append: EncodedAppend, done: AppendDone) -> None:
        """Sends an append with the others of this turn; a plain call."""
        self.pending.add(append, done, self._loop.time())
        self.send(append.wire)

    def send(self, wire: bytes) -> None:
        """Sends a part of an AppendBatch with the others of this turn; a plain call."""
        self._outgoing.append(wire)
        wake = self._wake
        if wake is not None and not wake.done():
            wake.set_result(None)

    def lose(self, reason: str) -> None:
        """Ends the stream; unanswered appends are unreachable. Idempotent."""
        if self._lost:
            return
        self._lost = True
        self._timer.cancel()
        self._call.cancel()
        self._writer.cancel()
        self._reader.cancel()
        self._outgoing.clear()
        self._on_lost(reason)
        self.pending.fail_all(reason)

    async def close(self, reason: str) -> None:
        """Calls `lose` and waits until the tasks have ended."""
        self.lose(reason)
        await asyncio.wait([self._writer, self._reader])

    async def _write(self) -> None:
        outgoing, write = self._outgoing, self._call.write
        head = FIRST_BATCH
        try:
            while True:
                while not outgoing:
                    self._wake = self._loop.create_future()
                    await self._wake
                    self._wake = None
                batch = [head, outgoing.popleft()] if head else [outgoing.popleft()]
                head = b""
                room = BATCH_BYTES_MAX - len(batch[-1])
                while outgoing and (room := room - len(outgoing[0])) >= 0:
                    batch.append(outgoing.popleft())
                await write(batch[0] if len(batch) == 1 else b"".join(batch))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
            if not self._lost:  # the reader learns why, if there is more to learn
                self._loop.call_soon(self.lose, await self._reason(error))
        except Exception as error:
            log.exception("appends could not be sent", bookie=self._bookie_id)
            self._loop.call_soon(self.lose, repr(error))

    async def _read(self) -> None:
        read, settle = self._call.read, self.pending.settle
        try:
            while (data := await read()) is not grpc.aio.EOF:
                self._on_answer()
                settle(_parse(data).results)
            reason = await self._reason(None)
        except (grpc.aio.AioRpcError, asyncio.CancelledError) as error:
            if self._lost:
                return
            reason = await self._reason(error)
        except (UnexpectedResult, DecodeError) as error:
            log.error("a bookie's answer makes no sense", bookie=self._bookie_id, reason=str(error))
            reason = f"its answer makes no sense: {error}"
        except Exception as error:
            log.exception("confirmations could not be read", bookie=self._bookie_id)
            reason = repr(error)
        self._loop.call_soon(self.lose, reason)

    async def _reason(self, error: BaseException | None) -> str:
        """Returns the reason why the call ended, in one line."""
        if isinstance(error, grpc.aio.AioRpcError):
            return status_line(error.code(), error.details())
        if self._call.done():
            return status_line(await self._call.code(), await self._call.details())
        return "the stream broke" if error is None else f"the stream broke: {error!r}"

    def _look_at_oldest(self) -> None:
        oldest = self.pending.oldest()
        if oldest is not None and self._loop.time() - oldest >= self._timeout_s:
            self.lose(f"an append was not answered within {self._timeout_s:g} s")
            return
        if self._has_moved():
            self.lose("the bookie has registered at another address or with another disk")
            return
        self._timer = self._loop.call_later(self._timeout_s / 4, self._look_at_oldest)
