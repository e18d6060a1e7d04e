"""Re-writes recovered entries to all Qw bookies of their write sets.

A bookie that does not accept its share is replaced, from the first entry of the batch on. The change stays in
memory until the transaction that closes the ledger publishes it, so a failed recovery leaves the ensemble
unchanged. Without a replacement the missing entries are recorded as a gap, provided that Qa of each write set
have them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar.common.errors import NotEnoughBookies
from magnetar.common.obs.logs import get_logger
from magnetar.ledger.bookie_protocol.bookie_client import BookieClient, BookieClients, EncodedAppend
from magnetar.ledger.bookie_protocol.bookie_pb2 import BACKPRESSURE, OK, UNREACHABLE, Code
from magnetar.ledger.bookie_protocol.records import encode_append
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.quorum.striping import LedgerLayout, Striping

log = get_logger(__name__)

RETRY_AFTER_S: Final = 0.1
"""Wait in seconds before a failed write to the same bookie is retried."""

RETRIES_MAX: Final = 2
"""Retries at an unreachable bookie before it counts as failed."""

BACKPRESSURE_RETRIES_MAX: Final = 50


class Replace(Protocol):
    """Returns a replacement bookie (`Placement.replacement`)."""

    def __call__(
        self, ensemble: Sequence[str], position: int, striping: Striping, *, excluded: Collection[str] = ()
    ) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries of a bookie's share that it lacks."""

    bookie_id: str
    first_entry_id: int
    last_entry_id: int


@dataclass(slots=True, eq=False)
class Rewriter:
    """Writes batches, in order, to the last fragment of `layout`, and changes that fragment if necessary."""

    ref: LedgerRef
    layout: LedgerLayout
    clients: BookieClients
    replace: Replace
    lac: int
    """The last add confirmed in every written entry: the old writer's. Never higher, since entries confirmed
    by a recovery may be on an ensemble that is not published yet.
    """
    grace_s: float
    """Time in seconds to wait for slower bookies once Qa have a batch."""
    _failed: dict[str, str] = field(default_factory=dict)
    _given_up: dict[int, int] = field(default_factory=dict)
    """Maps a position to the first entry that its bookie lacks."""

    async def write(self, runs: Sequence[Run]) -> None:
        """Writes until every entry is on Qa of its write set, and on the others unless replaced or recorded
        as lacking it.

        Raises NotEnoughBookies.
        """
        first, last = runs[0].first_entry_id, runs[-1].last_entry_id
        striping = self.layout.striping
        parts = _Parts(self.ref, runs, striping, self.lac)
        written: set[int] = set()
        while True:
            todo = [p for p in range(striping.ensemble_size) if p not in written and p not in self._given_up]
            replaced = False
            ensemble = list(self.layout.last_fragment.bookie_ids)
            for position in await self._send(parts, todo, written, first, last):
                bookie_id = self.replace(ensemble, position, striping, excluded=self._failed)
                if bookie_id is None:
                    self._given_up[position] = first
                else:
                    ensemble[position] = bookie_id
                    replaced = True
            if not replaced:
                break
            self.layout.change_ensemble(first, ensemble)
        if not self._enough(written, first, last):
            raise NotEnoughBookies(
                f"ledger {self.ref.id} can't be recovered now: entries {first} to {last} are on fewer than "
                f"{striping.ack_quorum} of the bookies that should have them: {self._failed}"
            )

    def gaps(self, last_entry_id: int) -> list[Gap]:
        """Returns the gaps of bookies, up to the end of the ledger."""
        bookie_ids = self.layout.last_fragment.bookie_ids
        return [
            Gap(bookie_ids[position], first, last_entry_id)
            for position, first in sorted(self._given_up.items())
            if first <= last_entry_id
        ]

    async def _send(
        self, parts: _Parts, positions: Sequence[int], written: set[int], first: int, last: int
    ) -> list[int]:
        """Writes to these positions; adds successes to `written` and returns the positions that failed or are
        too slow.
        """
        loop = asyncio.get_running_loop()
        bookie_ids = self.layout.last_fragment.bookie_ids
        tasks = {
            position: loop.create_task(
                _write_parts(self.clients.client(bookie_ids[position]), parts.of(position))
            )
            for position in positions
        }
        failed: dict[int, str] = {}
        # A replacement is needed no more than the bookie it replaced.
        deadline = loop.time() + self.grace_s if self._enough(written, first, last) else None
        try:
            while pending := [t for p, t in tasks.items() if p not in written and p not in failed]:
                timeout = None if deadline is None else max(deadline - loop.time(), 0)
                await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                for position, task in tasks.items():
                    if position in written or position in failed or not task.done():
                        continue
                    code, reason = task.result()
                    if code == OK:
                        written.add(position)
                    else:
                        failed[position] = f"{Code.Name(code)} {reason}".strip()
                if deadline is None:
                    if self._enough(written, first, last):
                        deadline = loop.time() + self.grace_s
                elif loop.time() >= deadline:
                    for position in tasks:
                        if position not in written and position not in failed:
                            failed[position] = "too slow"
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        for position, reason in failed.items():
            self._failed[bookie_ids[position]] = reason
            log.warning(
                "a bookie did not take a recovery's entries",
                ledger=self.ref.id,
                bookie=bookie_ids[position],
                first=first,
                last=last,
                reason=reason,
            )
        return sorted(failed)

    def _enough(self, written: set[int], first: int, last: int) -> bool:
        striping = self.layout.striping
        starts = range(first, min(last, first + striping.ensemble_size - 1) + 1)
        return all(
            sum(position in written for position in striping.write_set(entry_id)) >= striping.ack_quorum
            for entry_id in starts
        )


class _Parts:
    """A batch as sent to each position, encoded once for positions with equal content."""

    __slots__ = ("_encoded", "_lac", "_ref", "_runs", "_striping")

    def __init__(self, ref: LedgerRef, runs: Sequence[Run], striping: Striping, lac: int) -> None:
        self._ref = ref
        self._runs = runs
        self._striping = striping
        self._lac = lac
        self._encoded: dict[tuple[int, int], EncodedAppend] = {}

    def of(self, position: int) -> list[EncodedAppend]:
        parts = []
        for run in self._runs:
            for first, last in self._striping.shares(position, run.first_entry_id, run.last_entry_id):
                part = self._encoded.get((first, last))
                if part is None:
                    part = encode_append(run.slice(first, last), self._ref, self._lac, recovery=True)
                    self._encoded[first, last] = part
                parts.append(part)
        return parts


async def _write_parts(client: BookieClient, parts: list[EncodedAppend]) -> tuple[Code.ValueType, str]:
    """Writes all parts durably to a bookie, with a limited number of retries for lack of space or a broken
    stream. Returns OK, or another code.
    """
    unreachable = pressed = 0
    while parts:
        results = await _append_all(client, parts)
        bad = [(code, reason) for code, reason in results if code != OK]
        if not bad:
            break
        parts = [part for part, (code, _) in zip(parts, results, strict=True) if code != OK]
        codes = {code for code, _ in bad}
        if codes <= {BACKPRESSURE, UNREACHABLE}:
            unreachable += UNREACHABLE in codes
            pressed += BACKPRESSURE in codes
            if unreachable <= RETRIES_MAX and pressed <= BACKPRESSURE_RETRIES_MAX:
                await asyncio.sleep(RETRY_AFTER_S)
                continue
        return bad[0]
    return OK, ""


async def _append_all(
    client: BookieClient, parts: Sequence[EncodedAppend]
) -> list[tuple[Code.ValueType, str]]:
    results: list[tuple[Code.ValueType, str]] = [(UNREACHABLE, "")] * len(parts)
    left = len(parts)
    everything: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done_with(index: int) -> Callable[[Code.ValueType, str], None]:
        def done(code: Code.ValueType, reason: str) -> None:
            nonlocal left
            results[index] = (code, reason)
            left -= 1
            if not left and not everything.done():
                everything.set_result(None)

        return done

    for index, part in enumerate(parts):
        client.append(part, done_with(index))
    await everything
    return results
