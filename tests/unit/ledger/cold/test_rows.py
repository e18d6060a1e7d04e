"""Entries as rows and back: what SQL sees of each kind of entry, and that clients see no difference."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from magnetar.common.errors import DataCorruption, NotSupportedYet, UnsupportedFormat
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.frame import MESSAGE_BYTES_MAX, encode_entry
from magnetar.common.wire.pulsar_pb2 import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    CompressionType,
    EncryptionKeys,
    KeyValue,
    MessageMetadata,
)
from magnetar.ledger import payload_codecs
from magnetar.ledger.cold import rows as rows_module
from magnetar.ledger.cold.columns import COLUMN_NAMES
from magnetar.ledger.cold.entry_envelope import decode_envelope
from magnetar.ledger.cold.entry_rows import ENTRY_ROWS_MAX
from magnetar.ledger.cold.rows import Rows, rows_in_pieces, rows_of, runs_of
from magnetar.ledger.ledger_store import RUN_CHUNK, RUN_MARKER, RUN_TXN, Run
from pyroaring import BitMap

from tests.unit.ledger.cold.entries import (
    LEDGER_ID,
    PUBLISHED_MS,
    TAKEN_MS,
    batch,
    batch_payload,
    entries_of,
    metadata,
    row,
    run,
    seen,
    single,
)

THREE: list[tuple[bytes, dict[str, Any]]] = [
    (b"one", {"partition_key": "a", "sequence_id": 5}),
    (b"", {"null_value": True, "partition_key": "b", "event_time": PUBLISHED_MS - 1, "sequence_id": 6}),
    (b"three", {"properties": [KeyValue(key="k", value="v")], "ordering_key": b"\x00\xff", "sequence_id": 9}),
]


def only(entry: bytes, **options: Any) -> tuple[dict[str, Any], Rows]:
    """The single row of an entry, which comes back byte for byte."""
    given = run([entry])
    rows = rows_of([given], partition=-1, **options)
    assert rows.rows == rows.entries == 1
    assert entries_of(runs_of(rows.columns)) == entries_of([given])
    return row(rows), rows


def raw(entry: bytes, reason: str, **fields: Any) -> dict[str, Any]:
    """The row of an entry that has to be kept as it is for this reason, and comes back so."""
    given = run([entry], **fields)
    rows = rows_of([given], partition=2)
    assert (rows.rows, rows.entries, rows.raw_entries) == (1, 1, 1)
    assert rows.raw_reasons == {reason.partition(":")[0]: 1}
    assert entries_of(runs_of(rows.columns)) == entries_of([given])
    found = row(rows)
    assert (found["payload"], found["raw_entry"], found["batch_index"]) == (None, entry, -1)
    assert reason in found["raw_reason"]
    return found


def test_a_message_alone_is_one_row() -> None:
    found, _ = only(
        single(
            b"hello",
            sequence_id=17,
            partition_key="k",
            event_time=PUBLISHED_MS - 7,
            properties=[KeyValue(key="a", value="1"), KeyValue(key="ü", value="")],
            ordering_key=b"\x00",
            schema_version=b"\x00\x01",
            deliver_at_time=PUBLISHED_MS + 60_000,
            replicated_from="west",
            txnid_most_bits=2**64 - 1,
            txnid_least_bits=12,
        )
    )
    assert found.pop("entry_metadata") is not None
    assert found == {
        "ledger_id": LEDGER_ID,
        "entry_id": 0,
        "batch_index": -1,
        "partition": -1,
        "publish_time": PUBLISHED_MS * 1000,
        "event_time": (PUBLISHED_MS - 7) * 1000,
        "broker_publish_time": TAKEN_MS * 1000,
        "message_index": 100,
        "key": "k",
        "key_bytes": None,
        "ordering_key": b"\x00",
        "properties": (("a", "1"), ("ü", "")),
        "producer_name": "producer",
        "sequence_id": 17,
        "schema_version": b"\x00\x01",
        "deliver_at": (PUBLISHED_MS + 60_000) * 1000,
        "replicated_from": "west",
        "chunk_uuid": None,
        "chunk_id": None,
        "chunk_total": None,
        "txn_most": -1,
        "txn_least": 12,
        "null_value": False,
        "payload": b"hello",
        "raw_entry": None,
        "raw_reason": None,
        "message_metadata": None,
    }


def test_absent_message_fields_are_null() -> None:
    found, _ = only(single(b"hello"))
    assert {name for name, value in found.items() if value is None} == {
        "event_time",
        "key",
        "key_bytes",
        "ordering_key",
        "schema_version",
        "deliver_at",
        "replicated_from",
        "chunk_uuid",
        "chunk_id",
        "chunk_total",
        "txn_most",
        "txn_least",
        "raw_entry",
        "raw_reason",
        "message_metadata",
    }
    assert found["properties"] == ()


@pytest.mark.parametrize("field", ["replicated_from", "uuid", "partition_key"])
def test_a_field_with_nothing_else_around_it_is_not_overlooked(field: str) -> None:
    fields: dict[str, Any] = {field: "x"}
    if field == "uuid":
        fields |= {"num_chunks_from_msg": 2, "chunk_id": 0}
    found, _ = only(single(b"hello", **fields))
    assert "x" in (found["replicated_from"], found["chunk_uuid"], found["key"])


@pytest.mark.parametrize("compression", [NONE, LZ4, ZLIB, ZSTD, SNAPPY])
def test_a_batch_is_a_row_for_each_message(compression: CompressionType.ValueType) -> None:
    entry = batch(THREE, compression, sequence_id=5, highest_sequence_id=9, schema_version=b"v")
    given = run([entry], [3])
    rows = rows_of([given], partition=2)
    assert (rows.rows, rows.entries, rows.raw_entries) == (3, 1, 0)
    columns = rows.columns
    assert columns["batch_index"] == [0, 1, 2]
    assert columns["partition"] == [2, 2, 2]
    assert columns["message_index"] == [100, 101, 102]
    assert columns["payload"] == [b"one", b"", b"three"]
    assert columns["null_value"] == [False, True, False]
    assert columns["key"] == ["a", "b", None]
    assert columns["ordering_key"] == [None, None, b"\x00\xff"]
    assert columns["properties"] == [(), (), (("k", "v"),)]
    assert columns["event_time"] == [None, (PUBLISHED_MS - 1) * 1000, None]
    assert columns["sequence_id"] == [5, 6, 9]
    assert columns["schema_version"] == [b"v"] * 3
    assert [value is None for value in columns["entry_metadata"]] == [False, True, True]
    assert decode_envelope(columns["entry_metadata"][0]).compression == compression
    (back,) = runs_of(columns)
    assert back.message_counts == [3]
    assert seen(back.entries[0]) == seen(entry)
    if compression == NONE:
        assert back.entries == [entry]
    else:
        told = MessageMetadata.FromString(decode_envelope(columns["entry_metadata"][0]).metadata)
        assert not told.HasField("compression")
        assert told.uncompressed_size == len(batch_payload(THREE))


def test_messages_of_a_batch_without_sequence_ids_count_from_their_batches() -> None:
    rows = rows_of([run([batch([(b"", {}), (b"", {})], sequence_id=2**64 - 1)], [2])], partition=-1)
    assert rows.columns["sequence_id"] == [-1, 0]


def test_a_batch_of_one_is_a_batch() -> None:
    found, _ = only(batch([(b"one", {})]))
    assert found["batch_index"] == 0


@pytest.mark.parametrize("compression", [LZ4, ZLIB, ZSTD, SNAPPY])
def test_a_compressed_message_comes_back_uncompressed(compression: CompressionType.ValueType) -> None:
    entry = single(b"hello " * 100, compression, partition_key="k")
    rows = rows_of([run([entry])], partition=-1)
    assert rows.columns["payload"] == [b"hello " * 100]
    (back,) = runs_of(rows.columns)
    assert back.entries == [encode_entry(_uncompressed(entry), b"hello " * 100)]
    assert seen(back.entries[0]) == seen(entry)


def _uncompressed(entry: bytes) -> bytes:
    told = MessageMetadata.FromString(entry[10 : 10 + int.from_bytes(entry[6:10], "big")])
    told.ClearField("compression")
    return told.SerializeToString()


def test_a_message_too_large_to_go_over_the_wire_uncompressed_keeps_its_bytes_too() -> None:
    payload = bytes(50_000_000)
    found, rows = only(single(payload, ZLIB))
    assert found["payload"] == payload
    assert found["raw_reason"] is None
    assert rows.entry_bytes[0] > len(payload)
    assert rows.raw_entries == 0


@pytest.mark.parametrize(("size", "kept"), [((1 << 20) - 200, False), (1 << 20, True)])
def test_entries_come_back_uncompressed_where_clients_accept_it(size: int, kept: bool) -> None:
    rows = rows_of([run([single(bytes(size), ZSTD)])], partition=-1)
    assert (rows.columns["raw_entry"] != [None]) == kept
    assert rows.columns["payload"] == [bytes(size)]


def test_a_message_of_the_largest_size_that_is_not_compressed_is_not_kept_twice() -> None:
    found, _ = only(single(bytes(MESSAGE_BYTES_MAX + 100)))
    assert found["raw_entry"] is None


def test_exact_keeps_the_bytes_of_every_entry_on_its_first_row() -> None:
    given = run([batch(THREE, LZ4), single(b"x", ZSTD)], [3, 1])
    rows = rows_of([given], partition=-1, exact=True)
    assert rows.columns["raw_entry"] == [given.entries[0], None, None, given.entries[1]]
    assert rows.columns["payload"] == [b"one", b"", b"three", b"x"]
    assert rows.raw_entries == 0
    assert entries_of(runs_of(rows.columns)) == entries_of([given])


def test_an_encrypted_entry_is_one_raw_row_with_what_is_not_secret() -> None:
    keys = [EncryptionKeys(key="owner", value=b"secret")]
    entry = batch(THREE, LZ4, encryption_keys=keys, encryption_param=b"iv", partition_key="a")
    found = raw(entry, "encrypted", counts=[3])
    assert (found["key"], found["producer_name"], found["publish_time"]) == (
        "a",
        "producer",
        PUBLISHED_MS * 1000,
    )
    assert found["partition"] == 2
    assert found["message_metadata"] is None


@pytest.mark.parametrize("fields", [{"flags": RUN_MARKER}, {}])
def test_a_marker_is_no_message(fields: dict[str, int]) -> None:
    raw(single(b"", marker_type=10), "marker", **fields)


def test_a_marker_that_only_its_run_says_is_one() -> None:
    raw(single(b""), "marker", flags=RUN_MARKER)


def test_unknown_compression_keeps_the_entry() -> None:
    told = metadata().SerializeToString() + b"\x40\x63"
    raw(encode_entry(told, b"who knows"), "compression: of a kind that this release does not know")


@pytest.mark.parametrize("compression", [LZ4, ZLIB, ZSTD, SNAPPY])
def test_a_payload_that_cannot_be_decompressed_keeps_the_entry(
    compression: CompressionType.ValueType,
) -> None:
    told = metadata(compression=compression, uncompressed_size=10, partition_key="k")
    found = raw(encode_entry(told.SerializeToString(), b"nonsense"), "compression: ")
    assert found["key"] == "k"


def test_a_package_that_is_missing_is_named_in_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = single(b"hello" * 10, LZ4)

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(payload_codecs, "import_module", missing)
    raw(entry, "compression: LZ4 needs a package that is not installed: pip install cramjam")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (b"", "damaged"),
        (b"\x0e\x01", "damaged"),
        (b"\x0e\x02\x00\x00\x00\x00" + single(), "damaged"),
        (single()[6:], "damaged: "),
        (single()[:-1] + b"?", "checksum: "),
        (encode_entry(b"\xff\xff\xff", b""), "damaged: the metadata of an entry is no protobuf message"),
        (encode_entry(b"", b"x"), "damaged: metadata without producer_name"),
        (single(b"xx", num_messages_in_batch=2), "damaged: a batch of 2 messages ends in number 0"),
        (single(batch_payload(THREE), num_messages_in_batch=2), "damaged: "),
        (single(batch_payload(THREE), num_messages_in_batch=4), "damaged: a batch of 4"),
        (single(b"", num_messages_in_batch=0), "damaged: a batch without messages"),
        (single(b"", num_messages_in_batch=-5), "damaged: a batch without messages"),
        (single(b"\x00\x00\x00\x01\xff", num_messages_in_batch=1), "damaged: "),
        (single(b"\x00\x00\x00\x00", num_messages_in_batch=1), "damaged: "),
        (batch([(b"x", {"payload_size": 2})]), "damaged: "),
        (batch([(b"x", {"payload_size": -1})]), "damaged: "),
    ],
)
def test_an_entry_that_cannot_be_decoded_is_kept_and_never_raises(entry: bytes, reason: str) -> None:
    raw(entry, reason)


def test_raw_entries_are_counted_and_their_neighbors_are_not_touched() -> None:
    entries = [single(b"a"), b"junk", batch(THREE), single(b"b")[:-1], single(b"c", marker_type=1)]
    given = run(entries, [1, 1, 3, 1, 1])
    rows = rows_of([given], partition=-1)
    assert (rows.rows, rows.entries, rows.raw_entries) == (7, 5, 3)
    assert rows.raw_reasons == {"damaged": 1, "checksum": 1, "marker": 1}
    assert rows.entry_starts == [0, 1, 2, 5, 6]
    assert rows.columns["message_index"] == [100, 101, 102, 103, 104, 105, 106]
    assert entries_of(runs_of(rows.columns)) == entries_of([given])


def test_chunks_are_rows_with_their_pieces_as_they_were_sent() -> None:
    whole = payload_codecs.compress(LZ4, b"abc" * 1000)
    common = {"uuid": "p-1", "num_chunks_from_msg": 2, "compression": LZ4, "uncompressed_size": 3000}
    pieces = [whole[:10], whole[10:]]
    entries = [
        encode_entry(metadata(chunk_id=number, **common).SerializeToString(), piece)
        for number, piece in enumerate(pieces)
    ]
    given = run(entries, flags=RUN_CHUNK)
    rows = rows_of([given], partition=-1)
    assert rows.columns["payload"] == pieces
    assert rows.columns["chunk_uuid"] == ["p-1", "p-1"]
    assert rows.columns["chunk_id"] == [0, 1]
    assert rows.columns["chunk_total"] == [2, 2]
    assert rows.raw_entries == 0
    assert entries_of(runs_of(rows.columns)) == entries_of([given])
    told = MessageMetadata.FromString(decode_envelope(rows.columns["entry_metadata"][0]).metadata)
    joined = payload_codecs.decompress(told.compression, b"".join(pieces), told.uncompressed_size)
    assert joined == b"abc" * 1000


def test_a_key_that_is_bytes_is_there_as_text_and_as_bytes() -> None:
    encoded = base64.b64encode(b"\x00\xff").decode()
    found, _ = only(single(partition_key=encoded, partition_key_b64_encoded=True))
    assert (found["key"], found["key_bytes"]) == (encoded, b"\x00\xff")
    found, _ = only(single(partition_key="no base64!", partition_key_b64_encoded=True))
    assert (found["key"], found["key_bytes"]) == ("no base64!", None)


def test_an_empty_key_is_not_a_missing_one() -> None:
    assert only(single(partition_key=""))[0]["key"] == ""
    assert only(single(partition_key="x", null_partition_key=True))[0]["key"] is None


def test_an_empty_payload_is_not_a_missing_value() -> None:
    found, _ = only(single(b""))
    assert (found["payload"], found["null_value"]) == (b"", False)
    found, _ = only(single(b"", null_value=True))
    assert (found["payload"], found["null_value"]) == (b"", True)


def test_last_value_of_a_repeated_property_counts() -> None:
    pairs = [KeyValue(key="a", value="1"), KeyValue(key="b", value="2"), KeyValue(key="a", value="3")]
    found, _ = only(single(properties=pairs))
    assert found["properties"] == (("a", "3"), ("b", "2"))


def test_text_that_is_not_utf8_is_shown_as_far_as_it_is_and_kept_as_it_was() -> None:
    told = metadata().SerializeToString() + b"\x32\x02\xffk" + b"\x22\x07\x0a\x01\xfe\x12\x02\xfdv"
    found, _ = only(encode_entry(told, b"x"))
    assert found["key"] == "\ufffdk"
    assert found["properties"] == (("\ufffd", "\ufffdv"),)


@pytest.mark.parametrize("time_ms", [253_402_300_800_000, 2**63, 2**64 - 1])
def test_a_time_that_no_calendar_has_is_null(time_ms: int) -> None:
    found, _ = only(single(publish_time=time_ms, event_time=time_ms))
    assert (found["publish_time"], found["event_time"]) == (None, None)


@pytest.mark.parametrize("time_ms", [-1, -(2**63), 2**63 - 1, 0])
def test_a_delivery_time_that_no_calendar_has_is_null(time_ms: int) -> None:
    assert only(single(deliver_at_time=time_ms))[0]["deliver_at"] is None


def test_the_last_day_of_the_calendar_is_a_time() -> None:
    assert only(single(event_time=253_402_300_799_999))[0]["event_time"] == 253_402_300_799_999_000


@pytest.mark.parametrize(("number", "stored"), [(2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 - 1, -1)])
def test_sequence_ids_keep_their_bits(number: int, stored: int) -> None:
    assert only(single(sequence_id=number))[0]["sequence_id"] == stored


def test_runs_come_back_with_the_envelope_of_each() -> None:
    given = [
        run([single(b"a"), single(b"b")], first_index=0),
        run([batch(THREE)], [3], first_index=2, first_entry_id=2),
        run([single(b"c")], first_index=5, first_entry_id=3, publish_time_ms=TAKEN_MS + 1),
        # As many messages as its Send said, whatever is inside.
        run([batch(THREE)], [7], first_index=6, first_entry_id=4, publish_time_ms=TAKEN_MS + 1),
        run([single(b"d")], first_index=99, first_entry_id=5, publish_time_ms=TAKEN_MS + 1),
        run([single(b"e")], first_index=100, first_entry_id=6, publish_time_ms=TAKEN_MS + 1, flags=RUN_CHUNK),
    ]
    rows = rows_of(given, partition=-1)
    assert (rows.first_entry_id, rows.last_entry_id) == (0, 6)
    assert rows.max_publish_time_ms == TAKEN_MS + 1
    back = runs_of(rows.columns)
    assert entries_of(back) == entries_of(given)
    assert [(each.first_entry_id, len(each.entries), each.message_counts) for each in back] == [
        (0, 3, [1, 1, 3]),
        (3, 2, [1, 7]),
        (5, 1, None),
        (6, 1, None),
    ]
    assert all(each.byte_length == sum(map(len, each.entries)) for each in back)


def in_transaction(number: int, first_entry_id: int, *entries: bytes, **fields: Any) -> Run:
    txn = TxnId(2**64 - 1, number)
    return run(
        list(entries),
        flags=RUN_TXN,
        txn=txn,
        first_entry_id=first_entry_id,
        first_index=100 + first_entry_id,
        **fields,
    )


def message_in(number: int, payload: bytes) -> bytes:
    return single(payload, partition_key="k", txnid_most_bits=2**64 - 1, txnid_least_bits=number)


def test_an_entry_of_an_aborted_transaction_is_a_row_that_says_nothing_of_its_messages() -> None:
    given = [
        run([single(b"plain", partition_key="k")], first_entry_id=0),
        in_transaction(5, 1, message_in(5, b"kept")),
        in_transaction(6, 2, message_in(6, b"gone")),
    ]
    rows = rows_of(given, partition=-1, aborted=BitMap([0, 2]))
    assert rows.columns["raw_reason"] == [None, None, "aborted"], "only in a transaction"
    assert rows.columns["payload"] == [b"plain", b"kept", None]
    assert rows.columns["key"] == ["k", "k", None]
    assert rows.columns["txn_most"] == [None, -1, -1]
    assert rows.columns["txn_least"] == [None, 5, 6]
    assert rows.columns["message_index"] == [100, 101, 102]
    told = {name for name, values in rows.columns.items() if values[2] is not None}
    assert told == {
        "ledger_id",
        "entry_id",
        "batch_index",
        "partition",
        "broker_publish_time",
        "message_index",
        "txn_most",
        "txn_least",
        "null_value",
        "raw_entry",
        "raw_reason",
        "entry_metadata",
    }
    assert rows.raw_reasons == {"aborted": 1}
    assert entries_of(runs_of(rows.columns)) == entries_of(given), "brokers serve the same entries"


def test_runs_of_different_transactions_come_back_apart_whatever_became_of_them() -> None:
    given = [
        in_transaction(5, 0, message_in(5, b"a"), message_in(5, b"b")),
        in_transaction(6, 2, message_in(6, b"c"), b"damaged"),
        in_transaction(7, 4, message_in(7, b"d")),
    ]
    back = runs_of(rows_of(given, partition=-1, aborted=BitMap([0, 1, 4])).columns)
    assert [(each.txn, each.flags, each.entries) for each in back] == [
        (each.txn, each.flags, each.entries) for each in given
    ]


def test_without_the_aborted_entries_no_entry_in_a_transaction_becomes_a_row() -> None:
    given = [run([single(b"plain")]), in_transaction(5, 1, message_in(5, b"kept"))]
    with pytest.raises(NotSupportedYet, match="7:1 is in a transaction"):
        rows_of(given, partition=-1)
    assert rows_of(given[:1], partition=-1).rows == 1


def test_no_run_that_comes_back_is_large() -> None:
    entries = [single(bytes(1_000_000)) for _ in range(9)]
    back = runs_of(rows_of([run(entries)], partition=-1).columns)
    assert [len(each.entries) for each in back] == [4, 4, 1]


def test_pieces_are_bounded_whatever_is_inside_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "PIECE_ROWS", 500)
    monkeypatch.setattr(rows_module, "PIECE_BYTES", 1 << 20)
    large = [single(bytes((1 << 20) - 1000), ZSTD) for _ in range(3)]
    many = [batch([(b"", {})] * 249, ZSTD) for _ in range(5)]
    assert sum(map(len, [*large, *many])) < 3000
    given = [run(large), run(many, [249] * 5, first_entry_id=3, first_index=103)]
    pieces = list(rows_in_pieces(given, partition=-1))
    ranges = [(piece.first_entry_id, piece.last_entry_id) for piece in pieces]
    assert ranges == [(0, 1), (2, 3), (4, 6), (7, 7)]
    whole = rows_of(given, partition=-1)
    for name, values in whole.columns.items():
        assert [value for piece in pieces for value in piece.columns[name]] == values
    assert sum(piece.entries for piece in pieces) == whole.entries
    assert {piece.max_publish_time_ms for piece in pieces} == {whole.max_publish_time_ms}
    assert list(rows_in_pieces([], partition=-1)) == []


def test_batch_with_an_implausible_message_count_is_kept_raw() -> None:
    most = rows_of([run([batch([(b"", {})] * ENTRY_ROWS_MAX, ZSTD)])], partition=-1)
    assert (most.rows, most.raw_entries) == (ENTRY_ROWS_MAX, 0)
    entry = batch([(b"", {})] * (ENTRY_ROWS_MAX + 1), ZSTD)
    assert len(entry) < 1000
    raw(entry, "large: a batch of more than 100000 messages")


def test_no_entries_are_no_rows() -> None:
    rows = rows_of([], partition=-1)
    assert (rows.rows, rows.entries, rows.first_entry_id) == (0, 0, -1)
    assert tuple(rows.columns) == COLUMN_NAMES
    assert runs_of(rows.columns) == []


def test_rows_that_are_not_whole_entries_are_refused() -> None:
    columns = rows_of([run([batch(THREE), batch(THREE)], [3, 3])], partition=-1).columns
    for start, stop in ((1, 6), (1, 3), (4, 6)):
        with pytest.raises(DataCorruption, match="rows"):
            runs_of({name: values[start:stop] for name, values in columns.items()})
    without = {name: [*values[:3], *values[4:]] for name, values in columns.items()}
    with pytest.raises(DataCorruption, match="without its first"):
        runs_of(without)


@pytest.mark.parametrize("name", ["payload", "message_metadata"])
def test_a_row_without_what_it_has_to_have_is_refused(name: str) -> None:
    columns = rows_of([run([batch(THREE)], [3])], partition=-1).columns
    columns[name][1] = None
    with pytest.raises(DataCorruption, match="neither payload nor raw bytes"):
        runs_of(columns)


def test_an_envelope_of_a_later_release_is_refused() -> None:
    columns = rows_of([run([single()])], partition=-1).columns
    columns["entry_metadata"][0] = b"\x02" + columns["entry_metadata"][0][1:]
    with pytest.raises(UnsupportedFormat, match="format 2"):
        runs_of(columns)
    columns["entry_metadata"][0] = b"\x01"
    with pytest.raises(DataCorruption, match="envelope of 1 bytes"):
        runs_of(columns)
