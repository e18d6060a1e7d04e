"""Any entries, through Parquet and back, are the same for a client: whatever clients send."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.common.wire.frame import encode_entry
from magnetar.common.wire.pulsar_pb2 import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    EncryptionKeys,
    KeyValue,
    MessageMetadata,
)
from magnetar.ledger.cold.layout import COLUMNS
from magnetar.ledger.cold.rows import rows_of, runs_of
from magnetar.ledger.ledger_store import RUN_CHUNK, RUN_MARKER, Run

from tests.unit.ledger.cold.entries import LEDGER_ID, batch, entries_of, seen, single, written

TEXT = st.text(max_size=6)
BYTES = st.binary(max_size=12)
PAYLOADS = st.one_of(st.binary(max_size=40), st.builds(lambda data, n: data * n, BYTES, st.integers(0, 50)))
UINT64 = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.one_of(st.integers(-2, 3), st.integers(-(2**31), 2**31 - 1))
PROPERTIES = st.lists(st.builds(KeyValue, key=st.sampled_from(["a", "b", ""]), value=TEXT), max_size=3)
KINDS = st.sampled_from([NONE, NONE, LZ4, ZLIB, ZSTD, SNAPPY])

OF_ONE = st.fixed_dictionaries(
    {},
    optional={
        "properties": PROPERTIES,
        "partition_key": TEXT,
        "partition_key_b64_encoded": st.booleans(),
        "ordering_key": BYTES,
        "event_time": UINT64,
        "null_value": st.booleans(),
        "null_partition_key": st.booleans(),
    },
)
OF_ENTRY = st.fixed_dictionaries(
    {"producer_name": TEXT, "sequence_id": UINT64, "publish_time": UINT64},
    optional={
        "replicated_from": TEXT,
        "replicate_to": st.lists(TEXT, max_size=2),
        "schema_version": BYTES,
        "deliver_at_time": INT64,
        "txnid_least_bits": UINT64,
        "txnid_most_bits": UINT64,
        "highest_sequence_id": UINT64,
    },
)
RARE = st.fixed_dictionaries(
    {},
    optional={
        "marker_type": INT32,
        "encryption_keys": st.lists(st.builds(EncryptionKeys, key=TEXT, value=BYTES), max_size=2),
        "uuid": TEXT,
        "num_chunks_from_msg": INT32,
        "chunk_id": INT32,
        "total_chunk_msg_size": INT32,
        "uncompressed_size": st.integers(0, 2**32 - 1),
        "num_messages_in_batch": INT32,
    },
)


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    """Of one message, of a batch, of what no client should send, or of no sense."""
    kind = draw(st.sampled_from(["one", "one", "batch", "batch", "odd", "changed", "junk"]))
    if kind == "junk":
        return draw(st.binary(max_size=60))
    of_entry: dict[str, Any] = draw(OF_ENTRY)
    compression = draw(KINDS)
    if kind == "batch":
        sequence = st.fixed_dictionaries({}, optional={"sequence_id": UINT64})
        of_message = st.tuples(PAYLOADS, st.builds(lambda one, two: one | two, OF_ONE, sequence))
        return batch(draw(st.lists(of_message, min_size=1, max_size=5)), compression, **of_entry)
    one: dict[str, Any] = draw(OF_ONE)
    if kind == "odd":
        rare: dict[str, Any] = draw(RARE)
        told = MessageMetadata(**of_entry, **one, **rare)
        if compression != NONE:
            told.compression = compression
        return encode_entry(told.SerializeToString(), draw(PAYLOADS))
    entry = single(draw(PAYLOADS), compression, **of_entry, **one)
    if kind == "changed":
        # Its checksum is right, since its client is to blame.
        body = bytearray(entry[6:])
        for _ in range(draw(st.integers(1, 3))):
            body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
        size = int.from_bytes(body[:4], "big")
        return encode_entry(bytes(body[4 : 4 + size]), bytes(body[4 + size :]))
    return entry


@st.composite
def runs(draw: st.DrawFn) -> list[Run]:
    """Consecutive runs of one ledger."""
    first_entry_id, index = draw(st.integers(0, 2**40)), draw(st.integers(0, 2**40))
    found = []
    for of_run in draw(st.lists(st.lists(entries(), min_size=1, max_size=5), min_size=1, max_size=4)):
        counts = draw(st.one_of(st.none(), st.lists(st.integers(1, 9), min_size=5, max_size=5)))
        if counts is not None:
            counts = counts[: len(of_run)]
        index += draw(st.sampled_from([0, 0, 7]))
        run = Run(
            of_run,
            publish_time_ms=draw(st.integers(0, 2**45)),
            first_index=index,
            message_counts=counts,
            flags=draw(st.sampled_from([0, 0, 0, RUN_CHUNK, RUN_MARKER])),
            ledger_id=LEDGER_ID,
            first_entry_id=first_entry_id,
        )
        found.append(run)
        first_entry_id += len(of_run)
        index += run.messages
    return found


def rows_are_well_formed(columns: dict[str, list[Any]]) -> None:
    for column in COLUMNS:
        assert column.nullable or None not in columns[column.name], column.name
    ids = list(zip(columns["entry_id"], columns["batch_index"], strict=True))
    assert ids == sorted(set(ids))
    for payload, raw, reason in zip(
        columns["payload"], columns["raw_entry"], columns["raw_reason"], strict=True
    ):
        assert (payload is None) == (reason is not None)
        assert reason is None or raw is not None


@given(runs(), st.booleans(), st.sampled_from([1, 300, 1 << 20]))
@settings(max_examples=40)
def test_entries_are_the_same_for_a_client_after_parquet(
    given_runs: list[Run], exact: bool, row_group_bytes: int
) -> None:
    half = len(given_runs) // 2
    rows = [rows_of(part, partition=3, exact=exact) for part in (given_runs[:half], given_runs[half:])]
    _, reader = written(*rows, row_group_bytes=row_group_bytes)
    expected = entries_of(given_runs)
    found = []
    for group in reader.footer.row_groups:
        back = reader.read_runs([group.number])
        assert (back[0].first_entry_id, back[-1].last_entry_id) == (group.first_entry_id, group.last_entry_id)
        found += entries_of(back)
    assert [each[:-1] for each in found] == [each[:-1] for each in expected]
    for (*_, after), (*_, before) in zip(found, expected, strict=True):
        assert seen(after) == seen(before)
        if exact:
            assert after == before


@given(runs())
@settings(max_examples=30)
def test_rows_are_well_formed_and_arrow_changes_nothing(given_runs: list[Run]) -> None:
    rows = rows_of(given_runs, partition=-1)
    rows_are_well_formed(rows.columns)
    assert rows.entries == len(entries_of(given_runs))
    assert rows.raw_entries == sum(reason is not None for reason in rows.columns["raw_reason"])
    _, reader = written(rows)
    assert reader.read_rows(range(len(reader.footer.row_groups))) == rows.columns


@given(runs())
@settings(max_examples=30)
def test_read_rows_encode_to_the_same_rows(given_runs: list[Run]) -> None:
    """A ledger may be offloaded again from its objects."""
    columns = rows_of(given_runs, partition=-1).columns
    again = rows_of(runs_of(columns), partition=-1).columns
    for name in columns:
        if name not in ("entry_metadata", "raw_entry"):  # these say what the client had compressed with
            assert again[name] == columns[name], name
