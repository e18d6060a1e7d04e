"""A part as a task writes it: in bounded memory, the same bytes every time, all of its entries or none."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.wire.pulsar_pb2 import CompressionType
from magnetar.ledger.cold import rows as rows_module
from magnetar.ledger.cold.part_reader import PartReader
from magnetar.ledger.cold.part_writer import PartWriter
from magnetar.ledger.cold.rows import Rows
from magnetar.ledger.ledger_store import Run
from magnetar.spark.ledgers.ledger_source import LedgerSource, ServiceAddress
from magnetar.spark.offload import measure_task, part_task
from magnetar.spark.offload.tasks import MeasureTask, PartTask, TaskFailure, WrittenPart

from tests.unit.ledger.cold.entries import LEDGER_ID, batch, run, single

TOPIC = "persistent://public/default/orders-partition-3"
ZLIB = CompressionType.ZLIB

Write = Callable[..., WrittenPart | TaskFailure]


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Write:
    """Have entries written by a task that reads them so cut."""

    def act(
        answers: Sequence[Sequence[Run]], last: int, first: int = 0, name: str = "part-00000.parquet"
    ) -> WrittenPart | TaskFailure:
        class Answers:
            def read(self, first_entry_id: int, last_entry_id: int) -> Iterator[list[Run]]:
                assert (first_entry_id, last_entry_id) == (first, last)
                yield from map(list, answers)

        @contextmanager
        def open_entries(source: LedgerSource) -> Iterator[Any]:
            yield Answers()

        monkeypatch.setattr(part_task, "open_entries", open_entries)
        return part_task.write_part(
            PartTask(
                source=LedgerSource(ServiceAddress("127.0.0.1:1"), TOPIC, LEDGER_ID, 0),
                location=tmp_path.as_uri(),
                path="t",
                name=name,
                first_entry_id=first,
                last_entry_id=last,
                exact=False,
            )
        )

    return act


def test_rows_are_written_in_pieces_however_many_are_inside_of_an_answer(
    write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A few hundred bytes, compressed, can be a hundred thousand rows."""
    pieces: list[int] = []

    class Noting(PartWriter):
        def write(self, rows: Rows) -> None:
            pieces.append(rows.rows)
            super().write(rows)

    monkeypatch.setattr(rows_module, "PIECE_ROWS", 500)
    monkeypatch.setattr(part_task, "PartWriter", Noting)
    entries = [batch([(b"", {})] * 200, ZLIB) for _ in range(20)]
    assert sum(map(len, entries)) < 5_000
    written = write([[run(entries, [200] * 20)]], 19)
    assert isinstance(written, WrittenPart)
    assert (written.part.rows, written.part.entries, written.first_index) == (4_000, 20, 100)
    assert pieces == [600] * 6 + [400]
    with PartReader(str(tmp_path / "t/part-00000.parquet")) as reader:
        assert reader.check().differences(written.part) == []


@pytest.mark.parametrize("seed", range(8))
def test_a_part_has_the_same_bytes_however_its_entries_came(
    write: Write, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(rows_module, "PIECE_BYTES", 2_000)
    rng = random.Random(0)
    whole = run([single(rng.randbytes(rng.randrange(300))) for _ in range(100)], publish_time_ms=1_000)
    expected = write([[whole]], 99)
    found = write(cut(whole, random.Random(seed)), 99, name="part-00001.parquet")
    assert isinstance(expected, WrittenPart)
    assert isinstance(found, WrittenPart)
    assert found.part.sha256 == expected.part.sha256
    assert (found.envelope_crc32c, found.first_index) == (expected.envelope_crc32c, expected.first_index)


def cut(whole: Run, rng: random.Random) -> list[list[Run]]:
    """The same entries in runs and answers of any length."""
    answers: list[list[Run]] = []
    at = 0
    while at < len(whole.entries):
        end = min(len(whole.entries), at + rng.randrange(1, 20))
        if not answers or rng.random() < 0.5:
            answers.append([])
        answers[-1].append(whole.slice(at, end - 1))
        at = end
    return answers


ENTRIES = run([single(b"%d" % number) for number in range(10)])


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([[ENTRIES.slice(0, 3)], [ENTRIES.slice(5, 9)]], "7:5 to 9 came where 4 to 9 were to follow"),
        ([[ENTRIES.slice(0, 3)], [ENTRIES.slice(3, 9)]], "7:3 to 9 came where 4 to 9 were to follow"),
        ([[ENTRIES.slice(1, 9)]], "7:1 to 9 came where 0 to 9 were to follow"),
        ([[ENTRIES.slice(0, 8)]], "ended before entry 9, expected 9"),
        ([], "ended before entry 0, expected 9"),
    ],
)
def test_a_part_without_one_of_its_entries_is_not_written(
    write: Write, tmp_path: Path, answers: list[list[Run]], said: str
) -> None:
    failed = write(answers, 9)
    assert isinstance(failed, TaskFailure)
    assert said in failed.reason
    assert list(tmp_path.rglob("*")) == []


def test_entries_beyond_the_part_are_not_written_into_it(write: Write) -> None:
    failed = write([[ENTRIES]], 8)
    assert isinstance(failed, TaskFailure)
    assert "7:0 to 9 came where 0 to 8 were to follow" in failed.reason


def test_entries_are_measured_with_one_read_for_those_that_follow_one_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = run([bytes(number) for number in range(20)])
    read: list[tuple[int, int]] = []

    class Ledger:
        def read(self, first: int, last: int) -> Iterator[list[Run]]:
            read.append((first, last))
            middle = (first + last) // 2
            yield [ledger.slice(first, middle)]
            if middle < last:
                yield [ledger.slice(middle + 1, last)]

    @contextmanager
    def open_entries(source: LedgerSource) -> Iterator[Ledger]:
        yield Ledger()

    monkeypatch.setattr(measure_task, "open_entries", open_entries)
    source = LedgerSource(ServiceAddress("127.0.0.1:1"), TOPIC, LEDGER_ID, 0)
    wanted = (0, 3, 4, 5, 9, 18, 19)
    assert measure_task.measure_entries(MeasureTask(source, wanted)) == list(wanted)
    assert read == [(0, 0), (3, 5), (9, 9), (18, 19)]
    assert measure_task.measure_entries(MeasureTask(source, ())) == []
