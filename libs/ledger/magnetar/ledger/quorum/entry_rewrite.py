"""Re-writing what a recovery found, so that it is on all Qw like any confirmed entry.

A bookie that does not take its part is replaced, from the first entry of the batch on. The change stays in
memory: the transaction that closes the ledger publishes it, so that a recovery that comes to nothing leaves
the ensemble as it was. With nobody to take its place, what it lacks is recorded as a gap, provided that Qa of
each write set have it.
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
"""Before what failed is sent to the same bookie again."""

RETRIES_MAX: Final = 2
"""For a bookie that is unreachable, before it counts as failed."""

BACKPRESSURE_RETRIES_MAX: Final = 50


class Replace(Protocol):
    """Finds a replacement (`Placement.replacement`)."""

    def __call__(
        self, ensemble: Sequence[str], position: int, striping: Striping, *, excluded: Collection[str] = ()
    ) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Gap:
    """A bookie lacks entries of its share."""

    bookie_id: str
    first_entry_id: int
    last_entry_id: int


@dataclass(slots=True, eq=False)
class Rewriter:
    """Writes batches, in order, to the last fragment of `layout`, and changes that where it must."""

    ref: LedgerRef
    layout: LedgerLayout
    clients: BookieClients
    replace: Replace
    lac: int
    """Carried by everything that is written: the one the old writer had told. Never higher: what a recovery
    confirms may be on an ensemble that nobody else knows yet."""
    grace_s: float
    """How long slower bookies are waited for once Qa have a batch."""
    _failed: dict[str, str] = field(default_factory=dict)
    _given_up: dict[int, int] = field(default_factory=dict)
    """position -> the first entry that its bookie lacks"""

    async def write(self, runs: Sequence[Run]) -> None:
        """Until every entry is on Qa of its write set, and on the rest or replaced or given up.

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
        """Gaps of bookies, up to the end of the ledger."""
        bookie_ids = self.layout.last_fragment.bookie_ids
        return [
            Gap(bookie_ids[position], first, last_entry_id)
            for position, first in sorted(self._given_up.items())
            if first <= last_entry_id
        ]

    async def _send(
        self, parts: _Parts, positions: Sequence[int], written: set[int], first: int, last: int
    ) -> list[int]:
        """Write to these positions; adds to `written` and returns those that failed or are too slow."""
        loop = asyncio.get_running_loop()
        bookie_ids = self.layout.last_fragment.bookie_ids
        tasks = {
            position: loop.create_task(
                _write_parts(self.clients.client(bookie_ids[position]), parts.of(position))
            )
            for position in positions
        }
        failed: dict[int, str] = {}
        # Who takes somebody's place is no more needed than that one was.
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
    """A batch as each position gets it, encoded once for all that get the same."""

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
    """Have a bookie write all parts durably; what it lacked room for, or lost with a stream, is sent again
    a bounded number of times. Returns OK, or one of the other codes."""
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
