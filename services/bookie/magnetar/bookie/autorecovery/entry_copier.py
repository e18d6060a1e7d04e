"""Copies what one bookie should have of a range of entries, from sound replicas, durably.

Each record is checked by its CRCs before it is passed on, as it is; a replica that lacks or has damaged an
entry is followed by the next. Copying again what is there already is harmless: records are equal.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.bookie.autorecovery.metrics import BYTES_COPIED, ENTRIES_COPIED
from magnetar.bookie.autorecovery.throttle import Throttle
from magnetar.common.errors import DataCorruption, StorageError, UnsupportedFormat
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients, BookieUnreachable, EncodedAppend
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    BACKPRESSURE,
    OK,
    UNREACHABLE,
    Append,
    AppendBatch,
    Code,
    Record,
)
from magnetar.ledger.bookie_protocol.records import check_record, decode_run, encode_append
from magnetar.ledger.ledger_store import LedgerRef
from magnetar.ledger.quorum.striping import Striping

READ_BYTES_MAX: Final = 1 << 20
"""Asked for at a time; twice as much may be in flight: one part being read, one being written."""

PART_RECORDS_MAX: Final = 256
"""Checked and sent at a time: of small records a read has thousands, and appends of clients go between."""

RETRIES_MAX: Final = 4
"""For a bookie that has too much to do, or whose stream broke."""

RETRY_AFTER_S: Final = 0.1
"""The first wait; doubles."""


class CopyFailed(StorageError):
    """Some entries could not be copied now. What was copied before stays and is harmless."""

    retriable = True


class TargetFailed(CopyFailed):
    """The bookie that should get the entries does not take them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Some sound records of an answer, as appends, and what has not been looked at of it."""

    appends: list[EncodedAppend]
    following: int
    """The entry after them."""
    byte_count: int
    rest: Sequence[Record]
    last: int
    """The last entry that is taken of the rest."""


class EntryCopier:
    """Shared by everything on this bookie that copies entries; so is the throttle."""

    def __init__(
        self,
        clients: BookieClients,
        rng: random.Random,
        throttle: Throttle,
        is_up: Callable[[str], bool],
    ) -> None:
        self._clients = clients
        self._rng = rng
        self._throttle = throttle
        self._is_up = is_up

    async def copy_share(
        self,
        ref: LedgerRef,
        striping: Striping,
        ensemble: Sequence[str],
        position: int,
        first: int,
        last: int,
        target: str,
        others: Sequence[str] = (),
    ) -> int:
        """Write to `target` what the bookie at `position` should have of entries `first` to `last`.

        The bookie at that position is asked for them only after the others, and last of all `others`, which
        metadata does not name. Returns how many entries that were, all of them durable. Raises CopyFailed.
        """
        copied = 0
        writing: list[asyncio.Future[None]] = []
        try:
            for start, end in striping.shares(position, first, last):
                at = start
                while at <= end:
                    part: _Part | None = await self._read(
                        ref, striping, ensemble, position, at, end, target, others
                    )
                    while part is not None:
                        await self._throttle.spend(part.byte_count)
                        await _settle(writing)
                        writing = [
                            asyncio.ensure_future(self._write(ref, each, target)) for each in part.appends
                        ]
                        copied += part.following - at
                        ENTRIES_COPIED.inc(part.following - at)
                        BYTES_COPIED.inc(part.byte_count)
                        at = part.following
                        part = _next_part(ref, part)
            await _settle(writing)
        finally:
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)
        return copied

    async def there_until(self, ref: LedgerRef, first: int, last: int, target: str) -> int:
        """How far `target` has all of a range, sound: the first entry that it does not have.

        Reading them is much less work for a bookie than taking them again.
        """
        at = first
        while at <= last:
            try:
                answer = await self._clients.client(target).read(ref, at, last, READ_BYTES_MAX)
            except BookieUnreachable:
                break  # whoever copies is told why
            following, size = sound_until(ref, answer.records, at)
            await self._throttle.spend(size)
            if following == at:
                break
            at = following
        return min(at, last + 1)

    async def _read(
        self,
        ref: LedgerRef,
        striping: Striping,
        ensemble: Sequence[str],
        position: int,
        first: int,
        last: int,
        target: str,
        others: Sequence[str],
    ) -> _Part:
        """Sound entries from `first` on."""
        holders = [p for p in striping.write_set(first) if p != position and ensemble[p] != target]
        self._rng.shuffle(holders)
        holders.sort(key=lambda p: not self._is_up(ensemble[p]))
        if ensemble[position] != target:
            holders.append(position)
        reasons = []
        asked = [(ensemble[holder], striping.stretch_end(holder, first, last)) for holder in holders]
        asked += [(bookie, last) for bookie in others if bookie != target]
        for bookie, end in asked:
            try:
                answer = await self._clients.client(bookie).read(ref, first, end, READ_BYTES_MAX)
            except BookieUnreachable as error:
                reasons.append(f"{bookie}: {error}")
                continue
            try:
                part = _part(ref, answer.records, first, end)
            except (DataCorruption, UnsupportedFormat) as error:
                reasons.append(f"{bookie}: {error}")
                continue
            if part.appends:
                return part
            reasons.append(f"{bookie}: {Code.Name(answer.code)} {answer.reason}".rstrip())
        raise CopyFailed(
            f"entry {ref.id}:{first} can be had from none of its replicas now ({'; '.join(reasons)})"
        )

    async def _write(self, ref: LedgerRef, append: EncodedAppend, target: str) -> None:
        """Durable at `target`, or TargetFailed."""
        wait_s = RETRY_AFTER_S
        for attempt in range(RETRIES_MAX + 1):
            done: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()

            def answered(
                code: Code.ValueType, reason: str, done: asyncio.Future[tuple[int, str]] = done
            ) -> None:
                if not done.done():
                    done.set_result((code, reason))

            self._clients.client(target).append(append, answered)
            code, reason = await done
            if code == OK:
                return
            if code not in (BACKPRESSURE, UNREACHABLE) or attempt == RETRIES_MAX:
                break
            await asyncio.sleep(wait_s)
            wait_s *= 2
        what = "does not answer" if code == UNREACHABLE else f"answers {Code.Name(Code.ValueType(code))}"
        raise TargetFailed(
            f"bookie {target} {what} to entries {ref.id}:{append.first_entry_id} on: {reason}".rstrip(": ")
        )


def _part(ref: LedgerRef, records: Sequence[Record], first: int, last: int) -> _Part:
    """Like `_appends`, for a bounded number of records."""
    appends, following, size = _appends(ref, records[:PART_RECORDS_MAX], first, last)
    return _Part(appends, following, size, records[PART_RECORDS_MAX:], last)


def _next_part(ref: LedgerRef, part: _Part) -> _Part | None:
    """Sound entries of an answer after those of `part`; None: read them again, if any."""
    if not part.rest or part.following > part.last:
        return None
    try:
        following = _part(ref, part.rest, part.following, part.last)
    except (DataCorruption, UnsupportedFormat):
        return None
    return following if following.appends else None


def _appends(
    ref: LedgerRef, records: Sequence[Record], first: int, last: int
) -> tuple[list[EncodedAppend], int, int]:
    """Records that follow one another from `first` on, cut to the range: appends, the entry after them and
    their bytes. Raises DataCorruption for a damaged first one; a damaged later one ends the row before it."""
    appends: list[EncodedAppend] = []
    at, size = first, 0
    for record in records:
        try:
            header = check_record(record)
        except (DataCorruption, UnsupportedFormat):
            if not appends:
                raise
            break
        if (header.ledger_id, header.ledger_key) != (ref.id, ref.key):
            raise DataCorruption(f"a record of ledger {header.ledger_id} in an answer about {ref.id}")
        if header.last_entry_id < at:
            continue
        if header.first_entry_id > at or at > last:
            break
        if header.first_entry_id == at and header.last_entry_id <= last:
            batch = AppendBatch(appends=[Append(record=record, recovery=True)])
            append = EncodedAppend(ref, at, header.entry_count, batch.SerializeToString())
        else:
            run = decode_run(record).slice(at, min(last, header.last_entry_id))
            append = encode_append(run, ref, header.lac, recovery=True)
        appends.append(append)
        size += len(append.wire)
        at += append.entry_count
    return appends, at, size


def sound_until(ref: LedgerRef, records: Sequence[Record], first: int) -> tuple[int, int]:
    """Up to where records follow one another from `first` on, undamaged: the entry after, and their bytes."""
    at, size = first, 0
    for record in records:
        try:
            header = check_record(record)
        except (DataCorruption, UnsupportedFormat):
            break
        if (header.ledger_id, header.ledger_key) != (ref.id, ref.key) or header.first_entry_id > at:
            break
        at = max(at, header.last_entry_id + 1)
        size += len(record.header) + len(record.body)
    return at, size


async def _settle(writing: list[asyncio.Future[None]]) -> None:
    """Wait until all writes have ended; raise what the first failed one did."""
    for outcome in await asyncio.gather(*writing, return_exceptions=True):
        if outcome is not None:
            raise outcome
