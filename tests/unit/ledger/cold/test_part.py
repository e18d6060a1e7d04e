"""Parts: what is written is there, in row groups of whole entries, and damage is found."""

from __future__ import annotations

import gc
import io
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from magnetar.common.errors import DataCorruption, UnsupportedFormat
from magnetar.common.wire.pulsar_pb2 import LZ4, ZSTD, EncryptionKeys, KeyValue
from magnetar.ledger.cold.arrow_schema import ARROW_SCHEMA
from magnetar.ledger.cold.arrow_values import values_of
from magnetar.ledger.cold.columns import COLUMNS
from magnetar.ledger.cold.manifest import Part
from magnetar.ledger.cold.part_reader import Footer, PartReader, read_footer
from magnetar.ledger.cold.part_writer import PartWriter
from magnetar.ledger.cold.rows import Rows, rows_of
from magnetar.ledger.ledger_store import Run

from tests.unit.ledger.cold.entries import (
    INFO,
    PUBLISHED_MS,
    TAKEN_MS,
    batch,
    entries_of,
    metadata,
    run,
    seen,
    single,
    written,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "cold" / "v1"


def many(entries: int, size: int = 1000) -> list[Run]:
    """Batches of three, each entry in a run of its own, taken a millisecond after the other."""
    return [
        run(
            [batch([(bytes([number % 256]) * (size // 3), {"partition_key": f"k{number % 50}"})] * 3)],
            [3],
            first_entry_id=number,
            first_index=number * 3,
            publish_time_ms=TAKEN_MS + number,
        )
        for number in range(entries)
    ]


def golden_runs() -> list[Run]:
    """Something of everything."""
    secret = [EncryptionKeys(key="owner", value=b"key")]
    return [
        run(
            [
                single(
                    b"alone",
                    partition_key="k",
                    event_time=PUBLISHED_MS,
                    properties=[KeyValue(key="a", value="b")],
                ),
                single(b"", null_value=True, partition_key="k"),
                single(b"later", deliver_at_time=PUBLISHED_MS + 1, schema_version=b"\x00\x01"),
            ]
        ),
        run(
            [
                batch(
                    [(b"one", {"partition_key": "a"}), (b"two", {"ordering_key": b"o", "event_time": 1})],
                    ZSTD,
                ),
                batch([(b"three", {})], LZ4),
                single(b"secret", encryption_keys=secret),
                single(b"compressed" * 10, ZSTD),
            ],
            [2, 1, 1, 1],
            first_index=103,
            first_entry_id=3,
            publish_time_ms=TAKEN_MS + 1,
        ),
    ]


def test_all_columns_come_back_as_they_were() -> None:
    rows = rows_of(golden_runs(), partition=3)
    _, reader = written(rows)
    assert reader.read_rows([0]) == rows.columns


def test_the_schema_is_the_documented_one() -> None:
    data, _ = written(rows_of(golden_runs(), partition=-1))
    schema = pq.read_schema(io.BytesIO(data))
    assert schema.equals(ARROW_SCHEMA)
    assert [(field.name, field.nullable) for field in schema] == [
        (column.name, column.nullable) for column in COLUMNS
    ]
    assert str(schema.field("publish_time").type) == "timestamp[us, tz=UTC]"


def test_a_file_says_what_it_is_of() -> None:
    data, reader = written(rows_of(golden_runs(), partition=-1))
    file = pq.ParquetFile(io.BytesIO(data))
    told = {key.decode(): value.decode() for key, value in file.metadata.metadata.items()}
    assert told.keys() - {"ARROW:schema"} == {
        "magnetar.format",
        "magnetar.topic",
        "magnetar.ledger",
        "magnetar.first_entry",
        "magnetar.last_entry",
        "magnetar.rows",
        "magnetar.entries",
        "magnetar.raw_entries",
    }
    footer = reader.footer
    assert (footer.topic, footer.ledger_id) == (INFO.topic, INFO.ledger_id)
    assert (footer.first_entry_id, footer.last_entry_id) == (0, 6)
    assert (footer.rows, footer.entries, footer.raw_entries) == (8, 7, 1)


def test_readers_can_skip_by_time_ids_and_key() -> None:
    data, _ = written(rows_of(many(100), partition=-1))
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    by_name = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
    for name in ("entry_id", "publish_time", "broker_publish_time", "message_index", "key", "sequence_id"):
        assert by_name[name].has_column_index, name
        assert by_name[name].statistics.has_min_max, name
    assert by_name["key"].statistics.min == "k0"
    assert by_name["payload"].compression == "ZSTD"
    assert by_name["payload"].has_offset_index
    assert not by_name["payload"].is_stats_set, "payloads would only make footers long"
    order = [(column.column_index, column.descending) for column in group.sorting_columns]
    assert order == [(1, False), (2, False)]


def test_row_groups_are_of_about_one_size_and_of_whole_entries() -> None:
    given = many(400)
    rows = [rows_of(given[start : start + 37], partition=-1) for start in range(0, 400, 37)]
    data, reader = written(*rows, row_group_bytes=50_000)
    groups = reader.footer.row_groups
    assert groups[0].first_entry_id == 0
    assert groups[-1].last_entry_id == 399
    for before, after in pairwise(groups):
        assert after.first_entry_id == before.last_entry_id + 1
    assert len({group.rows for group in groups[:-1]}) == 1
    assert 40_000 < groups[0].rows / 3 * rows[0].entry_bytes[0] <= 50_000
    for group in groups:
        (back,) = [entries_of(reader.read_runs([group.number]))]
        assert back == entries_of(given)[group.first_entry_id : group.last_entry_id + 1]
        assert group.first_publish_time_ms == TAKEN_MS + group.first_entry_id
        assert group.last_publish_time_ms == TAKEN_MS + group.last_entry_id
        assert group.first_index == group.first_entry_id * 3
    assert sum(group.byte_length for group in groups) < len(data)


def test_an_entry_larger_than_a_row_group_has_one_for_itself() -> None:
    given = run([single(b"a"), single(bytes(10_000)), single(b"b"), single(b"c")])
    _, reader = written(rows_of([given], partition=-1), row_group_bytes=1000)
    ranges = [(group.first_entry_id, group.last_entry_id) for group in reader.footer.row_groups]
    assert ranges == [(0, 0), (1, 1), (2, 3)]


def test_the_row_groups_of_a_range_are_found() -> None:
    _, reader = written(rows_of(many(100), partition=-1), row_group_bytes=12_000)
    groups = reader.footer.row_groups
    assert len(groups) > 5
    for first in range(-2, 102):
        for last in range(first, 102, 7):
            expected = [
                group.number
                for group in groups
                if group.last_entry_id >= first and group.first_entry_id <= last
            ]
            assert list(reader.footer.row_groups_for(first, last)) == expected
    assert reader.footer.row_group_of(groups[3].first_entry_id) == 3
    with pytest.raises(IndexError, match="100 is not among 0 to 99"):
        reader.footer.row_group_of(100)


def test_parts_of_a_ledger_begin_anywhere() -> None:
    given = many(100)[60:]
    _, reader = written(rows_of(given, partition=-1))
    assert (reader.footer.first_entry_id, reader.footer.last_entry_id) == (60, 99)
    assert entries_of(reader.read_runs([0])) == entries_of(given)


def test_a_footer_that_was_kept_serves_other_readers() -> None:
    data, reader = written(rows_of(many(50), partition=-1), row_group_bytes=12_000)
    footer = read_footer(io.BytesIO(data))
    assert footer.row_groups == reader.footer.row_groups
    assert footer.byte_length > 1024

    ends = []

    class Noting(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            found = super().read(size)
            ends.append(self.tell())
            return found

    with PartReader(Noting(data), footer) as another:
        assert another.footer is footer
        assert entries_of(another.read_runs([1])) == entries_of(reader.read_runs([1]))
    assert max(ends) < 4 + sum(group.byte_length for group in footer.row_groups[:3]), "no footer was read"


def test_columns_are_read_alone() -> None:
    rows = rows_of(many(10), partition=-1)
    _, reader = written(rows)
    assert reader.read_rows([0], ["key", "batch_index"]) == {
        "key": rows.columns["key"],
        "batch_index": rows.columns["batch_index"],
    }


def test_entries_that_do_not_follow_are_refused() -> None:
    writer = PartWriter(io.BytesIO(), INFO)
    writer.write(rows_of(many(2), partition=-1))
    writer.write(rows_of([], partition=-1))
    with pytest.raises(ValueError, match="goes on with entry 2, not 3"):
        writer.write(rows_of(many(4)[3:], partition=-1))


def test_a_part_without_entries_is_not_written() -> None:
    with pytest.raises(ValueError, match="no entries"):
        PartWriter(io.BytesIO(), INFO).close()


def test_an_error_of_the_sink_reaches_the_writer() -> None:
    class Full(io.BytesIO):
        def write(self, data: Any, /) -> int:
            raise OSError(28, "No space left on device")

    writer = PartWriter(Full(), INFO)
    with pytest.raises(OSError, match="No space left"):
        writer.write(rows_of(many(3000, 9000), partition=-1))


def test_a_part_that_is_given_up_writes_nothing_more(tmp_path: Path) -> None:
    with (tmp_path / "part").open("wb") as sink:
        writer = PartWriter(sink, INFO, row_group_bytes=1000)
        writer.write(rows_of(many(20), partition=-1))
        sink.flush()
        length = sink.tell()
    assert 0 < length == writer.byte_length
    del writer
    gc.collect()  # pytest would report an error that nobody can catch
    assert (tmp_path / "part").stat().st_size == length


def test_a_count_or_checksum_that_differs_is_named() -> None:
    sink = io.BytesIO()
    writer = PartWriter(sink, INFO)
    writer.write(rows_of([run([single(b"a"), b"junk"])], partition=-1))
    part = writer.close()
    found = PartReader(sink).check()
    assert found.differences(part) == []
    for name in (
        "rows",
        "entries",
        "raw_entries",
        "payload_crc32c",
        "payload_bytes",
        "raw_crc32c",
        "raw_bytes",
    ):
        wrong = replace(part, **{name: getattr(part, name) + 1})
        assert len(found.differences(wrong)) == 1
        assert name in found.differences(wrong)[0]


def test_other_rows_have_other_checksums() -> None:
    def part(rows: Rows) -> Any:
        writer = PartWriter(io.BytesIO(), INFO)
        writer.write(rows)
        return writer.close()

    one = part(rows_of([run([single(b"one"), b"junk"])], partition=-1))
    other = part(rows_of([run([single(b"one"), b"jink"])], partition=-1))
    third = part(rows_of([run([single(b"oNe"), b"junk"])], partition=-1))
    assert one.payload_crc32c == other.payload_crc32c != third.payload_crc32c
    assert one.raw_crc32c == third.raw_crc32c != other.raw_crc32c
    assert (one.payload_bytes, one.raw_bytes) == (3, 4)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"no Parquet at all", b"PAR1" + bytes(100) + b"PAR1"])
def test_invalid_parquet_is_corrupt(data: bytes) -> None:
    with pytest.raises(DataCorruption):
        read_footer(io.BytesIO(data))


def part_of(data: bytes, runs: list[Run]) -> Part:
    """What the manifest says of the object with this data."""
    sink = io.BytesIO()
    writer = PartWriter(sink, INFO)
    writer.write(rows_of(runs, partition=-1))
    part = writer.close()
    assert sink.getvalue() == data
    return part


def test_a_damaged_footer_is_found_before_arrow_sees_it(tmp_path: Path) -> None:
    """Of some Arrow makes an end of the process."""
    data, reader = written(rows_of(many(50), partition=-1))
    part = part_of(data, many(50))
    assert read_footer(io.BytesIO(data), part).row_groups == reader.footer.row_groups
    start = len(data) - part.footer_bytes
    assert int.from_bytes(data[-8:-4], "little") == part.footer_bytes - 8
    for position in range(start, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(DataCorruption, match=r"the footer of part-00000\.parquet is not the one"):
            PartReader(io.BytesIO(damaged), part=part)
    for length in (start - 1, start, len(data) - 1):
        with pytest.raises(DataCorruption, match="is not the one that was written"):
            read_footer(io.BytesIO(data[:length]), part)
    path = tmp_path / part.name
    path.write_bytes(data)
    with PartReader(str(path), part=part) as from_file:
        assert from_file.check().differences(part) == []


def test_a_footer_that_says_something_else_than_the_manifest_is_refused() -> None:
    data, _ = written(rows_of(many(50), partition=-1))
    part = part_of(data, many(50))
    with pytest.raises(DataCorruption, match="says of its rows 150, the manifest 151"):
        read_footer(io.BytesIO(data), replace(part, rows=151))
    with pytest.raises(DataCorruption, match="says of its last_entry_id 49, the manifest 50"):
        read_footer(io.BytesIO(data), replace(part, last_entry_id=50, footer_bytes=0))


def test_a_cut_object_is_corrupt() -> None:
    data, _ = written(rows_of(many(50), partition=-1))
    for length in (len(data) - 1, len(data) // 2, 12):
        with pytest.raises(DataCorruption):
            read_footer(io.BytesIO(data[:length]))


def test_a_damaged_page_is_never_served() -> None:
    """Brokers read ranges, not whole objects: so the SHA-256 of these is not what saves them."""
    rows = rows_of(many(50), partition=-1)
    data, reader = written(rows)
    whole = reader.read_rows([0])
    noticed = 0
    positions = range(4, reader.footer.row_groups[0].byte_length, 61)
    for position in positions:
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        try:
            # In the header of a page, what is not needed may change and nothing else.
            assert PartReader(io.BytesIO(damaged), reader.footer).read_rows([0]) == whole, position
        except DataCorruption:
            noticed += 1
    assert noticed > len(positions) / 2


def test_foreign_parquet_is_no_part() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), sink)
    with pytest.raises(DataCorruption, match="has no format version"):
        read_footer(sink)


def test_a_part_of_a_later_version_is_refused() -> None:
    sink = io.BytesIO()
    table = pa.table({"a": [1]}).replace_schema_metadata({"magnetar.format": "2"})
    pq.write_table(table, sink)
    with pytest.raises(UnsupportedFormat, match=r"version 2; this release reads version 1\. Run the release"):
        read_footer(sink)


def test_a_part_without_its_columns_is_corrupt() -> None:
    sink = io.BytesIO()
    table = pa.table({"a": [1]}).replace_schema_metadata({"magnetar.format": "1"})
    pq.write_table(table, sink)
    with pytest.raises(DataCorruption, match="does not say what it has to"):
        read_footer(sink)


def test_the_errors_of_a_source_stay_what_they_are() -> None:
    data, reader = written(rows_of(many(50), partition=-1))

    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError(104, "the store hung up")

    with pytest.raises(ConnectionResetError):
        read_footer(Failing(data))
    with pytest.raises(ConnectionResetError):
        PartReader(Failing(data), reader.footer).read_runs([0])


def test_values_of_slices_are_those_of_the_slice() -> None:
    rows = rows_of(golden_runs(), partition=-1)
    for field in ARROW_SCHEMA:
        whole = pa.chunked_array([pa.array(rows.columns[field.name], type=field.type)])
        for start, stop in ((0, 8), (3, 5), (7, 8), (2, 2)):
            assert values_of(whole.slice(start, stop - start)) == rows.columns[field.name][start:stop]


def test_the_golden_part_is_still_understood() -> None:
    """Whatever wrote it: parts of version 1 are read by every release."""
    reader = PartReader(str(GOLDEN / "part.parquet"))
    assert isinstance(reader.footer, Footer)
    expected = rows_of(golden_runs(), partition=3)
    assert reader.read_rows([0]) == expected.columns
    back = reader.read_runs([0])
    for found, given in zip(entries_of(back), entries_of(golden_runs()), strict=True):
        assert found[:-1] == given[:-1]
        assert seen(found[-1]) == seen(given[-1])
    reader.close()


def test_metadata_of_required_fields_only_is_what_the_tests_think() -> None:
    assert metadata().IsInitialized()
