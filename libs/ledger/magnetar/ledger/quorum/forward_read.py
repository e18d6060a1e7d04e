"""The recovery's read beyond the last add confirmed: finds existing entries and the ledger's certain end.

An entry from any bookie of its write set counts. 'No such entry' counts only from bookies that are certain,
and (Qw - Qa) + 1 of them end the ledger: then the entry is on fewer than Qa and cannot have been confirmed. A
bookie with a torn last group confirmed that group's content only if its disk lost synced data, which at most
Qa - 1 disks may do under the storage contract: all but Qa - 1 of such bookies count as certain. So after a
power failure everywhere, the ledger can be ended once enough bookies are back.

Every read fences, so a bookie that lacked an entry when read will not accept it from the old writer later.
Any other result is no answer, and the recovery stops rather than guesses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import NotEnoughBookies
from magnetar.ledger.bookie_protocol.bookie_client import BookieClient
from magnetar.ledger.bookie_protocol.bookie_pb2 import ENTRY_UNKNOWN, NO_SUCH_ENTRY, Code, LedgerState
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.quorum.checked_read import CheckedRead, read_checked
from magnetar.ledger.quorum.striping import Striping

LAST_ENTRY_ID: Final = 2**62
"""Upper bound above any ledger's end."""

PIECES_MAX: Final = 32
"""Pieces of a striped ledger (E > Qw) read concurrently."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive entries, and whether the ledger certainly ends after them."""

    runs: list[Run]
    ended: bool

    def cut(self, last: int) -> Batch:
        """Returns the part up to an entry at which the ledger will end."""
        if not self.runs or self.runs[-1].last_entry_id < last:
            return self
        runs = [run for run in self.runs if run.first_entry_id <= last]
        return Batch(
            [*runs[:-1], runs[-1].slice(runs[-1].first_entry_id, min(last, runs[-1].last_entry_id))], True
        )


class ForwardRead:
    """Reads the last fragment of one fenced ledger, from any entry on."""

    __slots__ = ("_batch_bytes", "_ensemble", "_patience_s", "_pieces", "_ref", "_states", "_striping")

    def __init__(
        self,
        ref: LedgerRef,
        striping: Striping,
        ensemble: Sequence[BookieClient],
        states: Mapping[int, LedgerState],
        *,
        batch_bytes: int,
        patience_s: float,
    ) -> None:
        """Creates a reader. `states` are the answers of fenced bookies: those with more entries are read
        first. After `patience_s` without an answer the others are read as well.
        """
        self._ref = ref
        self._striping = striping
        self._ensemble = ensemble
        self._states = states
        self._batch_bytes = batch_bytes
        self._patience_s = patience_s
        self._pieces = 1

    async def batch(self, first: int) -> Batch:
        """Returns entries from `first` on, about `batch_bytes` of them.

        Raises NotEnoughBookies if the fate of `first` is undecidable.
        """
        if not self._striping.striped:
            runs = await self._first_answer(first, LAST_ENTRY_ID)
            return Batch(runs, ended=not runs)
        return await self._striped_batch(first)

    async def _striped_batch(self, first: int) -> Batch:
        """Reads many pieces concurrently, since each bookie has only short stretches; keeps those before the
        first stop.
        """
        step = self._striping.write_quorum
        starts = range(first, first + step * self._pieces, step)
        answers: list[Batch | BaseException] = await asyncio.gather(
            *(self._piece(start, start + step - 1) for start in starts), return_exceptions=True
        )
        runs: list[Run] = []
        ended = False
        for answer in answers:
            if isinstance(answer, BaseException):
                if runs and isinstance(answer, NotEnoughBookies):
                    break  # the next batch begins there, and asks again
                raise answer
            runs += answer.runs
            if ended := answer.ended:
                break
        received = sum(run.byte_length for run in runs)
        self._pieces = min(2 * self._pieces, PIECES_MAX) if received < self._batch_bytes // 2 else 1
        return Batch(runs, ended)

    async def _piece(self, first: int, last: int) -> Batch:
        runs: list[Run] = []
        while first <= last:
            found = await self._first_answer(first, last)
            if not found:
                return Batch(runs, ended=True)
            runs += found
            first = found[-1].last_entry_id + 1
        return Batch(runs, ended=False)

    async def _first_answer(self, first: int, last: int) -> list[Run]:
        """Returns entries from `first` on from the first bookie of its write set that has it; [] if the
        ledger certainly ends before it.
        """
        loop = asyncio.get_running_loop()
        positions = sorted(self._striping.write_set(first), key=lambda position: self._rank(position, first))
        tasks: dict[int, asyncio.Task[CheckedRead]] = {}
        verdicts: dict[int, CheckedRead] = {}
        wait_until = loop.time() + self._patience_s
        to_ask = positions[:1]
        try:
            while True:
                for position in to_ask:
                    tasks[position] = loop.create_task(self._read(position, first, last))
                all_asked = len(tasks) == len(positions)
                await asyncio.wait(
                    [task for position, task in tasks.items() if position not in verdicts],
                    timeout=None if all_asked else max(wait_until - loop.time(), 0),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for position, task in tasks.items():
                    if position not in verdicts and task.done():
                        verdicts[position] = task.result()
                for verdict in verdicts.values():
                    if verdict.runs:
                        return verdict.runs
                absent = sum(verdict.code == NO_SUCH_ENTRY for verdict in verdicts.values())
                torn = sum(verdict.torn and verdict.code == ENTRY_UNKNOWN for verdict in verdicts.values())
                if self._striping.is_absent(absent, torn):
                    return []
                if len(verdicts) == len(positions):
                    raise NotEnoughBookies(self._undecided(first, verdicts))
                to_ask = [position for position in positions if position not in tasks]
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _read(self, position: int, first: int, last: int) -> CheckedRead:
        end = self._striping.stretch_end(position, first, last)
        return await read_checked(
            self._ensemble[position], self._ref, first, end, self._batch_bytes, fence=True
        )

    def _rank(self, position: int, first: int) -> tuple[int, int, int]:
        state = self._states.get(position)
        if state is None:
            return 2, 0, position  # did not answer the fence
        if state.last_entry_id < first:
            return 1, -state.last_entry_id, position
        return 0, -self._striping.stretch_end(position, first, state.last_entry_id), position

    def _undecided(self, first: int, verdicts: Mapping[int, CheckedRead]) -> str:
        said = {
            self._ensemble[position].bookie_id: f"{Code.Name(verdict.code)} {verdict.reason}".strip()
            for position, verdict in sorted(verdicts.items())
        }
        return (
            f"ledger {self._ref.id} can't be recovered now: no bookie gives entry {first}, and fewer than "
            f"{self._striping.absences_needed} are certain that there is none: {said}"
        )
