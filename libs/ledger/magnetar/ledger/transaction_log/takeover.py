"""Takeover of a coordinator: fences the former owner, and rebuilds the state from its log.

The owner epoch in the head is raised by compare-and-set, so the former owner's metadata writes fail from then
on; then the log's ledger is recovered (fenced and closed) and replayed. The same write moves the numbers past
every number that the former owner may have given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar.common.errors import (
    DataCorruption,
    NoSuchLedger,
    OwnershipLost,
    StorageError,
    UnknownOutcome,
    VersionMismatch,
)
from magnetar.common.metadata.restoration import read_restoration
from magnetar.common.metadata.store import ABSENT
from magnetar.common.metadata.values import TransactionLogHead, decode, encode
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.managed_ledger.context import ManagedLedgerContext
from magnetar.ledger.managed_ledger.record_replay import replay_records
from magnetar.ledger.transaction_log.coordinator_state import CoordinatorState
from magnetar.ledger.transaction_log.log_head import LogHeadKey
from magnetar.ledger.transaction_log.log_loader import LogLoader
from magnetar.ledger.transaction_log.transaction_log import LogLimits, TransactionLog

log = get_logger(__name__)

_ATTEMPTS_MAX: Final = 5

NUMBERS_PER_MS: Final = 1_000
"""Numbers that a coordinator certainly does not exceed per millisecond. A restored head may know a floor that
was passed long ago, so numbers begin anew above the restoration's time in these units.
"""

DEFAULT_LIMITS: Final = LogLimits()


async def take_over_log(
    ctx: ManagedLedgerContext,
    coordinator_id: int,
    on_lost: Callable[[StorageError], None],
    limits: LogLimits = DEFAULT_LIMITS,
) -> TransactionLog:
    """Takes over a coordinator's log, which is created with the first one; its caller closes it.

    Raises OwnershipLost if another owner took over meanwhile, DataCorruption, UnsupportedFormat, and errors
    of storage and metadata; a retry is safe.
    """
    restoration = await read_restoration(ctx.metadata, ctx.keys)
    restored_ms = 0 if restoration is None else restoration.restored_ms
    head, start = await _claim(ctx, coordinator_id, restored_ms, limits)
    ref = head.record_ledger
    state = CoordinatorState() if ref is None else await _replay(ctx, coordinator_id, head, ref)
    state.next_number = max(state.next_number, start)
    taken = TransactionLog(ctx, coordinator_id, head, state, on_lost, limits)
    if state.transactions:
        taken.roll_soon()
    log.info(
        "transaction log taken over",
        coordinator=coordinator_id,
        transactions=len(state.transactions),
        outcomes=len(state.outcomes),
        next_number=state.next_number,
    )
    return taken


async def _claim(
    ctx: ManagedLedgerContext, coordinator_id: int, restored_ms: int, limits: LogLimits
) -> tuple[LogHeadKey, int]:
    """Raises the owner epoch, or creates the head; returns it with the first number of this owner."""
    key = ctx.keys.transaction_log_head(coordinator_id)
    for _ in range(_ATTEMPTS_MAX):
        found = await ctx.metadata.get(key)
        if found is None:
            head = TransactionLogHead(created_ms=ctx.clock.wall_ms())
        else:
            head = decode(TransactionLogHead, found.value)
        start = max(head.next_number_floor, restored_ms * NUMBERS_PER_MS)
        head.owner_epoch += 1
        head.next_number_floor = start + limits.numbers_ahead
        data = encode(head)
        try:
            version = await ctx.metadata.put(key, data, ABSENT if found is None else found.version)
        except (VersionMismatch, UnknownOutcome) as error:
            log.info("taking a coordinator over again", coordinator=coordinator_id, error=str(error))
            continue
        taken = LogHeadKey(ctx.metadata, key, data, version)
        taken.restored_ms = restored_ms
        return taken, start
    raise OwnershipLost(f"coordinator {coordinator_id} is being taken over by others as well")


async def _replay(
    ctx: ManagedLedgerContext, coordinator_id: int, head: LogHeadKey, ref: LedgerRef
) -> CoordinatorState:
    """Recovers the log's ledger and reads it.

    A head from a backup may name a ledger that was replaced since and is deleted: then nothing is left of
    the transactions, and those that were open count as aborted.
    """
    try:
        return await _read(ctx, coordinator_id, ref)
    except (NoSuchLedger, DataCorruption) as error:
        if head.restored_ms and head.decode().restored_ms != head.restored_ms:
            log.error(
                "transactions lost: metadata was restored, and the log that it names is gone",
                coordinator=coordinator_id,
                ledger=ref.id,
                error=str(error),
            )
            return CoordinatorState()
        if isinstance(error, NoSuchLedger):
            raise DataCorruption(
                f"transaction log ledger {ref.id} of coordinator {coordinator_id} is gone: {error}. The "
                "coordinator is not loaded, because a decision could be lost; restore the ledger"
            ) from error
        raise


async def _read(ctx: ManagedLedgerContext, coordinator_id: int, ref: LedgerRef) -> CoordinatorState:
    reader, closed = await ctx.ledgers.recover(ref)
    loader = LogLoader(coordinator_id, ref.id)
    await replay_records(reader, closed, loader.feed, loader.damaged)
    return loader.finish()
