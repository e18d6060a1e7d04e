"""Limbo: when data may be missing, every ledger that is not closed is marked before anything is served.

The order makes it safe. A file `doubt` is written before the log truncates or claims anything; the marks
follow; the file is removed once all marks are durable. A crash in between leaves the file, and the next start
begins again.

A ledger in limbo is also fenced: this bookie may have confirmed a fence and lost it, and an old writer must
not get its acknowledgement here (storage contract, section 3). That applies to every ledger that existed at
that moment, including closed ones and those that metadata no longer assigns to this bookie. Ids come from one
counter, so one bound covers them. It is stored in metadata, which no disk image can revert.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from magnetar.bookie.data_check import note_unchecked
from magnetar.bookie.doubt_note import DOUBT, Note, joined_note, read_note
from magnetar.bookie.ledger_storage import LedgerStorage, WrongKey
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.store import Listing, MetadataStore
from magnetar.common.metadata.values import Counter as IdCounter
from magnetar.common.metadata.values import LedgerMetadata, decode
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.runtime.blocking import BlockingPool
from magnetar.common.runtime.disk import Disk, replace_file
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.segment_log.log import SegmentLog
from magnetar.ledger.segment_log.torn_group import Torn
from prometheus_client import Counter

log = get_logger(__name__)

MARKED_AT_ONCE: Final = 500
REASON_LENGTH_MAX: Final = 4096

DOUBTS = Counter(
    "magnetar_bookie_doubts",
    "Starts at which data may have been missing: ledgers that were not closed were marked limbo.",
    registry=REGISTRY,
)


def note_doubt(disk: Disk, reason: str, torn: Torn | None = None) -> None:
    """Records durably that marks are needed: on every ledger that is not closed, or, with `torn`, on those of
    a torn group; combined with an earlier start's note. Blocks; raises OSError.
    """
    DOUBTS.inc()
    named = None if torn is None or torn.ledgers is None else len(torn.ledgers)
    log.error(
        "data may be missing: ledgers that are not closed will be marked limbo",
        reason=reason,
        ledgers="every one" if named is None else named,
    )
    replace_file(disk, DOUBT, joined_note(read_note(disk), Note(reason, torn)).encode())


async def mark_doubtful(
    disk: Disk,
    pool: BlockingPool,
    metadata: MetadataStore,
    keys: Keys,
    bookie_id: str,
    segment_log: SegmentLog,
    ledgers: LedgerStorage,
    make_ledger: Callable[[LedgerRef], object],
    record: Callable[[str, int], Awaitable[None]],
) -> None:
    """Sets the marks required by a recorded doubt; nothing without one.

    Marked are ledgers that metadata does not call closed and that this bookie stores, or should; after a torn
    group only, those named in it that lost data. `record(reason, fenced below this ledger id)` informs
    metadata. Raises MetadataError, LogFailed or OSError: then the next start begins again.
    """
    note = await pool.run(lambda: read_note(disk))
    if note is None:
        return
    listing = await metadata.children(keys.ledgers_prefix)
    named, closed = await pool.run(lambda: _sort_out(listing, keys, bookie_id))
    torn = note.torn
    touched = {*named, *ledgers.refs()} if torn is None or torn.ledgers is None else torn.ledgers
    doubtful = sorted(touched - closed, key=lambda ref: (ref.id, ref.key))
    for start in range(0, len(doubtful), MARKED_AT_ONCE):
        some = doubtful[start : start + MARKED_AT_ONCE]
        await _mark(segment_log, ledgers, some, make_ledger, torn=torn is not None)
    if torn is None:
        # A fence in a torn group was never answered, so no confirmed fence is lost with it.
        ledgers.fenced_below = await _fenced_below(metadata, keys, listing, ledgers)
    await record(note.reason[:REASON_LENGTH_MAX], ledgers.fenced_below)
    await pool.run(lambda: _forget(disk))
    log.warning(
        "ledgers marked limbo until they are compared with their other replicas", ledgers=len(doubtful)
    )


async def _mark(
    segment_log: SegmentLog,
    ledgers: LedgerStorage,
    refs: Sequence[LedgerRef],
    make_ledger: Callable[[LedgerRef], object],
    *,
    torn: bool,
) -> None:
    waiting = []
    for ref in refs:
        try:
            known = ledgers.find(ref.id, ref.key)
        except WrongKey as error:
            log.error("a ledger in doubt is here under another key", ledger=ref.id, error=str(error))
            continue
        if known is None:
            make_ledger(ref)
        waiting += [segment_log.fence(ref), segment_log.set_limbo(ref, torn=torn)]
    await asyncio.gather(*waiting)


def _sort_out(listing: Listing, keys: Keys, bookie_id: str) -> tuple[set[LedgerRef], set[LedgerRef]]:
    """Returns (ledgers not closed and on this bookie, closed ledgers). Blocks while decoding."""
    named: set[LedgerRef] = set()
    closed: set[LedgerRef] = set()
    for item in listing.items:
        value = decode(LedgerMetadata, item.value)
        ref = LedgerRef(keys.ledger_id_of(item.key), value.ref.key)
        if value.state == LedgerMetadata.CLOSED:
            closed.add(ref)
        elif any(bookie_id in fragment.bookie_ids for fragment in value.fragments):
            named.add(ref)
    return named, closed


async def _fenced_below(metadata: MetadataStore, keys: Keys, listing: Listing, ledgers: LedgerStorage) -> int:
    """Returns an id above those of all ledgers ever created."""
    found = await metadata.get(keys.ledger_id_counter)
    following = 0 if found is None else decode(IdCounter, found.value).next
    known = [ref.id for ref in ledgers.refs()]
    listed = [keys.ledger_id_of(item.key) for item in listing.items]
    return max(ledgers.fenced_below, following, *(ledger_id + 1 for ledger_id in (*known, *listed)))


def _forget(disk: Disk) -> None:
    note_unchecked(disk)
    disk.unlink(DOUBT)
    disk.sync_dir("")
