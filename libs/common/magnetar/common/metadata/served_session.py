"""A session of a worker at the metadata server of its parent process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.served_methods import KEEP_ALIVE, Method
from magnetar.common.metadata.served_store_pb2 import CommitResponse, KeepAliveRequest, KeepAliveResponse
from magnetar.common.metadata.store import ANY_VERSION, Op, Put, check_ops
from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

_ENDED: Final = "the metadata session has ended; start another"
_RETRY_S: Final = 0.1

Answer = TypeVar("Answer", bound=Message)


class SessionOwner(Protocol):
    """The part of the store that a session uses."""

    async def call(self, method: Method, request: Message, kind: type[Answer]) -> Answer: ...
    async def commit_as(self, ops: Sequence[Op], session: int) -> CommitResponse: ...
    async def end(self, session: ServedSession) -> None: ...


class ServedSession:
    """Implements `store.Session`; begun at loop time `began_s`. `keep_alive` has to run."""

    def __init__(self, store: SessionOwner, number: int, ttl_s: float, began_s: float) -> None:
        self.number = number
        self._store = store
        self._ttl_s = ttl_s
        self._ended = asyncio.Event()
        self._alive_until_s = began_s + ttl_s

    async def put_ephemeral(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        return await self.commit([Put(key, value, expected_version, ephemeral=True)])

    async def commit(self, ops: Sequence[Op]) -> int:
        if self._ended.is_set():
            raise MetadataError(_ENDED)
        check_ops(ops, has_session=True)
        answer = await self._store.commit_as(ops, self.number)
        if answer.session_ended:
            self._end()
            raise MetadataError(_ENDED)
        return answer.revision

    async def expired(self) -> None:
        await self._ended.wait()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def alive_until_s(self) -> float:
        return self._alive_until_s

    async def close(self) -> None:
        """Ends the session. Raises MetadataError without an answer; it then expires by itself."""
        if not self._ended.is_set():
            self._end()
            await self._store.end(self)

    async def keep_alive(self) -> None:
        """Sends keep-alives, three per session time, until the session has ended."""
        loop = asyncio.get_running_loop()
        wait_s = self._ttl_s / 3
        while not await self._ended_within(wait_s):
            sent_s = loop.time()
            try:
                request = KeepAliveRequest(session=self.number)
                answer = await self._store.call(KEEP_ALIVE, request, KeepAliveResponse)
            except MetadataError as error:
                log.info("metadata session not answered", session=f"{self.number:x}", reason=str(error))
                wait_s = _RETRY_S
                continue
            if answer.ended:
                log.warning("metadata session expired", session=f"{self.number:x}")
                self._end()
            elif not self._ended.is_set():
                self._alive_until_s = sent_s + self._ttl_s
            wait_s = self._ttl_s / 3

    def _end(self) -> None:
        self._alive_until_s = -math.inf
        self._ended.set()

    async def _ended_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True
