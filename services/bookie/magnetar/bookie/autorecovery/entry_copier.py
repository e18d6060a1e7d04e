"""Copies a bookie's share of a range of entries from intact replicas, durably.

Each record's CRCs are checked before it is passed on unchanged; if a replica lacks an entry or has it
damaged, the next one is read. Copying existing entries again is harmless: records are equal.
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
"""Bytes requested at a time; up to twice as many are in flight, one part being read and one written."""

PART_RECORDS_MAX: Final = 256
"""Maximum records checked and sent at a time, so that clients' appends can run between batches of small
records.
"""

RETRIES_MAX: Final = 4
"""Maximum retries at an overloaded bookie or after a broken stream."""

RETRY_AFTER_S: Final = 0.1
"""Wait in seconds before the first retry; doubles."""


class CopyFailed(StorageError):
    """Some entries cannot be copied now. Entries copied before remain and are harmless."""

    retriable = True


class TargetFailed(CopyFailed):
    """The target bookie does not accept the entries."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Intact records of an answer, as appends, and the rest that is not checked yet."""

    appends: list[EncodedAppend]
    following: int
    """The entry after these records."""
    byte_count: int
    rest: Sequence[Record]
    last: int
    """The last wanted entry of the rest."""


class EntryCopier:
    """Shared, with its throttle, by every part of this bookie that copies entries."""

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
        """Writes to `target` the share of entries `first` to `last` that belongs to ensemble position
        `position`.

        The bookie at that position is read after the rest of its ensemble, and `others`, which metadata does
        not name, last. Returns the number of entries, all durable. Raises CopyFailed.
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
        """Returns the first entry in the range that `target` lacks or has damaged.

        For a bookie, reading entries is much cheaper than receiving them again.
        """
        at = first
        while at <= last:
            try:
                answer = await self._clients.client(target).read(ref, at, last, READ_BYTES_MAX)
            except BookieUnreachable:
                break  # the caller reports the reason
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
        """Returns intact entries from `first` on."""
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
        """Writes entries durably to `target`; raises TargetFailed."""
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
    """Builds a part as `_appends` does, with a bounded number of records."""
    appends, following, size = _appends(ref, records[:PART_RECORDS_MAX], first, last)
    return _Part(appends, following, size, records[PART_RECORDS_MAX:], last)


def _next_part(ref: LedgerRef, part: _Part) -> _Part | None:
    """Returns the next part of an answer after `part`; None if the rest, if any, must be read again."""
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
    """Returns consecutive records from `first`, cut to the range: the appends, the entry after them, and
    their bytes. Raises DataCorruption if the first is damaged; a later damaged record ends the sequence
    before it.
    """
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
    """Returns the entry after the last of consecutive intact records from `first`, and their bytes."""
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
    """Waits until all writes have ended; raises the first failure."""
    for outcome in await asyncio.gather(*writing, return_exceptions=True):
        if outcome is not None:
            raise outcome
