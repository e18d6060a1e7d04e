"""The copier: how much it does at a time, and what it makes of an answer that is good only in part."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from magnetar.bookie.autorecovery.entry_copier import PART_RECORDS_MAX, EntryCopier
from magnetar.bookie.autorecovery.throttle import Throttle
from magnetar.ledger.bookie_protocol.bookie_client import AppendDone, BookieClients, EncodedAppend, ReadAnswer
from magnetar.ledger.bookie_protocol.bookie_pb2 import OK, Record
from magnetar.ledger.bookie_protocol.records import encode_run
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.quorum.striping import Striping

REF = LedgerRef(1, 0xA)
SMALL = 5 * PART_RECORDS_MAX + 7
"""Entries of one answer."""


@dataclass(slots=True)
class Source:
    """Answers with everything at once; `spoil` may damage records."""

    spoil: Callable[[list[Record]], None] = lambda records: None
    asked: list[int] = field(default_factory=list)

    async def read(self, ref: LedgerRef, first: int, last: int, max_bytes: int) -> ReadAnswer:
        self.asked.append(first)
        records = [encode_run(Run([b"x"], 1, n, first_entry_id=n), ref, -1) for n in range(first, last + 1)]
        self.spoil(records)
        return ReadAnswer(records, OK, last + 1, "")


@dataclass(slots=True)
class Target:
    """Confirms some turns of the loop later."""

    taken: list[int] = field(default_factory=list)
    waiting: int = 0
    most_waiting: int = 0

    def append(self, append: EncodedAppend, done: AppendDone) -> None:
        self.taken.append(append.first_entry_id)
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        asyncio.get_running_loop().call_later(0.001, self._confirm, done)

    def _confirm(self, done: AppendDone) -> None:
        self.waiting -= 1
        done(OK, "")


def copied(target: Target, *sources: Source) -> int:
    """Copy entries 0 to SMALL - 1 to `target`, which is at place 0; returns how many the copier counted."""
    bookies: dict[str, Any] = {"b0": target, **{f"b{n}": each for n, each in enumerate(sources, 1)}}

    @dataclass(frozen=True, slots=True)
    class Clients:
        def client(self, bookie_id: str) -> Any:
            return bookies[bookie_id]

    async def main() -> int:
        copier = EntryCopier(
            cast(BookieClients, Clients()), random.Random(1), Throttle(0), lambda bookie_id: True
        )
        striping = Striping(len(bookies), len(bookies), 1)
        return await copier.copy_share(REF, striping, list(bookies), 0, 0, SMALL - 1, "b0")

    return asyncio.run(main())


def test_many_small_records_are_sent_in_small_batches_and_read_once() -> None:
    """One read has thousands of them: the bookie that copies has clients to serve in between."""
    source, target = Source(), Target()
    assert copied(target, source) == SMALL
    assert target.taken == list(range(SMALL))
    assert target.most_waiting <= PART_RECORDS_MAX
    assert source.asked == [0]


def test_entry_damaged_late_in_a_response_is_read_from_another_bookie() -> None:
    bad = 2 * PART_RECORDS_MAX  # the first of a part

    def spoil(records: list[Record]) -> None:
        place = bad - (SMALL - len(records))
        if 0 <= place < len(records):
            records[place].body = b"y"

    sources, target = (Source(spoil), Source(spoil), Source()), Target()
    assert copied(target, *sources) == SMALL
    assert target.taken == list(range(SMALL))
    assert sources[2].asked, "only this one has it undamaged"


def test_a_hole_far_into_an_answer_is_read_anew() -> None:
    def spoil(records: list[Record]) -> None:
        if len(records) == SMALL:
            del records[3 * PART_RECORDS_MAX]

    source, target = Source(spoil), Target()
    assert copied(target, source) == SMALL
    assert target.taken == list(range(SMALL))
    assert source.asked == [0, 3 * PART_RECORDS_MAX]
