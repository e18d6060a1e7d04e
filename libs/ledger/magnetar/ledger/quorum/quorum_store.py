"""Ledgers on bookies: the ledger store of a broker in a cluster.

Metadata lists the ledgers, bookies hold the entries. A recovery fences the ledger wherever its writer is; a
writer in this process detects that at once, and readers in this process follow its last add confirmed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.common.errors import NoSuchLedger, NotEnoughBookies
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import MetadataStore, Op
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.common.obs.logs import get_logger
from magnetar.common.runtime.clock import Clock
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients, BookieUnreachable
from magnetar.ledger.ledger_catalog import LedgerCatalog
from magnetar.ledger.ledger_store import ClosedLedger, LedgerListener, LedgerRef, Obstacle
from magnetar.ledger.quorum.bookie_probe import Revival
from magnetar.ledger.quorum.config import QuorumConfig
from magnetar.ledger.quorum.context import QuorumContext
from magnetar.ledger.quorum.pending_adds import AppendBudget
from magnetar.ledger.quorum.placement import BookieRegistryView, Placement
from magnetar.ledger.quorum.quarantine import Quarantine
from magnetar.ledger.quorum.reader import QuorumLedgerReader, ReadContext, ReadOptions
from magnetar.ledger.quorum.recovery import LedgerRecovery, RecoveryOptions
from magnetar.ledger.quorum.replica_order import ReplicaOrder
from magnetar.ledger.quorum.striping import Fragment, LedgerLayout, Striping
from magnetar.ledger.quorum.write_health import Storing
from magnetar.ledger.quorum.writer import QuorumLedgerWriter

log = get_logger(__name__)

HINTS_MAX: Final = 32
"""Maximum delete hints in flight; without a hint, bookies detect deletions themselves."""


class QuorumLedgerStore:
    """Implements `ledger_store.LedgerStore`. Create it on its event loop; `close` ends its tasks.

    The caller keeps ownership of clients, registry (`bookie_protocol.registry.BookieRegistry`) and metadata.
    """

    def __init__(
        self,
        clients: BookieClients,
        registry: BookieRegistryView,
        metadata: MetadataStore,
        keys: Keys,
        clock: Clock,
        rng: random.Random,
        config: QuorumConfig | None = None,
        *,
        read_options: ReadOptions | None = None,
        recovery_options: RecoveryOptions | None = None,
        order: ReplicaOrder | None = None,
    ) -> None:
        config = config or QuorumConfig()
        quarantine = Quarantine(clock, config)
        catalog = LedgerCatalog(metadata, keys, clock, rng)
        self.placement = Placement(registry, quarantine, rng, config)
        tasks = TaskOwner("quorum ledgers")
        self._context = QuorumContext(
            clients=clients,
            metadata=metadata,
            keys=keys,
            catalog=catalog,
            placement=self.placement,
            clock=clock,
            config=config,
            budget=AppendBudget(config.pending_bytes_max),
            tasks=tasks,
            revival=Revival(clients, tasks),
            storing=Storing(config.add_entry_timeout_s),
        )
        self._reads = ReadContext(clients, order or ReplicaOrder(clock), read_options or ReadOptions())
        self._recovery = LedgerRecovery(
            catalog, metadata, keys, self._reads, self._context.placement.replacement, clock, recovery_options
        )
        self._writers: dict[LedgerRef, QuorumLedgerWriter] = {}
        registry.on_change(self._bookies_changed)

    async def create(
        self,
        listener: LedgerListener,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        properties: dict[str, str],
        with_ops: Callable[[LedgerRef], Sequence[Op]] | None = None,
    ) -> QuorumLedgerWriter:
        """Creates a ledger; see `LedgerStore.create`. Raises NotEnoughBookies, ValueError for contradictory
        quorums.
        """
        striping = Striping(ensemble_size, write_quorum, ack_quorum)
        try:
            ensemble = self._context.placement.new_ensemble(striping)
        except NotEnoughBookies as error:
            self._context.storing.failed(asyncio.get_running_loop().time(), str(error))
            raise
        layout = LedgerLayout(striping, [Fragment(0, tuple(ensemble))])
        value = LedgerMetadata(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            last_entry_id=-1,
            properties=properties,
        )
        layout.write_to(value)
        ref, stored = await self._context.catalog.create(value, with_ops)
        writer = QuorumLedgerWriter(self._context, ref, layout, stored, listener, self._gone)
        self._writers[ref] = writer
        return writer

    async def open(self, ref: LedgerRef) -> QuorumLedgerReader:
        """Opens a ledger; see `LedgerStore.open`. For a ledger written elsewhere the reader's LAC comes from
        `refresh`.
        """
        _, value = await self._context.catalog.get(ref)
        return self._reader(ref, value)

    async def recover(
        self, ref: LedgerRef, with_ops: Callable[[ClosedLedger], Sequence[Op]] | None = None
    ) -> tuple[QuorumLedgerReader, ClosedLedger]:
        """Recovers a ledger; see `LedgerStore.recover`. Raises NotEnoughBookies while too few bookies answer
        with certainty.
        """
        found = await self._context.catalog.find(ref)
        writer = self._writers.get(ref)
        if found is None:
            raise NoSuchLedger(f"ledger {ref.id} does not exist, or exists under another key")
        if writer is not None:
            writer.fenced()
        value, closed = await self._recovery.recover(ref, with_ops)
        self._gone(ref)
        return self._reader(ref, value), closed

    async def delete(self, ref: LedgerRef, with_ops: Sequence[Op] = ()) -> None:
        """Deletes a ledger; see `LedgerStore.delete`. Its bookies get a hint; their garbage collection
        decides.
        """
        found = await self._context.catalog.find(ref)
        await self._context.catalog.delete(ref, with_ops)
        writer = self._writers.pop(ref, None)
        if writer is not None:
            writer.fenced()
        if found is not None and len(self._context.tasks) < HINTS_MAX:
            bookie_ids = sorted({each for fragment in found[1].fragments for each in fragment.bookie_ids})
            self._context.tasks.spawn(self._hint(ref, bookie_ids), f"delete hints of {ref.id}")

    async def disk_usage(self, copies: int) -> float | None:
        """See `LedgerStore.disk_usage`. Asks the writable bookies."""
        calls = [self._context.clients.client(each).describe() for each in self.placement.writable_ids()]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        used: list[float] = []
        for answer in answers:
            if isinstance(answer, BookieUnreachable):
                continue
            if isinstance(answer, BaseException):
                raise answer
            if answer.total_bytes:
                used.append(1 - answer.free_bytes / answer.total_bytes)
        return sorted(used)[copies - 1] if len(used) >= copies else None

    async def space_of(self, bookie_id: str) -> tuple[int, int] | None:
        """Returns (free, total) bytes of a bookie's disk, as it says; None when it does not answer."""
        try:
            found = await self._context.clients.client(bookie_id).describe()
        except BookieUnreachable:
            return None
        return found.free_bytes, found.total_bytes

    def obstacle(self, ack_quorum: int) -> Obstacle | None:
        """See `LedgerStore.obstacle`."""
        storing, writable = self._context.storing, self.placement.writable
        if writable < ack_quorum and storing.quiet(asyncio.get_running_loop().time()):
            few = f"an entry needs {ack_quorum} bookies to be confirmed, and {writable} are up and writable"
            return Obstacle(few, seen_to_end=True)
        return None if storing.failure is None else Obstacle(storing.failure, seen_to_end=False)

    async def close(self) -> None:
        """Ends background tasks; idempotent. Ledgers stay open, and their writers stop sending."""
        await self._context.tasks.close()
        for writer in list(self._writers.values()):
            writer.abandon()

    # --- internal ---

    def _reader(self, ref: LedgerRef, value: LedgerMetadata) -> QuorumLedgerReader:
        async def reload() -> LedgerMetadata:
            return (await self._context.catalog.get(ref))[1]

        if value.state == LedgerMetadata.CLOSED:
            layout = LedgerLayout.of(value)
            return QuorumLedgerReader(ref, layout, self._reads, reload=reload, end=value.last_entry_id)
        writer = self._writers.get(ref)
        if writer is None:
            return QuorumLedgerReader(ref, LedgerLayout.of(value), self._reads, reload=reload)
        return QuorumLedgerReader(
            ref, writer.layout, self._reads, reload=reload, confirmed=lambda: writer.last_confirmed
        )

    async def _hint(self, ref: LedgerRef, bookie_ids: Sequence[str]) -> None:
        for bookie_id in bookie_ids:
            try:
                await self._context.clients.client(bookie_id).delete_hint([ref])
            except BookieUnreachable as error:
                log.info("a delete hint was not heard", ledger=ref.id, bookie=bookie_id, reason=str(error))

    def _bookies_changed(self) -> None:
        for writer in list(self._writers.values()):
            writer.bookies_changed()

    def _gone(self, ref: LedgerRef) -> None:
        self._writers.pop(ref, None)
