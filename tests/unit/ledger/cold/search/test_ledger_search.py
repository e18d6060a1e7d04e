"""A search reads the row groups and columns that may matter, and says how much that was."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.errors import DataCorruption
from magnetar.common.wire.frame import encode_entry
from magnetar.common.wire.pulsar_pb2 import LZ4, EncryptionKeys
from magnetar.ledger.cold.objects import NoSuchObject
from magnetar.ledger.cold.part_reader import PartReader
from magnetar.ledger.cold.search.chunk_contents import ChunkContents
from magnetar.ledger.cold.search.cold_objects import ColdObjects
from magnetar.ledger.cold.search.condition import Condition, MessagePosition
from magnetar.ledger.cold.search.ledger_search import Looked
from magnetar.ledger.ledger_store import RUN_CHUNK, Run
from magnetar.ledger.payload_codecs import compress

from tests.unit.ledger.cold.entries import LEDGER_ID, metadata, run, single
from tests.unit.ledger.cold.search.searched_ledgers import search, search_steps, write_ledger

COUNT, TIME_MS = 3_000, 1_700_000_000_000


def spread_key(number: int) -> str:
    """Unique keys without any order."""
    return f"{number * 2_654_435_761 % 2**32:08x}"


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> ColdObjects:
    """Three parts with several row groups each; one message a millisecond."""
    runs = [
        run(
            [
                single(
                    b"payload %d of a message" % number,
                    partition_key=spread_key(number),
                    publish_time=TIME_MS + number,
                )
            ],
            first_entry_id=number,
            first_index=number,
            publish_time_ms=TIME_MS + number,
        )
        for number in range(COUNT)
    ]
    return write_ledger(tmp_path_factory.mktemp("objects"), runs, part_runs=1_000, row_group_bytes=30_000)


def everything(objects: ColdObjects) -> Looked:
    looked = Looked()
    assert len(search(objects, Condition(), looked)) == COUNT
    assert (looked.row_groups_read, looked.parts_read) == (looked.row_groups, looked.parts) == (15, 3)
    return looked


def test_a_span_of_time_reads_the_row_groups_of_that_time(objects: ColdObjects) -> None:
    whole, looked = everything(objects), Looked()
    found = search(objects, Condition(since_ms=TIME_MS + 1_500, until_ms=TIME_MS + 1_510), looked)
    assert [message.position.entry_id for message in found] == list(range(1_500, 1_510))
    assert (looked.parts, looked.parts_read, looked.row_groups_read) == (3, 1, 1)
    assert (looked.rows < 300, whole.rows) == (True, COUNT)


def test_a_position_reads_one_row_group_of_one_part(objects: ColdObjects) -> None:
    looked = Looked()
    (found,) = search(objects, Condition(ledger_id=LEDGER_ID, entry_id=2_222), looked)
    assert (found.payload, found.position) == (
        b"payload 2222 of a message",
        MessagePosition(LEDGER_ID, 2_222),
    )
    assert (looked.row_groups, looked.row_groups_read) == (5, 1), "of other parts not even the footer is read"


def test_a_key_that_is_anywhere_is_found_by_bloom_filters(objects: ColdObjects) -> None:
    whole, looked = everything(objects), Looked()
    (found,) = search(objects, Condition(key=spread_key(777)), looked)
    assert found.position.entry_id == 777
    assert looked.bloom_filters > 8, "the least and the greatest key of most row groups are no help"
    assert looked.row_groups_read <= 3, "one in twenty of the others is a false hit"
    assert looked.bytes_read < whole.bytes_read
    missing = Looked()
    assert search(objects, Condition(key="80000000 is not there"), missing) == []
    assert missing.row_groups_read <= 2


def test_contents_are_read_only_where_narrower_columns_leave_a_row(
    objects: ColdObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, ...]] = []
    plainly = PartReader.read_table

    def recorded(reader: PartReader, row_groups: Iterable[int], columns: Sequence[str]) -> Any:
        read.append(tuple(columns))
        return plainly(reader, row_groups, columns)

    monkeypatch.setattr(PartReader, "read_table", recorded)
    looked = Looked()
    assert len(search(objects, Condition(text=b"payload 12"), looked)) == 111
    assert looked.row_groups_read == 15, "no statistics tell what is in contents"
    assert sum("payload" in columns for columns in read) == 15
    assert sum("producer_name" in columns for columns in read) < 5, "of row groups with a match"
    read.clear()
    condition = Condition(text=b"payload 12", properties=(("a", "b"),), since_ms=TIME_MS + 2_999)
    assert search(objects, condition) == []
    assert read == [("raw_reason", "publish_time"), ("properties",)]


def test_a_search_goes_on_at_the_position_of_any_step(objects: ColdObjects) -> None:
    condition = Condition(text=b"payload 29")
    steps = search_steps(objects, condition)
    whole = [message.position for step in steps for message in step.messages]
    for number in (0, len(steps) // 2, len(steps) - 2):
        before = [message.position for step in steps[: number + 1] for message in step.messages]
        after = search(objects, Condition(text=b"payload 29", start=steps[number].following))
        assert before + [message.position for message in after] == whole


def test_a_missing_or_damaged_object_is_named(objects: ColdObjects, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    shutil.copytree(objects.location.removeprefix("file://"), copied)
    there = ColdObjects(objects.ledger_id, copied.as_uri(), objects.path, objects.manifest_sha256)
    part = copied / objects.path / "part-00001.parquet"
    data = part.read_bytes()
    part.write_bytes(data[:-2000] + bytes(2000))
    with pytest.raises(DataCorruption, match=r"part-00001\.parquet at file://.*footer"):
        search(there, Condition())
    part.unlink()
    with pytest.raises(NoSuchObject, match=r"part-00001\.parquet at file://"):
        search(there, Condition())
    assert len(search(there, Condition(ledger_id=LEDGER_ID, entry_id=3))) == 1, "another part has the entry"
    other = ColdObjects(objects.ledger_id, copied.as_uri(), objects.path, bytes(32))
    with pytest.raises(DataCorruption, match=r"_manifest\.json at file://.* is not the manifest"):
        search(other, Condition())


def chunks(payload: bytes, pieces: int, first: int, **fields: object) -> list[Run]:
    """A compressed message in chunks, one entry each."""
    whole = compress(LZ4, payload)
    size = -(-len(whole) // pieces)
    common = {
        "uuid": "u",
        "num_chunks_from_msg": pieces,
        "total_chunk_msg_size": len(whole),
        "compression": LZ4,
        "uncompressed_size": len(payload),
        **fields,
    }
    return [
        run(
            [
                encode_entry(
                    metadata(chunk_id=number, **common).SerializeToString(),
                    whole[number * size : (number + 1) * size],
                )
            ],
            first_entry_id=first + number,
            first_index=first + number,
            flags=RUN_CHUNK,
        )
        for number in range(pieces)
    ]


def test_a_message_in_chunks_is_searched_as_a_whole(tmp_path: Path) -> None:
    payload = bytes(range(256)) * 20 + b"needle"
    objects = write_ledger(
        tmp_path, [*chunks(payload, 4, 0, partition_key="k"), run([single(b"x")], first_entry_id=4)]
    )
    (found,) = search(objects, Condition(text=payload[2_000:4_000]))
    assert (found.payload, found.position) == (payload, MessagePosition(LEDGER_ID, 3))
    assert [message.payload for message in search(objects, Condition(key="k"))] == [payload]
    assert search(objects, Condition(text=b"thread")) == []
    looked = Looked()
    assert search(objects, Condition(text=b"needle", start=MessagePosition(LEDGER_ID, 1)), looked) == []
    assert looked.unsearchable == 1, "its first chunk was left out"
    (cut,) = search(objects, Condition(start=MessagePosition(LEDGER_ID, 1), key="k"))
    assert cut.unreadable == "chunk: 1 of 4 chunks were not read"


def test_chunks_that_wait_have_a_bound() -> None:
    contents = ChunkContents(bytes_max=10)

    def row(uuid: str, number: int) -> dict[str, object]:
        return {
            "producer_name": "p",
            "chunk_uuid": uuid,
            "chunk_id": number,
            "chunk_total": 2,
            "payload": b"sixsix",
            "entry_metadata": b"",
        }

    assert contents.add(row("a", 0)) is None
    assert contents.add(row("b", 0)) is None
    assert contents.add(row("a", 1)) == (b"", "chunk: 1 of 2 chunks were not read")


def test_encrypted_content_is_counted_where_text_is_searched(tmp_path: Path) -> None:
    secret = [EncryptionKeys(key="owner", value=b"key")]
    entries = [single(b"needle", encryption_keys=secret, partition_key="k"), single(b"needle")]
    objects = write_ledger(tmp_path, [run(entries)])
    looked = Looked()
    assert [message.position.entry_id for message in search(objects, Condition(text=b"needle"), looked)] == [
        1
    ]
    assert looked.unsearchable == 1
    (found,) = search(objects, Condition(key="k"))
    assert (found.unreadable, found.payload) == ("encrypted", b"")
