"""Reads a ledger from its bookies.

A range is read from one bookie of the write set; after an error, a damaged or uncertain entry, or no answer,
from the next; and after a delay the next is read concurrently. Every record's checksums are verified. Nothing
beyond the end of a closed ledger is read, and nothing beyond the known last add confirmed of an open one
(storage contract, sections 2 and 3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import EntryUnknown, EntryUnreadable, NoSuchEntry
from magnetar.common.metadata.values import LedgerMetadata
from magnetar.common.obs.metrics import REGISTRY
from magnetar.ledger.bookie_protocol.bookie_client import BookieClients, BookieUnreachable
from magnetar.ledger.bookie_protocol.bookie_pb2 import (
    ENTRY_UNREADABLE,
    NO_SUCH_ENTRY,
    OK,
    UNREACHABLE,
    Code,
    LedgerState,
)
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.quorum.checked_read import CheckedRead, read_checked
from magnetar.ledger.quorum.replica_order import ReplicaOrder
from magnetar.ledger.quorum.striping import LedgerLayout
from prometheus_client import Counter

STRETCHES_MAX: Final = 32
"""Stretches of a striped ledger (E > Qw) read concurrently."""

READS_FAILED = Counter(
    "magnetar_quorum_reads_failed",
    "Reads of a bookie that gave nothing, so that another replica was asked.",
    ["reason"],
    registry=REGISTRY,
)


class EntryUnavailable(EntryUnknown):
    """No replica with the entry answers now; it is not lost, and may be readable later."""

    retriable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Sizes in bytes, times in seconds."""

    speculative_delay_s: float = 0.2
    """Delay without an answer after which the next replica is read concurrently."""
    request_bytes_max: int = 4 << 20
    """Bytes of entries requested from one bookie at a time."""


@dataclass(frozen=True, slots=True)
class ReadContext:
    """State shared by all readers of a process."""

    clients: BookieClients
    order: ReplicaOrder
    options: ReadOptions


Reload = Callable[[], Awaitable[LedgerMetadata]]
"""Returns a ledger's current metadata. Raises NoSuchLedger or MetadataError."""


class QuorumLedgerReader:
    """Implements `ledger_store.LedgerReader`.

    `end` is the last entry of a closed ledger. For an open one `confirmed` returns the LAC of a writer in
    this process, which shares its `layout`; without either, `refresh` queries the bookies.
    """

    __slots__ = ("_confirmed", "_context", "_end", "_entry_bytes", "_heard", "_layout", "_reload", "ref")

    def __init__(
        self,
        ref: LedgerRef,
        layout: LedgerLayout,
        context: ReadContext,
        *,
        reload: Reload,
        end: int | None = None,
        confirmed: Callable[[], int] | None = None,
    ) -> None:
        self.ref = ref
        self._layout = layout
        self._context = context
        self._reload = reload
        self._end = end
        self._confirmed = confirmed
        # Entries below the last fragment are confirmed: a writer begins a fragment at its LAC + 1.
        self._heard = layout.last_fragment.first_entry_id - 1
        self._entry_bytes = 0

    @property
    def last_confirmed(self) -> int:
        if self._end is not None:
            return self._end
        return self._heard if self._confirmed is None else self._confirmed()

    @property
    def copies(self) -> int:
        """Number of bookies with each entry."""
        return self._layout.striping.write_quorum

    async def refresh(self) -> None:
        """Updates the LAC of an open ledger without a writer in this process.

        Queries every bookie of the last fragment and uses the highest answer; without any answer the LAC is
        unchanged. Raises NoSuchLedger, MetadataError.
        """
        if self._end is not None or self._confirmed is not None:
            return
        await self._reload_layout()
        if self._end is not None:
            return
        layout = self._layout
        clients = [self._context.clients.client(each) for each in layout.last_fragment.bookie_ids]
        answers = await asyncio.gather(
            *(client.read_lac(self.ref) for client in clients), return_exceptions=True
        )
        self._heard = max(self._heard, layout.last_fragment.first_entry_id - 1)
        for answer in answers:
            if isinstance(answer, LedgerState):
                if answer.code == OK:
                    self._heard = max(self._heard, answer.lac)
            elif not isinstance(answer, BookieUnreachable):
                raise answer

    async def read(self, first: int, last: int, max_bytes: int) -> list[Run]:
        """Reads entries; see `LedgerReader.read`. Raises EntryUnavailable, a retriable EntryUnknown;
        EntryUnreadable only if every replica certainly lacks the entry or has it damaged.
        """
        if first > self.last_confirmed:
            await self.refresh()
        confirmed = self.last_confirmed
        if not 0 <= first <= confirmed or last < first:
            raise NoSuchEntry(
                f"ledger {self.ref.id} has no entries {first} to {last}, it ends at {confirmed}"
            )
        last = min(last, confirmed)
        runs: list[Run] = []
        while first <= last and max_bytes > 0:
            try:
                found = await self._read_some(first, last, max_bytes)
            except (EntryUnknown, EntryUnreadable):
                if runs:
                    break  # the next read begins there, and says so
                raise
            for run in found:
                if runs and run.byte_length > max_bytes:
                    fitting = _fitting(run, max_bytes)
                    return [*runs, fitting] if fitting is not None else runs
                runs.append(run)
                max_bytes -= run.byte_length
            first = runs[-1].last_entry_id + 1
        return runs

    async def _read_some(self, first: int, last: int, max_bytes: int) -> list[Run]:
        """Reads at least one entry from `first` on."""
        layout = self._layout
        last = layout.fragment_end(first, last)
        if not layout.striping.striped:
            return await self._read_stretch(first, last, max_bytes)
        # Bookies have only short stretches: read as many concurrently as are likely to fit.
        step = layout.striping.write_quorum
        expected = max(self._entry_bytes, 1) * step
        count = 1 if not self._entry_bytes else max(1, min(STRETCHES_MAX, max_bytes // expected))
        starts = range(first, min(last + 1, first + count * step), step)
        answers: list[list[Run] | BaseException] = await asyncio.gather(
            *(self._read_stretch(start, min(last, start + step - 1), max_bytes) for start in starts),
            return_exceptions=True,
        )
        runs: list[Run] = []
        for start, answer in zip(starts, answers, strict=True):
            if runs and runs[-1].last_entry_id + 1 != start:
                break
            if isinstance(answer, BaseException):
                if runs and isinstance(answer, (EntryUnknown, EntryUnreadable)):
                    break
                raise answer
            runs += answer
        entries = runs[-1].last_entry_id - first + 1
        self._entry_bytes = max(1, sum(run.byte_length for run in runs) // entries)
        return runs

    async def _read_stretch(self, first: int, last: int, max_bytes: int) -> list[Run]:
        """Reads entries from `first` on from one answer; follows a layout changed elsewhere."""
        max_bytes = min(max_bytes, self._context.options.request_bytes_max)
        layout = self._layout
        verdicts = await self._ask_replicas(layout, first, last, max_bytes)
        if isinstance(verdicts, list):
            return verdicts
        now = await self._reload_layout()
        if now.fragment_of(first) == layout.fragment_of(first):
            raise self._undecided(first, verdicts)
        verdicts = await self._ask_replicas(now, first, now.fragment_end(first, last), max_bytes)
        if isinstance(verdicts, list):
            return verdicts
        raise self._undecided(first, verdicts)

    async def _ask_replicas(
        self, layout: LedgerLayout, first: int, last: int, max_bytes: int
    ) -> list[Run] | Mapping[str, CheckedRead]:
        """Returns the first answer that has entry `first`; otherwise the answers of all."""
        context = self._context
        loop = asyncio.get_running_loop()
        striping, ensemble = layout.striping, layout.fragment_of(first).bookie_ids
        ends = {
            ensemble[position]: striping.stretch_end(position, first, last)
            for position in sorted(striping.write_set(first))
        }
        to_ask = context.order.sort(self.ref.id, list(ends))
        if striping.striped:
            to_ask.sort(key=lambda bookie_id: (context.order.is_avoided(bookie_id), -ends[bookie_id]))
        tasks: dict[str, asyncio.Task[CheckedRead]] = {}
        verdicts: dict[str, CheckedRead] = {}
        delay: float | None = context.options.speculative_delay_s
        try:
            while to_ask or len(verdicts) < len(tasks):
                if to_ask:
                    bookie_id = to_ask.pop(0)
                    client = context.clients.client(bookie_id)
                    tasks[bookie_id] = loop.create_task(
                        read_checked(client, self.ref, first, ends[bookie_id], max_bytes)
                    )
                await asyncio.wait(
                    [task for bookie_id, task in tasks.items() if bookie_id not in verdicts],
                    timeout=delay if to_ask else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for bookie_id, task in tasks.items():
                    if bookie_id in verdicts or not task.done():
                        continue
                    verdict = verdicts[bookie_id] = task.result()
                    if verdict.code == UNREACHABLE:
                        context.order.failed(bookie_id)
                    else:
                        context.order.answered(bookie_id)
                    if verdict.runs:
                        return verdict.runs
                    READS_FAILED.labels(Code.Name(verdict.code)).inc()
            return verdicts
        finally:
            if verdicts and (asked_first := next(iter(tasks))) not in verdicts:
                context.order.failed(asked_first)  # a bookie asked later was faster
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _reload_layout(self) -> LedgerLayout:
        """Reloads the layout from metadata; stored, unless the layout is shared with a writer."""
        value = await self._reload()
        layout = LedgerLayout.of(value)
        if value.state == LedgerMetadata.CLOSED:
            self._end = value.last_entry_id
        if self._end is not None or self._confirmed is None:
            self._layout = layout
        return layout

    def _undecided(self, first: int, verdicts: Mapping[str, CheckedRead]) -> EntryUnknown | EntryUnreadable:
        said = {each: f"{Code.Name(v.code)} {v.reason}".strip() for each, v in verdicts.items()}
        if self._end is not None and all(
            v.code in (NO_SUCH_ENTRY, ENTRY_UNREADABLE) for v in verdicts.values()
        ):
            return EntryUnreadable(f"entry {self.ref.id}:{first} is lost: {said}")
        return EntryUnavailable(f"entry {self.ref.id}:{first} can't be read now: {said}")


def _fitting(run: Run, max_bytes: int) -> Run | None:
    """Returns the leading entries of a run that fit; None if the first does not."""
    count = total = 0
    for entry in run.entries:
        total += len(entry)
        if total > max_bytes:
            break
        count += 1
    return run.slice(run.first_entry_id, run.first_entry_id + count - 1) if count else None
