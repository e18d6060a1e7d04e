"""Ledgers in several logs of one machine: the ledger store of a standalone's worker.

Each worker writes into a log of its own. A ledger's metadata names the log that has it, in the property
`log`; a ledger without it is in the first log, which a standalone without workers has, too. Ledgers of logs
that other workers serve are read and fenced by the calls of a bookie.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from magnetar.common.errors import StorageError
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore, Op
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients, BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.ledger_store import (
    ClosedLedger,
    LedgerListener,
    LedgerReader,
    LedgerRef,
    LedgerWriter,
    Obstacle,
)
from magnetar.ledger.local_store import LocalLedgerStore
from magnetar.ledger.quorum.reader import QuorumLedgerReader, ReadContext, ReadOptions
from magnetar.ledger.quorum.replica_order import ReplicaOrder
from magnetar.ledger.quorum.striping import Fragment, LedgerLayout, Striping

log = get_logger(__name__)

FIRST_LOG: Final = "ledgers"
"""Name and directory of the log whose ledgers name none."""

LOG_PROPERTY: Final = "log"

HINTS_MAX: Final = 32
"""Maximum delete hints in flight."""


class LogNotServed(StorageError):
    """The log of a ledger is not served now: its worker is being restarted."""

    retriable = True


class SeveralLogs:
    """Implements `ledger_store.LedgerStore`: new ledgers go to the log `own`."""

    def __init__(
        self,
        own: str,
        here: Mapping[str, LocalLedgerStore],
        clients: BookieClients | None,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """`here` has the logs of this process by name, `own` among them; it closes with this store.
        `clients` reach the logs of others by name; None when there are no others. The caller closes them.
        """
        self._own = own
        self._here = here
        self._clients = clients
        self._catalog = LedgerCatalog(metadata, keys, clock, rng)
        self._reads = None if clients is None else ReadContext(clients, ReplicaOrder(clock), ReadOptions())
        self._tasks = TaskOwner("several logs")

    async def create(
        self,
        listener: LedgerListener,
        *,
        ensemble_size: int = 1,
        write_quorum: int = 1,
        ack_quorum: int = 1,
        properties: dict[str, str],
        with_ops: Callable[[LedgerRef], Sequence[Op]] | None = None,
    ) -> LedgerWriter:
        """See `LedgerStore.create`. There is one copy, whatever the quorums."""
        named = properties if self._own == FIRST_LOG else {**properties, LOG_PROPERTY: self._own}
        return await self._here[self._own].create(listener, properties=named, with_ops=with_ops)

    async def open(self, ref: LedgerRef) -> LedgerReader:
        """See `LedgerStore.open`. Raises LogNotServed for the log of no process."""
        _, value = await self._catalog.get(ref)
        name = log_of(value)
        store = self._here.get(name)
        return await store.open(ref) if store is not None else self._reader(ref, name, value)

    async def recover(
        self, ref: LedgerRef, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None = None
    ) -> tuple[LedgerReader, ClosedLedger]:
        """See `LedgerStore.recover`. Raises LogNotServed while the worker of its log does not answer."""
        name = log_of((await self._catalog.get(ref))[1])
        store = self._here.get(name)
        if store is not None:
            return await store.recover(ref, with_ops)
        value, closed = await self._catalog.close_fenced(
            ref, lambda ref: self._fence_elsewhere(ref, name), with_ops
        )
        return self._reader(ref, name, value), closed

    async def delete(self, ref: LedgerRef, with_ops: Sequence[Op] = ()) -> None:
        """See `LedgerStore.delete`. The worker of another log gets a hint; its garbage collection decides."""
        found = await self._catalog.find(ref)
        name = self._own if found is None else log_of(found[1])
        store = self._here.get(name)
        if store is not None:
            await store.delete(ref, with_ops)
            return
        await self._catalog.delete(ref, with_ops)
        if self._clients is not None and len(self._tasks) < HINTS_MAX:
            self._tasks.spawn(self._hint(self._clients, ref, name), f"delete hint of {ref.id}")

    async def disk_usage(self, copies: int) -> float | None:
        """See `LedgerStore.disk_usage`."""
        return await self._here[self._own].disk_usage(copies)

    def obstacle(self, ack_quorum: int) -> Obstacle | None:
        """See `LedgerStore.obstacle`."""
        return self._here[self._own].obstacle(ack_quorum)

    async def close(self) -> None:
        """Ends hints, then closes the logs of this process; idempotent."""
        await self._tasks.close()
        for store in self._here.values():
            await store.close()

    # --- internal ---

    def _reader(self, ref: LedgerRef, name: str, value: LedgerMetadata) -> QuorumLedgerReader:
        layout = _layout(name)

        async def reload() -> LedgerMetadata:
            _, now = await self._catalog.get(ref)
            layout.write_to(now)
            return now

        if self._reads is None:
            raise LogNotServed(_missing(ref, name))
        end = value.last_entry_id if value.state == LedgerMetadata.CLOSED else None
        return QuorumLedgerReader(ref, layout, self._reads, reload=reload, end=end)

    async def _fence_elsewhere(self, ref: LedgerRef, name: str) -> ClosedLedger:
        if self._clients is None:
            raise LogNotServed(_missing(ref, name))
        try:
            state = await self._clients.client(name).fence(ref)
        except BookieUnreachable as error:
            raise LogNotServed(
                f"ledger {ref.id} is in {name}, whose worker does not answer: {error}"
            ) from error
        if state.code != OK:
            raise LogNotServed(f"ledger {ref.id} in {name} cannot be fenced now: {state.reason}")
        return ClosedLedger(ref, state.last_entry_id, state.byte_length)

    async def _hint(self, clients: BookieClients, ref: LedgerRef, name: str) -> None:
        try:
            await clients.client(name).delete_hint([ref])
        except BookieUnreachable as error:
            log.info("a delete hint was not heard", ledger=ref.id, log=name, reason=str(error))


def log_of(value: LedgerMetadata) -> str:
    """Returns the name of the log that has a ledger."""
    return value.properties.get(LOG_PROPERTY, FIRST_LOG)


def _layout(name: str) -> LedgerLayout:
    return LedgerLayout(Striping(1, 1, 1), [Fragment(0, (name,))])


def _missing(ref: LedgerRef, name: str) -> str:
    return f"ledger {ref.id} is in {name}/, which the data directory lacks: put it back"
