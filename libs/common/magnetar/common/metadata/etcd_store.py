"""The cluster's metadata store, etcd. A key's version is etcd's mod_revision.

A transaction is one etcd transaction whose comparisons are the guards; its failure branch reads the guard
keys, so the reported version is the one that failed. A listing is read in pages at the revision of the first
page.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from typing import Any, Final

import grpc
from etcd3aio import _protobuf as etcd
from magnetar.common.errors import MetadataError, VersionMismatch
from magnetar.common.metadata.etcd_access import EtcdAccess
from magnetar.common.metadata.etcd_connection import (
    REQUEST_TIMEOUT_S,
    EtcdConnection,
    EtcdEndpoint,
    EtcdRefusal,
)
from magnetar.common.metadata.etcd_reads import EtcdReads, versioned
from magnetar.common.metadata.etcd_session import EtcdSession
from magnetar.common.metadata.etcd_watch import EtcdWatch, prefix_range
from magnetar.common.metadata.etcd_writes import EtcdWrites
from magnetar.common.metadata.store import (
    ANY_VERSION,
    Delete,
    Listing,
    Op,
    Put,
    Versioned,
    check_ops,
)
from magnetar.common.metadata.watch_queue import WATCH_QUEUE_EVENTS_MAX, WatchQueue
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.task_owner import TaskOwner

log = get_logger(__name__)

TXN_BYTES_MAX: Final = 1536 << 10
"""Size limit of a transaction in bytes, including keys and guards: etcd's --max-request-bytes."""

_PAGE_KEYS: Final = 1_000
_LISTING_ATTEMPTS: Final = 3
_CLOSED: Final = "the metadata store is closed"


class EtcdMetadataStore:
    """A MetadataStore in etcd; made by `open`, used on one event loop, ended by `close`."""

    def __init__(self, connection: EtcdConnection, watch_events_max: int, page_keys: int) -> None:
        self._connection = connection
        self._watch_events_max = watch_events_max
        self._page_keys = page_keys
        self._tasks = TaskOwner("etcd metadata")
        self._watches: dict[WatchQueue, asyncio.Task[None]] = {}
        self._starting: set[asyncio.Future[None]] = set()
        self._sessions: set[EtcdSession] = set()
        self._revision = 0
        self._reads = EtcdReads(self._range)
        self._writes = EtcdWrites(self._transaction)
        self._closed = False

    @staticmethod
    async def open(
        endpoints: Sequence[str],
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        watch_events_max: int = WATCH_QUEUE_EVENTS_MAX,
        page_keys: int = _PAGE_KEYS,
        access: EtcdAccess | None = None,
    ) -> EtcdMetadataStore:
        """Connect to a cluster by some or all of its members, each `host:port`.

        `access`: TLS and credentials. Raises ConfigError when one of its files cannot be read, MetadataError
        when no member answers within `request_timeout_s`, which later bounds each request.
        """
        connection = EtcdConnection(endpoints, request_timeout_s, access)
        store = EtcdMetadataStore(connection, watch_events_max, page_keys)
        try:
            await store._require_answer()
        except BaseException:
            await store.close()
            raise
        return store

    async def get(self, key: str) -> Versioned | None:
        await self._ready()
        return await self._reads.get(key)

    async def children(self, prefix: str) -> Listing:
        """Reads pages at one revision; starts again if that revision is compacted meanwhile."""
        await self._ready()
        with contextlib.suppress(EtcdRefusal):  # larger than what is received at once: pages are smaller
            found = await self._reads.children(prefix)
            if found is not None:
                return found
        for _ in range(_LISTING_ATTEMPTS - 1):
            try:
                return await self._list(prefix)
            except EtcdRefusal as refused:
                if refused.code is not grpc.StatusCode.OUT_OF_RANGE:
                    raise
        return await self._list(prefix)

    async def put(self, key: str, value: bytes, expected_version: int = ANY_VERSION) -> int:
        return await self.commit([Put(key, value, expected_version)])

    async def delete(self, key: str, expected_version: int = ANY_VERSION) -> None:
        await self.commit([Delete(key, expected_version)])

    async def commit(self, ops: Sequence[Op]) -> int:
        """Commits at most TXN_BYTES_MAX bytes; raises ValueError above."""
        check_ops(ops, has_session=False)
        await self._ready()
        return await self._writes.commit(ops)

    async def commit_with_lease(self, ops: Sequence[Op], lease: int) -> int:
        """Commits like `commit`; ephemeral keys are bound to the lease."""
        check_ops(ops, has_session=True)
        await self._ready()
        return await self._transaction(ops, lease)

    async def _transaction(self, ops: Sequence[Op], lease: int = 0) -> int:
        guards = [op for op in ops if op.expected_version != ANY_VERSION]
        request = etcd.TxnRequest(
            compare=[_compare(op) for op in guards],
            success=[_write(op, lease) for op in ops if isinstance(op, Put | Delete)],
            failure=[
                etcd.RequestOp(request_range=etcd.RangeRequest(key=op.key.encode(), keys_only=True))
                for op in guards
            ],
        )
        if request.ByteSize() > TXN_BYTES_MAX:
            raise ValueError(
                f"a metadata transaction of {request.ByteSize()} bytes: etcd takes at most {TXN_BYTES_MAX}; "
                f"split it"
            )
        first = ops[0].key if ops else ""
        answer = await self._connection.write(
            f"commit {len(ops)} operations from {first!r}", _txn_call, request
        )
        self._saw(answer)
        if not answer.succeeded:
            raise _mismatch(guards, answer)
        return int(answer.header.revision)

    def watch(self, prefix: str) -> WatchQueue:
        """Watches until closed or lost; later reads and writes wait until the watch is established."""
        queue = WatchQueue(prefix, self._watch_ended, self._watch_events_max, after=self._revision)
        if self._closed:
            queue.close()
            return queue
        follower = EtcdWatch(self._connection, queue)
        self._starting.add(follower.started)
        follower.started.add_done_callback(self._starting.discard)
        self._watches[queue] = self._tasks.spawn(follower.run(), f"watch {prefix}")
        return queue

    async def session(self, ttl_ms: int) -> EtcdSession:
        """Starts a lease. etcd counts whole seconds: the time is rounded up, to at least about two
        seconds.
        """
        await self._ready()
        asked_s = asyncio.get_running_loop().time()
        answer = await self._connection.write(
            "grant a lease",
            lambda endpoint: endpoint.lease.LeaseGrant,
            etcd.LeaseGrantRequest(TTL=math.ceil(ttl_ms / 1000)),
        )
        if self._closed:
            raise MetadataError(_CLOSED)
        session = EtcdSession(self, self._connection, answer.ID, float(answer.TTL), asked_s)
        self._sessions.add(session)
        self._tasks.spawn(session.keep_alive(), f"session {answer.ID:x}")
        return session

    async def revoke(self, lease: int) -> None:
        """Ends a session's lease. Lease ids are not reused, so this is retried like a read."""
        await self._watches_stand()
        request = etcd.LeaseRevokeRequest(ID=lease)
        try:
            await self._connection.read(
                f"revoke lease {lease:x}", lambda endpoint: endpoint.lease.LeaseRevoke, request
            )
        except EtcdRefusal as refused:
            if refused.code is not grpc.StatusCode.NOT_FOUND:
                raise

    def session_ended(self, session: EtcdSession) -> None:
        self._sessions.discard(session)

    async def close(self) -> None:
        """Ends the sessions and watches and waits for requests in progress; idempotent."""
        if self._closed:
            return
        self._closed = True
        ends = await asyncio.gather(
            *(session.close() for session in list(self._sessions)), return_exceptions=True
        )
        for end in ends:
            if isinstance(end, Exception):
                log.warning("metadata session left to its lease", reason=str(end))
        for queue in list(self._watches):
            queue.close()
        await self._tasks.close()
        await self._connection.close()

    # --- internal ---

    async def _require_answer(self) -> None:
        """Read a key that nothing writes. Users with least rights may not read it: a refusal is an answer."""
        try:
            await self.get("/magnetar")
        except EtcdRefusal as refused:
            if refused.code is not grpc.StatusCode.PERMISSION_DENIED:
                raise

    async def _ready(self) -> None:
        if self._closed:
            raise MetadataError(_CLOSED)
        await self._watches_stand()
        if self._closed:
            raise MetadataError(_CLOSED)

    async def _watches_stand(self) -> None:
        """Waits until every requested watch is established, so that later reads and writes come after it."""
        if not self._starting:
            return
        _, waiting = await asyncio.wait(list(self._starting), timeout=self._connection.request_timeout_s)
        if waiting:
            raise MetadataError(
                f"etcd at {self._connection.addresses} did not start a watch in time; nothing was sent"
            )

    async def _range(self, operation: str, request: Any) -> Any:
        """Reads by a RangeRequest, or by a TxnRequest of ranges alone."""
        known = self._revision
        method = _txn_call if isinstance(request, etcd.TxnRequest) else _range_call
        answer = await self._connection.read(operation, method, request)
        # Reads are linearizable: no later read returns an earlier state, whichever member answers.
        if answer.header.revision < known:
            self._went_back(known, answer.header.revision)
        self._saw(answer)
        return answer

    def _went_back(self, known: int, revision: int) -> None:
        """Handles a decreased revision: etcd was restored or replaced, and every follower must start
        again.
        """
        log.error("metadata is older than it was: etcd was restored or replaced", was=known, is_now=revision)
        self._revision = revision
        for queue in list(self._watches):
            queue.lose(f"etcd went back from revision {known} to {revision}")

    async def _list(self, prefix: str) -> Listing:
        key, range_end = prefix_range(prefix)
        limit, revision = self._page_keys, 0
        items: list[Versioned] = []
        while True:
            request = etcd.RangeRequest(key=key, range_end=range_end, limit=limit, revision=revision)
            try:
                page = await self._range(f"list {prefix!r}", request)
            except EtcdRefusal as refused:
                if refused.code is not grpc.StatusCode.RESOURCE_EXHAUSTED or limit == 1:
                    raise
                limit = max(limit // 8, 1)  # the page was larger than what is received at once
                continue
            revision = revision or page.header.revision
            items.extend(map(versioned, page.kvs))
            if not page.more:
                return Listing(revision, items)
            key = page.kvs[-1].key + b"\0"

    def _saw(self, answer: Any) -> None:
        if answer.header.revision > self._revision:
            self._revision = answer.header.revision

    def _watch_ended(self, queue: WatchQueue) -> None:
        task = self._watches.pop(queue, None)
        if task is not None:
            task.cancel()


def _range_call(endpoint: EtcdEndpoint) -> Any:
    return endpoint.kv.Range


def _txn_call(endpoint: EtcdEndpoint) -> Any:
    return endpoint.kv.Txn


def _compare(op: Op) -> Any:
    # An absent key compares as revision 0.
    return etcd.Compare(
        result=etcd.Compare.EQUAL,
        target=etcd.Compare.MOD,
        key=op.key.encode(),
        mod_revision=op.expected_version,
    )


def _write(op: Put | Delete, lease: int) -> Any:
    if isinstance(op, Put):
        lease = lease if op.ephemeral else 0
        return etcd.RequestOp(request_put=etcd.PutRequest(key=op.key.encode(), value=op.value, lease=lease))
    return etcd.RequestOp(request_delete_range=etcd.DeleteRangeRequest(key=op.key.encode()))


def _mismatch(guards: list[Op], answer: Any) -> VersionMismatch:
    """Returns the first failed guard, from the values read in the same transaction's failure branch."""
    for op, response in zip(guards, answer.responses, strict=True):
        pairs = response.response_range.kvs
        actual = pairs[0].mod_revision if pairs else 0
        if actual != op.expected_version:
            return VersionMismatch(op.key, op.expected_version, actual)
    raise AssertionError("etcd failed a transaction whose guards all hold")
