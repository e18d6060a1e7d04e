"""Group commit: records that arrive during one sync form the next group.

There is no timer: an idle log writes at the end of the loop turn. Only one group is in flight, so a group
header correctly states that the previous group is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from magnetar.common.errors import LogFailed
from magnetar.common.runtime.disk import Buffer, DiskFile
from magnetar.ledger.segment_log.codec_v1 import (
    BLOCK,
    DIRECTORY_ENTRY_SIZE,
    GROUP_HEADER_SIZE,
    KIND_ENTRIES,
    Durable,
    EncodedRecord,
    align,
    encode_group,
)
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.log_ledger import LogLedger
from magnetar.ledger.segment_log.segment import Segment
from magnetar.ledger.segment_log.segment_chain import SegmentChain
from magnetar.ledger.segment_log.syncer import Syncer

_BY_LEDGER: Final = attrgetter("ledger_id")


@dataclass(slots=True, eq=False)
class PendingRecord(EncodedRecord):
    """A record being written. `waiter` is completed when it is durable (fences have one).

    `answer` belongs to the caller, for `SegmentLog.on_settled`; `number` is a limbo mark's number.
    """

    kind: int
    lac: int
    ledger: LogLedger
    waiter: asyncio.Future[None] | None = None
    answer: Any = None
    number: int = 0


@dataclass(slots=True, eq=False)
class Group:
    """Records written and synced together."""

    sequence: int
    segment: Segment
    start: int
    end: int
    records: list[PendingRecord]
    offsets: list[int]


OnSettled = Callable[[Sequence[PendingRecord], LogFailed | None], None]
"""Called once per record, with records sorted by ledger: durable with their group, or failed."""


class GroupCommit:
    """Collects records and writes them group by group.

    `on_durable(group)` adds a durable group to the indexes; it is called before any other callback.
    """

    def __init__(
        self,
        config: SegmentLogConfig,
        syncer: Syncer,
        next_sequence: int,
        durable: Durable,
        on_durable: Callable[[Group], None],
    ) -> None:
        self.pending_bytes = 0
        self.unavailable: LogFailed | None = None
        self.failure: LogFailed | None = None
        """The error of the last group; None if it is durable."""
        self._closing: LogFailed | None = None
        self.on_settled: OnSettled | None = None
        self.on_roll: Callable[[], None] | None = None
        """Called when the first group of another segment is durable."""
        self._config = config
        self._syncer = syncer
        self._next_sequence = next_sequence
        self._durable = durable
        self._floor = next_sequence - 1
        self._on_durable = on_durable
        self._chain: SegmentChain | None = None
        self._loop = asyncio.get_running_loop()
        self._collecting: list[PendingRecord] = []
        self._in_flight: Group | None = None
        self._submitted_s = 0.0
        self.synced_s = (0.0, 0.0)
        """Times of the last durable group, in monotonic seconds: passed to the disk, durable."""
        self._flush_scheduled = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_group_due = False
        self._drained: list[asyncio.Future[None]] = []

    def attach(self, chain: SegmentChain) -> None:
        """Sets the source of segments (chain and group commit refer to each other)."""
        self._chain = chain

    @property
    def durable_sequence(self) -> int:
        """Number of the last durable group, possibly from before the log was opened."""
        return max(self._floor, self._durable.group_sequence)

    @property
    def waiting(self) -> int:
        """Number of records waiting for the next group."""
        return len(self._collecting)

    @property
    def in_flight(self) -> int:
        """Number of groups being written: 0 or 1."""
        return int(self._in_flight is not None)

    @property
    def waited_s(self) -> float:
        """Seconds since the group in flight was passed to the disk; 0 without one."""
        return 0.0 if self._in_flight is None else self._loop.time() - self._submitted_s

    def add(self, record: PendingRecord) -> None:
        """Adds a record to the next group. A plain call, without callbacks from inside."""
        self._collecting.append(record)
        self.pending_bytes += record.body_length
        record.ledger.pending += 1
        self.flush_soon()

    def flush_soon(self) -> None:
        """Writes waiting records at the end of this loop turn, unless a group is in flight."""
        if self._in_flight is None and not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    async def drain(self) -> None:
        """Waits until nothing is pending."""
        if self._in_flight is not None or self._collecting:
            waiter = self._loop.create_future()
            self._drained.append(waiter)
            await waiter

    def stop(self) -> None:
        """Writes no idle group before the next group was written."""
        self._idle_group_due = False
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def close(self) -> None:
        """Refuses records permanently: one accepted while the last segment is sealed would be confirmed but
        lie behind the footer.
        """
        self.unavailable = self._closing = LogFailed("the log is closing: it takes nothing more")

    def resumed(self) -> None:
        """Records that a segment is available (again)."""
        self.unavailable = self._closing
        self.flush_soon()

    def fail_all(self, error: LogFailed) -> None:
        """Fails waiting records because no segment is available; refuses more until `resumed`."""
        self.unavailable = error
        records, self._collecting = self._collecting, []
        self._fail(records, error)
        self._tell_drained()

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._in_flight is not None or not (self._collecting or self._idle_group_due):
            return
        assert self._chain is not None, "attached before the first record"
        count, length = self._next_group()
        try:
            segment = self._chain.reserve(align(length, BLOCK))
        except (
            OSError
        ) as error:  # the directory is gone or unreadable, for example: no request may wait forever
            records, self._collecting = self._collecting, []
            self._fail(records, LogFailed(f"the log's directory cannot be used: {error}"))
            self._tell_drained()
            return
        if segment is None:
            return
        records = self._collecting[:count]
        del self._collecting[:count]
        records.sort(key=_BY_LEDGER)
        header = segment.header
        buffers, offsets = encode_group(records, header.uuid, header.salt, self._next_sequence, self._durable)
        start = segment.end
        segment.end = start + align(length, BLOCK)
        self._in_flight = Group(self._next_sequence, segment, start, segment.end, records, offsets)
        self._next_sequence += 1
        self._submitted_s = self._loop.time()
        self.stop()
        self._submit(segment.file, buffers, start, busy=count > 1)

    def _submit(self, file: DiskFile, buffers: Sequence[Buffer], offset: int, *, busy: bool) -> None:
        self._syncer.submit(file, buffers, offset, self._done, sync=self._config.sync_data, busy=busy)

    def _next_group(self) -> tuple[int, int]:
        """Returns how many waiting records the next group takes, and its byte length."""
        length = GROUP_HEADER_SIZE
        count = 0
        for record in self._collecting:
            more = DIRECTORY_ENTRY_SIZE + record.record_length
            if count and length + more > self._config.group_bytes_max:
                break
            length += more
            count += 1
        return count, length

    def _done(self, error: OSError | None) -> None:
        group = self._in_flight
        assert group is not None, "one group at a time is in flight"
        self._in_flight = None
        if error is None:
            self._committed(group)
        else:
            self._lost(group, error)
        self._tell_drained()

    def _tell_drained(self) -> None:
        if self._drained and self._in_flight is None and not self._collecting:
            for waiter in self._drained:
                waiter.set_result(None)
            self._drained.clear()

    def _committed(self, group: Group) -> None:
        segment = group.segment
        self.failure = None
        self.synced_s = (self._submitted_s, self._loop.time())
        segment.durable_end = group.end
        segment.last_group_sequence = group.sequence
        rolled = segment.sequence != self._durable.segment_sequence
        self._durable = segment.durable(group.sequence)
        self._on_durable(group)
        if rolled and self.on_roll is not None:
            self._call(self.on_roll)
        # Start the disk before the callbacks, so that both work at the same time.
        self._flush()
        if self._in_flight is None and group.records:
            self._idle_timer = self._loop.call_later(self._config.idle_group_s, self._idle)
        told: LogLedger | None = None
        for record in group.records:
            self.pending_bytes -= record.body_length
            ledger = record.ledger
            ledger.settle()
            if record.kind == KIND_ENTRIES and ledger is not told:
                told = ledger  # records are sorted by ledger, so each is told once
                if ledger.on_durable is not None:
                    self._call(ledger.on_durable, ledger.last_entry_id)
            if record.waiter is not None and not record.waiter.done():
                record.waiter.set_result(None)
        if self.on_settled is not None and group.records:
            self._call(self.on_settled, group.records, None)

    def _lost(self, group: Group, error: OSError) -> None:
        """Fails a lost group, and refuses later records of its ledgers, which would follow a gap."""
        assert self._chain is not None, "attached before the first record"
        failure = self.failure = LogFailed(f"group {group.sequence} of the log was not made durable: {error}")
        lost = {record.ledger for record in group.records if record.kind == KIND_ENTRIES}
        dropped = [r for r in self._collecting if r.ledger in lost and r.kind == KIND_ENTRIES]
        self._collecting = [r for r in self._collecting if r.ledger not in lost or r.kind != KIND_ENTRIES]
        self._chain.abandon_active()
        self._fail(group.records + dropped, failure)
        self.flush_soon()

    def _fail(self, records: list[PendingRecord], error: LogFailed) -> None:
        for record in records:
            self.pending_bytes -= record.body_length
            ledger = record.ledger
            ledger.settle()
            if record.kind == KIND_ENTRIES and ledger.failed is None:
                ledger.failed = error
                if ledger.on_failed is not None:
                    self._call(ledger.on_failed, error)
            if record.waiter is not None and not record.waiter.done():
                record.waiter.set_exception(error)
        if self.on_settled is not None and records:
            self._call(self.on_settled, records, error)

    def _idle(self) -> None:
        self._idle_timer = None
        self._idle_group_due = True
        self.flush_soon()

    def _call(self, callback: Callable[..., None], *args: object) -> None:
        """Runs a callback; a failure in one ledger must not affect the others."""
        try:
            callback(*args)
        except Exception as error:
            self._loop.call_exception_handler({"message": "a ledger's callback failed", "exception": error})
