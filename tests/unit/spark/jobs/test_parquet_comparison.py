"""What `verify` finds: rows of an object against the entries of a ledger."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from magnetar.common.errors import DataCorruption, MagnetarError
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.offload.offload_pb2 import Ledger, OffloadState
from magnetar.common.offload.offload_refusals import OnlyCopy
from magnetar.common.wire.pulsar_pb2 import LZ4, EncryptionKeys
from magnetar.ledger import payload_codecs
from magnetar.ledger.cold.layout import Part
from magnetar.ledger.cold.objects import NoSuchObject
from magnetar.ledger.cold.part_writer import PartWriter
from magnetar.ledger.cold.rows import Rows, rows_in_pieces, rows_of
from magnetar.ledger.ledger_store import RUN_TXN, Run
from magnetar.spark.jobs import parquet_comparison
from magnetar.spark.jobs.parquet_comparison import CompareTask, Comparison, compare_rows
from magnetar.spark.ledgers.ledger_source import LedgerSource, ServiceAddress
from pyroaring import BitMap

from tests.unit.ledger.cold.entries import INFO, LEDGER_ID, batch, run, single, written

PART = Part(
    name=INFO.name,
    first_entry_id=0,
    last_entry_id=0,
    rows=0,
    entries=0,
    raw_entries=0,
    byte_length=0,
    sha256=b"",
    payload_crc32c=0,
    payload_bytes=0,
    raw_crc32c=0,
    raw_bytes=0,
)


class Entries:
    """A ledger in memory; gives a run at a time."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs

    def read(self, first_entry_id: int, last_entry_id: int) -> Iterator[list[Run]]:
        for each in self._runs:
            first, last = max(first_entry_id, each.first_entry_id), min(last_entry_id, each.last_entry_id)
            if first <= last:
                yield [each.slice(first, last)]


def ledger(change: bytes = b"") -> list[Run]:
    """Something of everything; `change` makes a payload another one."""
    keys = {"partition_key": "k", "properties": [{"key": "b", "value": "2"}, {"key": "a", "value": "1"}]}
    return [
        run([batch([(b"one", keys), (b"two" + change, keys), (b"three", {})])], [3]),
        run([single(b"alone"), single(b"packed " * 50, LZ4)], first_entry_id=1, first_index=103),
        run(
            [single(b"?", encryption_keys=[EncryptionKeys(key="owner", value=b"key")])],
            first_entry_id=3,
            first_index=105,
        ),
        run([single(b"last")], first_entry_id=4, first_index=106),
    ]


def compare(
    stored: Sequence[Run], live: Sequence[Run], *, exact: bool = False, row_group_bytes: int = 16 << 20
) -> Comparison:
    part = replace(PART, last_entry_id=live[-1].last_entry_id)
    source = LedgerSource(ServiceAddress("127.0.0.1:1"), INFO.topic, LEDGER_ID, 1)
    task = CompareTask(INFO.topic, LEDGER_ID, "file:///nowhere", "path", part, exact, source, source.service)
    found = Comparison(INFO.topic, LEDGER_ID, INFO.name)
    rows = [rows_of([each], partition=-1, exact=exact) for each in stored]
    _, reader = written(*rows, row_group_bytes=row_group_bytes)
    with reader:
        compare_rows(reader, Entries(live), task, found)
    return found


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("row_group_bytes", [1, 16 << 20])
def test_entries_and_the_rows_that_were_made_of_them_are_equal(
    exact: bool, row_group_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_one_by_one(*_: object) -> None:
        raise AssertionError("equal columns need no look at single rows")

    monkeypatch.setattr(parquet_comparison, "_compare_entries", not_one_by_one)
    found = compare(ledger(), ledger(), exact=exact, row_group_bytes=row_group_bytes)
    assert (found.differences, found.messages, found.entries) == (0, 7, 5)


def test_a_payload_that_differs_is_named_with_its_message() -> None:
    found = compare(ledger(b"!"), ledger())
    assert any(
        "message 0:1: payload is b'two!' in the object, b'two' in the ledger" in each for each in found.told
    )
    assert all("message 0:1: " in each for each in found.told), "nothing else differs"


@pytest.mark.parametrize(
    ("stored", "told", "differences"),
    [([1], [1], 0), ([], [], 0), ([], [1], True), ([1], [], True)],
    ids=["aborted", "committed", "an aborted message shows", "a committed message is hidden"],
)
def test_what_became_of_transactions_is_compared(
    stored: list[int], told: list[int], differences: int
) -> None:
    txn = TxnId(0, 5)
    body = single(b"in it", txnid_most_bits=0, txnid_least_bits=5)
    live = [
        run([single(b"plain")]),
        run([body], flags=RUN_TXN, txn=txn, first_entry_id=1, first_index=101),
    ]
    rows = [rows_of([each], partition=-1, aborted=BitMap(stored)) for each in live]
    (piece,) = rows_in_pieces(live, partition=-1, aborted=BitMap(told))
    found = Comparison(INFO.topic, LEDGER_ID, INFO.name)
    _, reader = written(*rows)
    with reader:
        parquet_comparison._compare_piece(reader.read_table([0]), piece, live, found)
    assert bool(found.differences) == bool(differences), found.told


def test_a_time_that_differs_is_found() -> None:
    live = ledger()
    stored = [*live[:-1], replace(live[-1], publish_time_ms=live[-1].publish_time_ms + 1)]
    assert any("message 4:-1: broker_publish_time is" in each for each in compare(stored, live).told)


def test_an_entry_that_the_object_lacks_or_that_is_too_much_is_found() -> None:
    live = ledger()
    lacking = compare(live[:-1], live)
    assert lacking.told == [
        f"{INFO.topic}, ledger 7, part-00000.parquet: the object ends with entry 3, the manifest says 4"
    ]
    longer = [*live, run([single(b"more")], first_entry_id=5, first_index=107)]
    more = compare(longer, live)
    assert any("entry 5 is in the object and not in the ledger" in each for each in more.told), more.told


def test_messages_in_another_order_are_found() -> None:
    live = ledger()
    swapped = [live[0], live[2], live[1], live[3]]
    rows = [rows_of([each], partition=-1) for each in live]
    _, reader = written(*rows)
    with reader:
        table = reader.read_table([0])
    found = Comparison(INFO.topic, LEDGER_ID, INFO.name)
    mixed = table.take([0, 1, 2, 5, 3, 4, 6])
    (piece,) = rows_in_pieces(live, partition=-1)
    parquet_comparison._compare_piece(mixed, piece, swapped, found)
    assert found.differences == 1
    assert "another order" in found.told[0]


def test_entries_of_many_messages_are_compared_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.ledger.cold.rows.PIECE_ROWS", 2)
    sizes: list[int] = []
    original = parquet_comparison._compare_piece

    def counted(table: object, live: Rows, runs: Sequence[Run], found: Comparison) -> None:
        sizes.append(live.rows)
        original(table, live, runs, found)

    monkeypatch.setattr(parquet_comparison, "_compare_piece", counted)
    found = compare(ledger(), ledger())
    assert (found.differences, found.messages, found.entries) == (0, 7, 5)
    assert sizes == [3, 2, 1, 1]


def _damaged(tmp_path: Path, part: Part, data: bytes, at: int) -> Comparison:
    (tmp_path / "path").mkdir()
    path = tmp_path / "path" / part.name
    path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
    service = ServiceAddress("127.0.0.1:1")
    return parquet_comparison.compare_part(
        CompareTask(INFO.topic, LEDGER_ID, tmp_path.as_uri(), "path", part, False, None, service)
    )


def _object() -> tuple[Part, bytes]:
    sink = io.BytesIO()
    writer = PartWriter(sink, INFO)
    writer.write(rows_of(ledger(), partition=-1))
    return writer.close(), sink.getvalue()


def test_a_footer_that_is_damaged_never_gets_to_arrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow ends the process with some of them."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("Arrow was given a footer that is not the one that was written")

    part, data = _object()
    monkeypatch.setattr(pq, "read_metadata", never)
    monkeypatch.setattr(pq, "ParquetFile", never)
    found = _damaged(tmp_path, part, data, len(data) - part.footer_bytes + 10)
    assert [each.rpartition(": ")[2] for each in found.told] == [
        "the object has other bytes than the manifest says (SHA-256)",
        f"the footer of {part.name} is not the one that was written",
    ]


def test_damaged_object_with_unknown_footer_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, data = _object()
    monkeypatch.setattr(parquet_comparison, "PartReader", None)
    found = _damaged(tmp_path, replace(part, footer_bytes=0, footer_crc32c=0), data, len(data) - 20)
    assert found.differences == 1
    assert "SHA-256" in found.told[0]


def test_a_page_that_is_damaged_is_found(tmp_path: Path) -> None:
    part, data = _object()
    found = _damaged(tmp_path, part, data, data.index(b"alone") if b"alone" in data else 400)
    assert found.differences >= 1
    assert "SHA-256" in found.told[0]


def test_undecoded_entry_is_compared_by_its_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = ledger()

    def unknown(*_: object) -> bytes:
        raise DataCorruption("a compression that an earlier release did not know")

    with monkeypatch.context() as earlier:
        earlier.setattr(payload_codecs, "_decompress_into", unknown)
        raw = rows_of([live[1]], partition=-1)
    assert raw.raw_entries == 1
    _, reader = written(rows_of([live[0]], partition=-1), raw)
    with reader:
        stored = reader.read_rows([0])
    found = Comparison(INFO.topic, LEDGER_ID, INFO.name)
    its = parquet_comparison._by_entry(stored)
    expected = parquet_comparison._by_entry(rows_of(live[:2], partition=-1).columns)
    bodies = {0: live[0].entries[0], 1: live[1].entries[0], 2: live[1].entries[1]}
    parquet_comparison._compare_entries(dict(its), expected, bodies, found)
    assert found.differences == 0
    parquet_comparison._compare_entries(dict(its), expected, {**bodies, 2: b"other bytes"}, found)
    assert found.differences > 0


def test_many_differences_are_counted_and_some_of_them_told() -> None:
    found = Comparison(INFO.topic, LEDGER_ID, INFO.name)
    for number in range(parquet_comparison.TOLD_MAX + 5):
        found.differ(f"difference {number}")
    assert found.differences == parquet_comparison.TOLD_MAX + 5
    assert len(found.told) == parquet_comparison.TOLD_MAX


NO_OBJECT, NO_ENTRIES = NoSuchObject("no object"), OnlyCopy("left")


@pytest.mark.parametrize(
    ("error", "now", "gone"),
    [
        (NO_OBJECT, None, True),
        (NO_OBJECT, Ledger(offload=OffloadState(path="another attempt")), True),
        (NO_OBJECT, Ledger(offload=OffloadState(path="path")), False),
        (NO_OBJECT, Ledger(offload=OffloadState(path="path", left_bookies_ms=5)), False),
        (NO_ENTRIES, Ledger(offload=OffloadState(path="path", left_bookies_ms=5)), True),
        (NO_ENTRIES, Ledger(offload=OffloadState(path="path")), False),
    ],
)
def test_regular_deletion_during_comparison_is_no_difference_and_loss_is(
    error: MagnetarError, now: Ledger | None, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(parquet_comparison, "find_ledger", lambda *_: now)
    monkeypatch.setattr(parquet_comparison, "_fetch", fail)
    service = ServiceAddress("127.0.0.1:1")
    source = LedgerSource(service, INFO.topic, LEDGER_ID, 1)
    task = CompareTask(INFO.topic, LEDGER_ID, "file:///nowhere", "path", PART, False, source, service)
    found = parquet_comparison.compare_part(task)
    assert (found.gone, found.differences) == (gone, 0 if gone else 1), found.told
