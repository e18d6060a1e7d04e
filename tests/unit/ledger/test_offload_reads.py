"""Entries through a broker: each once and in order, however often the stream breaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from magnetar.common.errors import DataCorruption, EntryUnreadable, MagnetarError, TooManyRequests
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_errors import OffloadUnreachable
from magnetar.ledger.bookie_protocol.record_stream import encode_records
from magnetar.ledger.ledger_store import LedgerRef, Run
from magnetar.ledger.offload_reads import ATTEMPTS_MAX, BUSY_MAX, read_runs

REF = LedgerRef(7, 99)
LAST = 19


def entry(number: int) -> bytes:
    return b"entry %d" % number


class Stream:
    """Answers from entry `first` on, in runs of three; breaks after as many parts as the script says."""

    def __init__(self, *script: int | MagnetarError) -> None:
        self._script = list(script)
        self.asked: list[tuple[int, int]] = []
        self.slept: list[float] = []

    def read(self, topic: str, ledger_id: int, ledger_key: int, first: int, last: int) -> Iterator[bytes]:
        assert (topic, ledger_id, ledger_key) == ("t", REF.id, REF.key)
        self.asked.append((first, last))
        step = self._script.pop(0) if self._script else 1_000
        if isinstance(step, MagnetarError):
            raise step
        for at in range(first, last + 1, 3):
            if not step:
                raise OffloadUnreachable("the broker was killed")
            step -= 1
            some = range(at, min(at + 3, last + 1))
            yield encode_records([Run([entry(n) for n in some], 1, at, None, 0, REF.id, at)], REF, last)

    def entries(self) -> list[bytes]:
        channel = cast(OffloadChannel, self)
        runs = read_runs(channel, "t", REF, 0, LAST, sleep=self.slept.append)
        return [each for run in runs for each in run.entries]


ALL = [entry(number) for number in range(LAST + 1)]


def test_entries_come_in_order() -> None:
    stream = Stream()
    assert stream.entries() == ALL
    assert stream.asked == [(0, LAST)]


def test_a_broken_stream_is_gone_on_with_behind_the_last_run() -> None:
    stream = Stream(2, 0, OffloadUnreachable("not yet"), 1)
    assert stream.entries() == ALL
    assert stream.asked == [(0, LAST), (6, LAST), (6, LAST), (6, LAST), (9, LAST)]
    assert len(stream.slept) == 4


def test_a_broker_that_stays_away_is_an_error_in_the_end() -> None:
    stream = Stream(*([0] * 50))
    with pytest.raises(OffloadUnreachable):
        stream.entries()
    assert len(stream.asked) == ATTEMPTS_MAX
    assert stream.slept == sorted(stream.slept)


def test_a_broker_with_too_many_readers_is_waited_for_longer_but_not_for_ever() -> None:
    busy = [TooManyRequests("64 calls are under way")] * (3 * ATTEMPTS_MAX)
    assert Stream(*busy).entries() == ALL
    always = Stream(*([TooManyRequests("busy")] * 1_000))
    with pytest.raises(TooManyRequests):
        always.entries()
    assert len(always.asked) == BUSY_MAX


def test_permanent_error_is_raised_at_once() -> None:
    stream = Stream(1, EntryUnreadable("7:3 is damaged"))
    with pytest.raises(EntryUnreadable):
        stream.entries()
    assert len(stream.asked) == 2


class Wrong(Stream):
    """Answers with the wrong entries."""

    def __init__(self, run: Run | None) -> None:
        super().__init__()
        self._run = run

    def read(self, *asked: Any) -> Iterator[bytes]:
        yield b"" if self._run is None else encode_records([self._run], REF, LAST)


@pytest.mark.parametrize(
    "run",
    [
        None,
        Run([b"x"], 0, 0, None, 0, REF.id, 1),
        Run([b"x"] * (LAST + 2), 0, 0, None, 0, REF.id, 0),
        Run([b"x"] * 5, 0, 0, None, 0, REF.id, 0),
    ],
    ids=["nothing", "a gap", "too many", "too few"],
)
def test_gaps_and_unrequested_entries_are_damage(run: Run | None) -> None:
    with pytest.raises(DataCorruption):
        Wrong(run).entries()
