"""Runs as records in a row: the same runs come out, and damage never passes."""

from __future__ import annotations

import random

import pytest
from magnetar.common.errors import DataCorruption
from magnetar.ledger.bookie_protocol.record_stream import decode_records, encode_records
from magnetar.ledger.ledger_store import RUN_CHUNK, LedgerRef, Run

REF = LedgerRef(7, 99)


def runs() -> list[Run]:
    return [
        Run([b"one", b"two", b"three"], 10, 5, None, 0, 7, 0),
        Run([b"", b"x" * 1000], 11, 8, [3, 4], RUN_CHUNK, 7, 3),
        Run([b"y" * 70_000], 12, 15, [100], 0, 7, 5),
    ]


def fields(run: Run) -> tuple[object, ...]:
    counts = None if run.message_counts is None else list(run.message_counts)
    return (
        run.entries,
        run.publish_time_ms,
        run.first_index,
        counts,
        run.flags,
        run.ledger_id,
        run.first_entry_id,
    )


def test_the_same_runs_come_out() -> None:
    data = encode_records(runs(), REF, 5)
    assert list(map(fields, decode_records(data, REF))) == list(map(fields, runs()))
    assert list(decode_records(b"", REF)) == []


def test_no_flipped_byte_passes() -> None:
    data = encode_records(runs()[:2], REF, 5)
    rng = random.Random(1)
    for at in {0, len(data) - 1, *(rng.randrange(len(data)) for _ in range(200))}:
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.randrange(8)
        with pytest.raises(DataCorruption):
            list(decode_records(bytes(damaged), REF))


def test_an_answer_that_ends_early_or_is_of_another_ledger_is_damage() -> None:
    data = encode_records(runs()[:1], REF, 5)
    for end in (1, 50, len(data) - 1):
        with pytest.raises(DataCorruption):
            list(decode_records(data[:end], REF))
    for other in (LedgerRef(8, 99), LedgerRef(7, 98)):
        with pytest.raises(DataCorruption, match="came for one of ledger"):
            list(decode_records(data, other))
