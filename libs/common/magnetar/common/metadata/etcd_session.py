"""A session in etcd: a lease that its owner keeps alive, and two signals of its end.

The owner sends three keep-alives per lease time. The owner of an ephemeral key must tell two cases apart:
`expired` means that etcd ended the lease, and the owner gives up at once; `unheard` means silence from etcd,
and the owner may go on and prove its ownership otherwise.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final, Protocol

import grpc
import grpc.aio
from etcd3aio import _protobuf as etcd
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.etcd_connection import EtcdConnection, EtcdRefusal, describe
from magnetar.common.metadata.store import ANY_VERSION, Op, Put
from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

_ENDED: Final = "the metadata session has ended; start another"
_RETRY_S: Final = 0.1


class LeaseOwner(Protocol):
    """The part of the store that a session uses."""

    async def commit_with_lease(self, ops: Sequence[Op], lease: int) -> int: ...

    async def revoke(self, lease: int) -> None: ...

    def session_ended(self, session: EtcdSession) -> None: ...


class EtcdSession:
    """A lease that was granted at loop time `granted_s` for `ttl_s`; `keep_alive` has to run."""

    def __init__(
        self, store: LeaseOwner, connection: EtcdConnection, lease: int, ttl_s: float, granted_s: float
    ) -> None:
        self.lease = lease
        self.ttl_s = ttl_s
        self._store = store
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._expired = asyncio.Event()
        self._unheard = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._alive_until_s = 0.0
        self._heard(granted_s)

    async def put_ephemeral(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        return await self.commit([Put(key, value, expected_version, ephemeral=True)])

    async def commit(self, ops: Sequence[Op]) -> int:
        if self._expired.is_set():
            raise MetadataError(_ENDED)
        try:
            return await self._store.commit_with_lease(ops, self.lease)
        except EtcdRefusal as refused:
            if refused.code is grpc.StatusCode.NOT_FOUND:
                self._end()
                raise MetadataError(_ENDED) from refused
            raise

    async def expired(self) -> None:
        """Returns once etcd reported the lease as gone, or the session was closed."""
        await self._expired.wait()

    @property
    def has_ended(self) -> bool:
        return self._expired.is_set()

    @property
    def alive_until_s(self) -> float:
        return self._alive_until_s

    async def unheard(self) -> None:
        """Returns once etcd was silent for the session's time, or the session expired: the keys may be gone.

        etcd measures time itself (from the start again after a restart), so the session may still live;
        keep-alives resume as soon as etcd answers.
        """
        await self._unheard.wait()

    @property
    def is_heard(self) -> bool:
        """Returns False while `unheard` returns at once."""
        return not self._unheard.is_set()

    async def close(self) -> None:
        """Revokes the lease. Raises MetadataError if etcd did not answer; the lease then expires by
        itself.
        """
        if self._expired.is_set():
            return
        self._end()
        await self._store.revoke(self.lease)

    async def keep_alive(self) -> None:
        """Sends keep-alives until the session has ended."""
        while not self._expired.is_set():
            await self._sleep(self.ttl_s / 3)
            while not self._expired.is_set() and not await self._beat():
                await self._sleep(_RETRY_S)

    async def _beat(self) -> bool:
        """Sends one keep-alive; returns whether etcd answered."""
        endpoint = await self._connection.ready(None)
        sent_s = self._loop.time()
        try:
            metadata = await self._connection.call_metadata(endpoint)
        except MetadataError as error:
            log.info("metadata session not answered", lease=f"{self.lease:x}", reason=str(error))
            return False
        call = endpoint.lease.LeaseKeepAlive(metadata=metadata)
        try:
            async with asyncio.timeout(min(self.ttl_s / 3, self._connection.request_timeout_s)):
                await call.write(etcd.LeaseKeepAliveRequest(ID=self.lease))
                response = await call.read()
            reason = "the stream was closed"
        except grpc.aio.AioRpcError as error:
            self._connection.token_refused(error)
            response, reason = grpc.aio.EOF, describe(error)
        except (TimeoutError, asyncio.InvalidStateError) as error:
            response, reason = grpc.aio.EOF, repr(error)
        finally:
            call.cancel()
        if response is grpc.aio.EOF:
            log.info("metadata session not answered", lease=f"{self.lease:x}", reason=reason)
            self._connection.leave(endpoint)
            return False
        self._answered(response, sent_s)
        return True

    def _answered(self, response: Any, sent_s: float) -> None:
        if response.TTL > 0:
            self._heard(sent_s)
        elif not self._expired.is_set():
            log.warning("metadata session expired", lease=f"{self.lease:x}")
            self._end()

    def _heard(self, at_s: float) -> None:
        """Records an answer to a keep-alive sent at `at_s`; etcd counts from its answer, which is later."""
        if self._expired.is_set():
            return
        self._unheard.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._alive_until_s = at_s + self.ttl_s
        self._timer = self._loop.call_at(self._alive_until_s, self._unheard.set)

    def _end(self) -> None:
        self._alive_until_s = -math.inf
        self._expired.set()
        self._unheard.set()
        if self._timer is not None:
            self._timer.cancel()
        self._store.session_ended(self)

    async def _sleep(self, seconds: float) -> None:
        """Sleeps, or returns earlier when the session ends."""
        try:
            async with asyncio.timeout(seconds):
                await self._expired.wait()
        except TimeoutError:
            pass
