"""The second pass: short steps, whatever a batch holds and however few messages survive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from magnetar.common.naming.position import Position
from magnetar.common.wire.pulsar_pb2 import LZ4
from magnetar.ledger.compacted.batch_parts import MESSAGES_PER_STEP, without, without_in_steps
from magnetar.ledger.compacted.entry_keys import batch_messages, examine
from magnetar.ledger.compacted.key_hash import KeyHash
from magnetar.ledger.compacted.survivors import first_from, next_stretch, stored_entries
from magnetar.ledger.compacted.tail_scan import Survivors, TailScan
from magnetar.ledger.ledger_store import Run
from pyroaring import BitMap

from tests.unit.ledger.compacted.history import Entry, batch, single

KEY_HASH = KeyHash(bytes(16))


def scanned(*entries: Entry, per_run: int = 1000) -> tuple[TailScan, Survivors, list[Run]]:
    """Entries of ledger 1, scanned in runs; each batch is a run of its own."""
    runs: list[Run] = []
    for number, entry in enumerate(entries):
        if entry.count == 1 and runs and runs[-1].message_counts is None and len(runs[-1].entries) < per_run:
            runs[-1].entries.append(entry.data)
            continue
        run = entry.run()
        run.ledger_id, run.first_entry_id, run.first_index = 1, number, number
        runs.append(run)
    scan = TailScan(KEY_HASH, [], retain_null_key=False)
    for run in runs:
        list(scan.feed(run))
    (survivors,) = [each for each in scan.finish() if each is not None]
    return scan, survivors, runs


def singles(keys: Sequence[str]) -> list[Entry]:
    return [single(number, key, b"value") for number, key in enumerate(keys)]


def test_survivors_are_found_among_many_that_died() -> None:
    keys = ["hot"] * 3000
    for at in (0, 1, 1700, 2998):
        keys[at] = f"key-{at}"
    scan, survivors, runs = scanned(*singles(keys), per_run=700)
    found = [
        entry for run in runs for entry in stored_entries(scan, survivors.ordinals, KEY_HASH, run) if entry
    ]
    assert [entry.position for entry in found] == [Position(1, at) for at in (0, 1, 1700, 2998, 2999)]
    assert [entry.first_index for entry in found] == [0, 1, 1700, 2998, 2999]


def test_a_large_batch_is_stored_in_short_steps() -> None:
    count = 1000
    entry = batch(1, [(f"key-{at % 600}", b"value") for at in range(count)], LZ4)
    scan, survivors, runs = scanned(entry)
    steps = list(stored_entries(scan, survivors.ordinals, KEY_HASH, runs[0]))
    (stored,) = [each for each in steps if each is not None]
    assert steps[-1] is stored
    assert stored.batch_indexes == tuple(range(400, 1000))
    # Its messages are parsed, hashed and packed again.
    assert (
        len(steps) - 1 >= count // MESSAGES_PER_STEP + 600 // MESSAGES_PER_STEP + count // MESSAGES_PER_STEP
    )
    examined = examine(stored.data, 0)
    live = [each.batch_index for each in batch_messages(examined.payload, count)]
    assert live == list(range(400, 1000))


def test_a_batch_in_steps_is_the_batch_at_once() -> None:
    entry = batch(1, [(f"key-{at}", b"value") for at in range(200)], LZ4).data
    rebuilt: list[bytes] = []

    def kept() -> Iterator[None]:
        rebuilt.append((yield from without_in_steps(entry, {7, 150})))

    assert len(list(kept())) == 200 // MESSAGES_PER_STEP
    assert rebuilt == [without(entry, {7, 150})]


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        ([10, 11, 900, 3000], (10, 11)),  # few: until a gap
        ([10, 42, 775, 3000], (10, 42)),
        (range(10, 4000, 2), (10, 1008)),  # many: the last one of the read
        ([*range(10, 100), 990, 3000], (10, 990)),  # many for the gap that is read with them
        ([3999], (3999, 3999)),
    ],
)
def test_a_read_includes_gaps_by_what_they_bring(live: Sequence[int], expected: tuple[int, int]) -> None:
    scan, _, _ = scanned(*singles(["hot"] * 4000))
    assert next_stretch(scan, BitMap(live), live[0], 1000) == expected


class CountingScan:
    """A scan that counts how often it is asked."""

    def __init__(self, scan: TailScan) -> None:
        self.scan = scan
        self.asked = 0

    @property
    def entries(self) -> int:
        return self.scan.entries

    def number_of(self, ordinal: int) -> int:
        self.asked += 1
        return self.scan.number_of(ordinal)

    def ordinals_of(self, number: int) -> tuple[int, int]:
        self.asked += 1
        return self.scan.ordinals_of(number)


@pytest.mark.parametrize("every", [1, 2, 31, 33, 1000])
def test_the_choice_of_a_read_costs_little_however_many_survive(every: int) -> None:
    """A search entry by entry took 25 ms on the event loop for each read."""
    scan, _, _ = scanned(*singles(["hot"] * 10_000))
    counting = CountingScan(scan)
    next_stretch(counting, BitMap(range(0, 10_000, every)), 0, 5000)  # type: ignore[arg-type]
    assert counting.asked <= 3 + 2 * 5000 // 32


def test_the_first_ordinal_at_or_after_another_is_found() -> None:
    ordinals = BitMap([3, 70_000])
    assert [first_from(ordinals, at) for at in (0, 3, 4, 70_000, 70_001)] == [3, 3, 70_000, 70_000, None]
    assert first_from(BitMap(), 0) is None
