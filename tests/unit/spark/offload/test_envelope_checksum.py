"""The checksum over what stands beside entries."""

from __future__ import annotations

import random

import pytest
from magnetar.ledger.ledger_store import Run
from magnetar.spark.offload.envelope_checksum import envelope_crc

SIZES = [0, 1, 10, 99, 100, 101, 250, 3, 7, 100]


def ledger(seed: int = 0, entries: int = 200) -> Run:
    rng = random.Random(seed)
    return Run(
        entries=[rng.randbytes(rng.choice(SIZES)) for _ in range(entries)],
        publish_time_ms=1_000,
        first_index=7,
        message_counts=[rng.randrange(1, 5) for _ in range(entries)],
        ledger_id=1,
        first_entry_id=0,
    )


def cut(run: Run, rng: random.Random) -> list[list[Run]]:
    """The same entries in runs and answers of any length."""
    runs, at = [], 0
    while at < len(run.entries):
        end = min(len(run.entries), at + rng.randrange(1, 20))
        runs.append(run.slice(at, end - 1))
        at = end
    answers: list[list[Run]] = []
    for each in runs:
        if not answers or rng.random() < 0.5:
            answers.append([])
        answers[-1].append(each)
    return answers


@pytest.mark.parametrize("seed", range(10))
def test_the_checksum_of_envelopes_does_not_depend_on_runs(seed: int) -> None:
    whole = ledger()
    crc = 0
    for answer in cut(whole, random.Random(seed)):
        crc = envelope_crc(answer, crc)
    assert crc == envelope_crc([whole])


@pytest.mark.parametrize(
    "change",
    [
        {"publish_time_ms": 1_001},
        {"first_index": 8},
        {"message_counts": None},
        {"flags": 1},
        {"first_entry_id": 1},
    ],
)
def test_the_checksum_of_envelopes_notices_every_field(change: dict[str, int | None]) -> None:
    run = ledger(entries=5)
    fields = {
        "entries": run.entries,
        "publish_time_ms": run.publish_time_ms,
        "first_index": run.first_index,
        "message_counts": [2] * 5,
        "flags": 0,
        "first_entry_id": 0,
    }
    assert envelope_crc([Run(**fields)]) != envelope_crc([Run(**{**fields, **change})])  # type: ignore[arg-type]
