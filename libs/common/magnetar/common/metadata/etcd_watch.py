"""A watch on a prefix in etcd: one stream, resumed after the last change received.

etcd3aio's watch resumes after the store's revision instead of the last event, and skips compacted changes
silently; both lose changes. This watch resumes at the revision after the last complete event, and a
compaction ends it with WatchLost.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc
import grpc.aio
from etcd3aio import _protobuf as etcd
from magnetar.common.errors import MetadataError
from magnetar.common.metadata.etcd_connection import EtcdConnection, describe
from magnetar.common.metadata.store import WatchEvent
from magnetar.common.metadata.watch_queue import WatchQueue
from magnetar.common.obs.logs import get_logger

log = get_logger(__name__)

_BACKOFF_S: Final = 0.05
_BACKOFF_MAX_S: Final = 1.0

# Makes a member without a leader end the stream instead of staying silent.
_REQUIRE_LEADER: Final = (("hasleader", "true"),)


class EtcdWatch:
    """Fills a WatchQueue. Once `started` is done etcd has accepted the watch, and no later change is
    missed.
    """

    def __init__(self, connection: EtcdConnection, queue: WatchQueue) -> None:
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._queue = queue
        self._next_revision = 0
        self._partial: list[Any] = []
        self._token_renewed = False

    async def run(self) -> None:
        """Runs until the queue is lost; the owner cancels it when the queue ends."""
        backoff_s = _BACKOFF_S
        try:
            while True:
                resumed_at = self._next_revision
                ended = await self._follow_once()
                if ended is None:
                    return
                if self._next_revision > resumed_at:
                    backoff_s = _BACKOFF_S
                log.info(
                    "metadata watch interrupted",
                    prefix=self._queue.prefix,
                    next_revision=self._next_revision,
                    reason=ended,
                )
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, _BACKOFF_MAX_S)
        except Exception as error:
            self._queue.lose(f"an unexpected error: {error!r}")
            raise
        finally:
            if not self.started.done():
                self.started.set_result(None)

    async def _follow_once(self) -> str | None:
        """Follows one stream to its end; returns the reason, or None if the watch is over."""
        endpoint = await self._connection.ready(None)
        try:
            metadata = await self._connection.call_metadata(endpoint)
        except MetadataError as error:
            return str(error)
        call = endpoint.watch.Watch(metadata=(*_REQUIRE_LEADER, *metadata))
        self._partial = []
        try:
            async with asyncio.timeout(self._connection.request_timeout_s):
                await call.write(self._create_request())
                response = await call.read()
            while response is not grpc.aio.EOF:
                if response.canceled and self._token_expired(response.cancel_reason):
                    return f"the token was refused: {response.cancel_reason}"
                if not self._take(response):
                    return None
                response = await call.read()
            reason = "the stream was closed"
        except grpc.aio.AioRpcError as error:
            self._connection.token_refused(error)
            reason = describe(error)
        except TimeoutError:
            reason = "no answer"
        except asyncio.InvalidStateError as error:  # written to a call that has ended
            reason = str(error)
        finally:
            call.cancel()
        self._connection.leave(endpoint)
        return reason

    def _token_expired(self, reason: str) -> bool:
        """Whether etcd ended the watch because of its token, which is requested again; once in a row.

        A watch with an expired token ends as one without permission (https://github.com/etcd-io/etcd/issues/12385).
        """
        if "permission denied" not in reason or self._token_renewed:
            return False
        self._token_renewed = self._connection.drop_token()
        return self._token_renewed

    def _create_request(self) -> Any:
        key, range_end = prefix_range(self._queue.prefix)
        return etcd.WatchRequest(
            create_request=etcd.WatchCreateRequest(
                key=key, range_end=range_end, start_revision=self._next_revision, fragment=True
            )
        )

    def _take(self, response: Any) -> bool:
        """Queues the events of a response; returns False when the watch is over."""
        if response.compact_revision > 0:
            self._queue.lose(f"the changes up to revision {response.compact_revision} were compacted")
            return False
        if response.canceled:
            self._queue.lose(f"etcd ended it: {response.cancel_reason or 'no reason given'}")
            return False
        if response.created:
            self._token_renewed = False
            if self._next_revision == 0:
                self._next_revision = response.header.revision + 1
            if not self.started.done():
                self.started.set_result(None)
        self._partial.extend(response.events)
        if response.fragment:
            return True
        # Only whole revisions count, so that the stream never resumes within one.
        events, self._partial = self._partial, []
        for event in events:
            revision = event.kv.mod_revision
            removed = event.type == 1
            value = None if removed else event.kv.value
            self._queue.push(WatchEvent(event.kv.key.decode(), value, revision))
            self._next_revision = revision + 1
        return True


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """Returns the first key of a prefix and the first key after it; an empty prefix covers every key."""
    encoded = prefix.encode()
    if not encoded:
        return b"\0", b"\0"
    # The last byte of UTF-8 text is never 0xff.
    return encoded, encoded[:-1] + bytes([encoded[-1] + 1])
