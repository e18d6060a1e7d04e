"""The rows of a range: exactly its entries, wherever they have gone since the plan was made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from magnetar.common.errors import (
    ConfigError,
    EntryUnreadable,
    MagnetarError,
    NoSuchEntry,
    NoSuchLedger,
    NotSupportedYet,
    ServiceNotReady,
    UnsupportedFormat,
)
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.offload.client_calls import Described
from magnetar.common.offload.offload_pb2 import COMPLETE, Ledger
from magnetar.common.wire.frame import encode_entry
from magnetar.common.wire.pulsar_pb2 import MessageMetadata, SingleMessageMetadata
from magnetar.ledger.cold.layout import MANIFEST_NAME, Manifest, attempt_path, part_name
from magnetar.ledger.cold.objects import (
    NoSuchObject,
    ObjectStoreError,
    ObjectStoreUnavailable,
    open_store,
)
from magnetar.ledger.cold.part_writer import PartInfo, PartWriter
from magnetar.ledger.cold.rows import rows_of
from magnetar.ledger.ledger_store import RUN_TXN, Run
from magnetar.spark.ledgers.ledger_source import LedgerSource, ServiceAddress, hot_source
from magnetar.spark.message_ids import BEGINNING, END, MessageAt
from magnetar.spark.rows.columns import chosen, frame_schema, stored_columns
from magnetar.spark.source import cold_parts, earlier_entries, range_reader
from magnetar.spark.source.cold_parts import read_manifest, read_part
from magnetar.spark.source.earlier_entries import read_back
from magnetar.spark.source.frame_batches import FrameBatches
from magnetar.spark.source.index_search import ColdProbe, Probed, entry_of_index
from magnetar.spark.source.pushed_filters import PushedFilters
from magnetar.spark.source.range_reader import MessagesLost, ReadContext, read_range, run_tables
from magnetar.spark.source.reading_plan import (
    ColdLedger,
    EarlierEntries,
    EntryRange,
    TimeBounds,
    TopicRange,
    cold_ranges,
)
from pyroaring import BitMap
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    StringStartsWith,
)

TOPIC = "persistent://public/default/topic"
SERVICE = ServiceAddress("127.0.0.1:1")
SOURCE = LedgerSource(SERVICE, TOPIC, 5, 6)
ENTRIES = 200
BATCH = 3
COLUMNS = tuple(stored_columns(chosen((), value=False), joins=True, times=True))
CONTEXT = ReadContext(service=SERVICE, columns=COLUMNS)


def run_at(entry_id: int) -> Run:
    """An entry: a batch of three messages."""
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=entry_id * BATCH,
        publish_time=1_000 + entry_id,
        num_messages_in_batch=BATCH,
    )
    body = b""
    for number in range(BATCH):
        payload = b"%d.%d" % (entry_id, number)
        single = SingleMessageMetadata(
            payload_size=len(payload), partition_key=f"key-{entry_id:04}"
        ).SerializeToString()
        body += len(single).to_bytes(4, "big") + single + payload
    entry = encode_entry(metadata.SerializeToString(), body)
    return Run([entry], 1_000 + entry_id, entry_id * BATCH, [BATCH], ledger_id=5, first_entry_id=entry_id)


class World:
    """A ledger on bookies, in objects, or both; reads of bookies fail as a test says."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.fail: Callable[[int], Exception | None] = lambda entry_id: None
        self.described: Ledger | None = Ledger(
            ledger_id=5,
            ledger_key=6,
            last_entry_id=ENTRIES - 1,
            entries=ENTRIES,
            byte_length=1_000,
            closed_ms=1,
        )
        self.asked = 0
        self.opened: list[str] = []

    @contextmanager
    def open_entries(self, source: LedgerSource) -> Iterator[World]:
        assert source.ledger_id == 5
        self.opened.append(source.service.address)
        yield self

    def read(self, first: int, last: int) -> Iterator[list[Run]]:
        for entry_id in range(first, last + 1):
            error = self.fail(entry_id)
            if error is not None:
                raise error
            yield [run_at(entry_id)]

    def describe(self, service: ServiceAddress, topic: str) -> Described:
        self.asked += 1
        ledgers = [] if self.described is None else [self.described]
        return Described(topic, 1, ledgers, "127.0.0.1:2", "", b"")

    def offload(self, parts: int = 2, attempt: bytes = b"a" * 16) -> ColdLedger:
        """Write the ledger's objects, and say so where it is described."""
        path = attempt_path(TopicName.parse(TOPIC), 5, attempt)
        store = open_store(self.location)
        written = []
        for number in range(parts):
            low, high = ENTRIES * number // parts, ENTRIES * (number + 1) // parts
            data = bytearray()
            sink = _Sink(data)
            writer = PartWriter(
                sink, PartInfo(name=part_name(number), topic=TOPIC, ledger_id=5), row_group_bytes=4_000
            )
            writer.write(rows_of([run_at(entry_id) for entry_id in range(low, high)], partition=-1))
            written.append(writer.close())
            store.put_bytes(f"{path}/{part_name(number)}", bytes(data))
        manifest = Manifest(
            topic=TOPIC,
            creation_id=1,
            ledger_id=5,
            ledger_key=6,
            attempt=attempt,
            first_entry_id=0,
            last_entry_id=ENTRIES - 1,
            entries=ENTRIES,
            rows=ENTRIES * BATCH,
            raw_entries=0,
            first_index=0,
            max_publish_time_ms=2_000,
            exact=False,
            parts=tuple(written),
            created_ms=1,
            release="0",
        ).to_json()
        store.put_bytes(f"{path}/{MANIFEST_NAME}", manifest)
        cold = ColdLedger(self.location, path, hashlib.sha256(manifest).digest())
        assert self.described is not None
        state = self.described.offload
        state.state, state.location, state.path = COMPLETE, cold.location, cold.path
        state.manifest_sha256 = cold.manifest_sha256
        return cold


class _Sink:
    def __init__(self, data: bytearray) -> None:
        self._data = data

    def write(self, data: bytes, /) -> None:
        self._data += data


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World((tmp_path / "cold").as_uri())
    for module in (range_reader, earlier_entries):
        monkeypatch.setattr(module, "open_entries", made.open_entries)
        monkeypatch.setattr(module, "describe_topic", made.describe)
        monkeypatch.setattr(module, "UNIT_BYTES", 1_000)
    monkeypatch.setattr(range_reader, "PAUSE_S", 0.0)
    return made


def hot(first: int, last: int) -> EntryRange:
    return EntryRange(5, first, last, source=SOURCE)


def entry_ids(context: ReadContext, each: EntryRange) -> list[int]:
    """Of the rows that are read: each entry has to have all its messages."""
    rows = [
        (entry_id, batch_index)
        for table in read_range(context, TOPIC, -1, each)
        for entry_id, batch_index in zip(
            table["entry_id"].to_pylist(), table["batch_index"].to_pylist(), strict=True
        )
    ]
    found = [entry_id for entry_id, batch_index in rows if batch_index == 0]
    assert rows == [(entry_id, number) for entry_id in found for number in range(BATCH)]
    return found


@pytest.mark.parametrize(("first", "last"), [(0, ENTRIES - 1), (0, 0), (7, 7), (95, 105), (150, ENTRIES - 1)])
def test_a_range_is_exactly_its_entries_from_either_place(world: World, first: int, last: int) -> None:
    expected = list(range(first, last + 1))
    assert entry_ids(CONTEXT, hot(first, last)) == expected
    cold = world.offload()
    ranges = list(cold_ranges(cold, read_manifest(cold), first, last, 1_000))
    assert [entry for each in ranges for entry in entry_ids(CONTEXT, each)] == expected
    assert world.asked == 0


def test_a_ledger_that_leaves_the_bookies_meanwhile_is_gone_on_with_in_its_objects(world: World) -> None:
    world.offload()
    world.fail = lambda entry_id: NoSuchLedger("left") if entry_id > 60 else None
    assert entry_ids(CONTEXT, hot(20, 180)) == list(range(20, 181))
    assert world.asked == 1


def test_objects_that_are_gone_are_no_loss_while_bookies_have_the_ledger(world: World) -> None:
    cold = world.offload()
    (each,) = cold_ranges(cold, read_manifest(cold), 120, 180, 1 << 40)
    open_store(world.location).delete(f"{cold.path}/{part_name(1)}")
    assert entry_ids(CONTEXT, each) == list(range(120, 181))


def test_an_object_with_a_damaged_footer_is_not_given_to_arrow(world: World) -> None:
    cold = world.offload()
    (each,) = cold_ranges(cold, read_manifest(cold), 120, 180, 1 << 40)
    path = f"{cold.path}/{part_name(1)}"
    store = open_store(world.location)
    data = bytearray(store.read(path))
    data[-40] ^= 0xFF
    store.put_bytes(path, bytes(data))
    assert entry_ids(CONTEXT, each) == list(range(120, 181))
    world.fail = lambda entry_id: NoSuchLedger("left")
    with pytest.raises(MessagesLost, match="footer"):
        entry_ids(CONTEXT, each)


def test_objects_that_were_written_anew_are_found(world: World) -> None:
    old = world.offload()
    (each,) = cold_ranges(old, read_manifest(old), 120, 180, 1 << 40)
    store = open_store(world.location)
    store.delete(f"{old.path}/{part_name(1)}")
    world.offload(parts=3, attempt=b"b" * 16)
    world.fail = lambda entry_id: NoSuchLedger("left")
    assert entry_ids(CONTEXT, each) == list(range(120, 181))


def test_an_open_ledger_whose_topic_moves_is_gone_on_with_at_its_new_owner(world: World) -> None:
    assert world.described is not None
    world.described.closed_ms = 0
    failed: list[int] = []

    def fail(entry_id: int) -> Exception | None:
        if entry_id == 60 and not failed:
            failed.append(entry_id)
            return ServiceNotReady("the topic moves")
        return None

    world.fail = fail
    assert entry_ids(CONTEXT, hot(20, 180)) == list(range(20, 181))
    assert world.opened == [SERVICE.address, "127.0.0.1:2"]


def test_missing_response_is_a_retryable_error(world: World) -> None:
    world.fail = lambda entry_id: ServiceNotReady("away")
    with pytest.raises(ServiceNotReady):
        entry_ids(CONTEXT, hot(20, 180))
    assert len(world.opened) == range_reader.PLACES_MAX


def test_lost_entries_are_an_error_or_skipped_by_option(world: World) -> None:
    world.described = None
    world.fail = lambda entry_id: NoSuchLedger("trimmed") if entry_id > 60 else None
    with pytest.raises(MessagesLost, match="failOnDataLoss"):
        entry_ids(CONTEXT, hot(20, 180))
    bearing = ReadContext(service=SERVICE, columns=COLUMNS, fail_on_data_loss=False)
    assert entry_ids(bearing, hot(20, 180)) == list(range(20, 61))


@pytest.mark.parametrize(
    "error",
    [
        ObjectStoreUnavailable("no answer"),
        ObjectStoreError("no permission"),
        ConfigError("a package is missing"),
        UnsupportedFormat("of a newer release"),
    ],
)
@pytest.mark.parametrize("what", ["store_at", "read_manifest"])
def test_a_store_that_cannot_be_asked_has_lost_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, error: MagnetarError, what: str
) -> None:
    cold = world.offload()
    assert world.described is not None
    world.described.offload.left_bookies_ms = 1
    world.fail = lambda entry_id: NoSuchLedger("left")
    (each,) = cold_ranges(cold, read_manifest(cold), 120, 180, 1 << 40)

    def refuse(_: object) -> None:
        raise error

    bearing = ReadContext(service=SERVICE, columns=COLUMNS, fail_on_data_loss=False)
    if what == "store_at":
        monkeypatch.setattr(cold_parts, what, refuse)
    else:
        monkeypatch.setattr(range_reader, what, refuse)
        each = hot(120, 180)
    with pytest.raises(type(error), match=str(error)):
        entry_ids(bearing, each)


def test_a_ledger_that_is_trimmed_is_lost_whatever_its_store_says(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold = world.offload()
    (each,) = cold_ranges(cold, read_manifest(cold), 120, 180, 1 << 40)
    world.described = None

    def refuse(_: object) -> None:
        raise ObjectStoreError("no permission")

    monkeypatch.setattr(cold_parts, "store_at", refuse)
    bearing = ReadContext(service=SERVICE, columns=COLUMNS, fail_on_data_loss=False)
    assert entry_ids(bearing, each) == []


def test_unreadable_entry_alone_is_skipped(world: World) -> None:
    world.fail = lambda entry_id: EntryUnreadable("damaged") if entry_id in (20, 61, 62, 180) else None
    with pytest.raises(MessagesLost, match="entry 5:20"):
        entry_ids(CONTEXT, hot(20, 180))
    bearing = ReadContext(service=SERVICE, columns=COLUMNS, fail_on_data_loss=False)
    expected = [entry for entry in range(20, 181) if entry not in (20, 61, 62, 180)]
    assert entry_ids(bearing, hot(20, 180)) == expected


def test_going_back_comes_to_every_entry_newest_first(world: World) -> None:
    cold = world.offload()
    before = [
        EarlierEntries(5, 150, 190, source=SOURCE),
        EarlierEntries(5, 40, 149, cold=cold),
    ]
    assert backwards(before) == list(range(190, 39, -1))
    assert len(list(read_back(CONTEXT, TOPIC, -1, before))) > 4


def backwards(before: list[EarlierEntries]) -> list[int]:
    """Entries, as going back comes to them."""
    tables = read_back(CONTEXT, TOPIC, -1, before)
    return [entry for table in tables for entry in reversed(table["entry_id"].to_pylist()[::BATCH])]


def test_going_back_follows_a_ledger_that_left_the_bookies_or_whose_objects_are_gone(world: World) -> None:
    cold = world.offload()
    open_store(world.location).delete(f"{cold.path}/{part_name(0)}")
    assert backwards([EarlierEntries(5, 40, 149, cold=cold)]) == list(range(149, 39, -1))
    new = world.offload(attempt=b"b" * 16)
    world.fail = lambda entry_id: NoSuchLedger("left") if entry_id < 120 else None
    assert world.described is not None
    world.described.offload.left_bookies_ms = 1
    assert backwards([EarlierEntries(5, 40, 149, source=SOURCE)]) == list(range(149, 39, -1))
    world.asked = 0
    assert backwards([EarlierEntries(5, 40, 149, cold=cold)]) == list(range(149, 39, -1))
    assert world.asked == 1
    (low, *_) = cold_ranges(new, read_manifest(new), 0, 99, 1 << 40)
    assert backwards([EarlierEntries(5, 40, 60, part=low.part)]) == list(range(60, 39, -1))


def test_going_back_ends_at_what_was_trimmed(world: World) -> None:
    world.described = None
    world.fail = lambda entry_id: NoSuchLedger("trimmed") if entry_id < 120 else None
    # Windows of 8 and more entries: those that are read as a whole come.
    found = backwards([EarlierEntries(5, 40, 149, source=SOURCE), EarlierEntries(5, 0, 39, source=SOURCE)])
    assert found == list(range(149, 125, -1))


def test_row_groups_are_left_out_by_time_and_filters(world: World) -> None:
    cold = world.offload(parts=1)
    (each,) = cold_ranges(cold, read_manifest(cold), 0, ENTRIES - 1, 1 << 40)
    assert each.part is not None

    def groups(
        times: TimeBounds = TimeBounds(),  # noqa: B008
        *filters: Filter,
        joins: bool = False,
    ) -> list[tuple[int, int]]:
        test = PushedFilters(filters).row_groups(joins=joins)
        found = read_part(each.part, 0, ENTRIES - 1, ("entry_id",), times=times, may_match=test)  # type: ignore[arg-type]
        return [(low, high) for _, low, high in found]

    everything = groups()
    assert len(everything) > 3
    middle = everything[1]
    of_middle = TimeBounds(start_ms=1_000 + middle[0], end_ms=1_000 + middle[1] + 1)
    assert groups(of_middle) == [middle]
    none = TimeBounds()
    assert groups(none, EqualTo(("key",), f"key-{middle[0]:04}")) == [middle]
    assert groups(none, StringStartsWith(("key",), f"key-{middle[0]:04}")) == [middle]
    assert groups(none, In(("key",), ("absent", f"key-{middle[1]:04}"))) == [middle]
    assert groups(none, GreaterThan(("entry_id",), middle[1])) == everything[2:]
    assert groups(none, LessThan(("message_index",), middle[0] * BATCH)) == everything[:1]
    assert groups(none, IsNotNull(("chunk_uuid",))) == []
    assert groups(none, IsNull(("key",))) == []
    assert groups(none, IsNotNull(("raw_reason",))) == []
    # A last chunk whose message is not whole has a reason that is not stored.
    assert groups(none, IsNotNull(("raw_reason",)), joins=True) == everything
    assert (
        groups(none, IsNull(("chunk_uuid",)), EqualTo(("payload",), b"x"), EqualTo(("unknown",), 1))
        == everything
    )


def test_probes_of_objects_find_entries_by_their_messages(world: World) -> None:
    cold = world.offload()
    probe = ColdProbe(cold, read_manifest(cold))
    assert probe.entry(120) == Probed(360, BATCH)
    assert entry_of_index(probe, (0, 0), (ENTRIES, ENTRIES * BATCH), 361) == (120, 360)
    with pytest.raises(NoSuchEntry):
        probe.entry(ENTRIES)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (BEGINNING, END, [(entry, number) for entry in range(3) for number in range(BATCH)]),
        (MessageAt(5, 1, 1), END, [(1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]),
        (MessageAt(5, 1), MessageAt(5, 2, 1), [(1, 0), (1, 1), (1, 2), (2, 0)]),
        (MessageAt(5, 1, 2), MessageAt(5, 1, 3), [(1, 2)]),
        (MessageAt(4, 9), MessageAt(5, 0), []),
    ],
)
def test_rows_of_a_frame_lie_between_its_bounds(
    start: MessageAt, end: MessageAt, expected: list[tuple[int, int]]
) -> None:
    schema = frame_schema(chosen(("topic", "entry_id", "batch_index", "payload"), value=False), None)
    work = TopicRange(TOPIC, -1, start, end, (hot(0, 2),))
    maker = FrameBatches(schema, work, CONTEXT, decoder=None, join_bytes_max=1_000)
    ((table, last),) = run_tables([run_at(entry) for entry in range(3)], -1, COLUMNS)
    assert last == 2
    rows: list[dict[str, Any]] = [row for batch in maker.batches(table) for row in batch.to_pylist()]
    assert [(row["entry_id"], row["batch_index"]) for row in rows] == expected
    assert [row["payload"] for row in rows] == [b"%d.%d" % place for place in expected]
    assert {row["topic"] for row in rows} <= {TOPIC}


def in_transaction(entry_id: int) -> Run:
    run = run_at(entry_id)
    run.flags, run.txn = RUN_TXN, TxnId(0, entry_id)
    return run


@pytest.mark.parametrize("columns", [("entry_id", "payload"), ("entry_id", "payload", "raw_reason")])
def test_entries_of_aborted_transactions_are_no_rows_of_a_frame(columns: tuple[str, ...]) -> None:
    schema = frame_schema(chosen(columns, value=False), None)
    work = TopicRange(TOPIC, -1, BEGINNING, END, (hot(0, 2),))
    maker = FrameBatches(schema, work, CONTEXT, decoder=None, join_bytes_max=1_000)
    runs = [in_transaction(entry) for entry in range(3)]
    ((table, last),) = run_tables(runs, -1, COLUMNS, BitMap([1]))
    assert last == 2
    rows: list[dict[str, Any]] = [row for batch in maker.batches(table) for row in batch.to_pylist()]
    assert [row["entry_id"] for row in rows] == [0] * BATCH + [2] * BATCH


def test_entries_on_bookies_are_read_without_the_aborted_ones_that_the_owner_named(world: World) -> None:
    def read(first: int, last: int) -> Iterator[list[Run]]:
        return ([in_transaction(each)] for each in range(first, last + 1))

    world.read = read  # type: ignore[method-assign]
    described = Ledger(ledger_id=5, ledger_key=6, closed_ms=1, last_entry_id=2)
    place = EntryRange(5, 0, 2, source=hot_source(SERVICE, TOPIC, described))
    with pytest.raises(NotSupportedYet, match="did not say how that ended"):
        list(read_range(CONTEXT, TOPIC, -1, place))
    described.transactions_told, described.aborted = True, BitMap([0, 2]).serialize()
    place = EntryRange(5, 0, 2, source=hot_source(SERVICE, TOPIC, described))
    (table,) = read_range(CONTEXT, TOPIC, -1, place)
    assert table["raw_reason"].to_pylist() == ["aborted", None, None, None, "aborted"]


def test_a_missing_object_is_told_as_such(world: World) -> None:
    cold = world.offload()
    gone = ColdLedger(cold.location, cold.path + "0", cold.manifest_sha256)
    with pytest.raises(NoSuchObject):
        read_manifest(gone)
