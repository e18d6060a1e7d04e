"""A task of `verify`: compares one Parquet object with its manifest and with the original entries.

Entries come from bookies or brokers and are made rows again, by the same rules as in the offload. So every
column of every message is compared, and of an entry that was kept raw all of its bytes.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from magnetar.common.errors import MagnetarError, NoSuchLedger, TopicNotFound
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_errors import may_pass
from magnetar.common.offload.offload_refusals import OnlyCopy
from magnetar.ledger.cold.arrow_values import values_of
from magnetar.ledger.cold.entry_rows import ABORTED
from magnetar.ledger.cold.layout import Part
from magnetar.ledger.cold.objects import NoSuchObject, ObjectStore, open_store
from magnetar.ledger.cold.part_reader import PartReader
from magnetar.ledger.cold.rows import Rows, rows_in_pieces
from magnetar.ledger.ledger_store import Run
from magnetar.spark.ledgers.entries import Entries, open_entries
from magnetar.spark.ledgers.ledger_lookup import find_ledger
from magnetar.spark.ledgers.ledger_source import LedgerSource, ServiceAddress
from magnetar.spark.scratch import scratch_directory

PIECE_BYTES: Final = 4 << 20
TOLD_MAX: Final = 20
"""Maximum differences of one object that are listed; all are counted."""

_VALUE_CHARS: Final = 80
_GONE: Final = (NoSuchLedger, NoSuchObject, OnlyCopy)


@dataclass(frozen=True, slots=True)
class CompareTask:
    """Compare one object of a ledger."""

    topic: str
    ledger_id: int
    location: str
    path: str
    """Path of the attempt, below the location."""
    part: Part
    exact: bool
    source: LedgerSource | None
    """None: the entries are gone, and only the manifest can be compared."""
    service: ServiceAddress
    """Broker that knows whether the ledger still exists."""


@dataclass(slots=True)
class Comparison:
    """Findings about one object."""

    topic: str
    ledger_id: int
    name: str
    messages: int = 0
    """Compared one by one."""
    entries: int = 0
    differences: int = 0
    told: list[str] = field(default_factory=list)
    """The first of them, in words."""
    gone: bool = False
    """Whether the ledger was trimmed, or deleted from bookies, during the comparison."""

    def differ(self, what: str) -> None:
        self.differences += 1
        if len(self.told) < TOLD_MAX:
            self.told.append(f"{self.topic}, ledger {self.ledger_id}, {self.name}: {what}")


def compare_part(task: CompareTask) -> Comparison:
    """Compare one object; raises only errors for which a retry may help."""
    found = Comparison(task.topic, task.ledger_id, task.part.name)
    try:
        store = open_store(task.location)
        with tempfile.TemporaryDirectory(prefix="magnetar-compare-", dir=scratch_directory()) as directory:
            path = Path(directory) / task.part.name
            sound = _fetch(store, task, path, found)
            if not sound and not task.part.footer_bytes:
                return found  # Arrow can crash on a damaged footer, so it is checked first.
            with PartReader(str(path), part=task.part) as reader, ExitStack() as stack:
                for difference in reader.check().differences(task.part):
                    found.differ(difference)
                if task.source is not None:
                    compare_rows(reader, stack.enter_context(open_entries(task.source)), task, found)
    except MagnetarError as error:
        if gone_meanwhile(task.service, task.topic, task.ledger_id, task.path, error):
            found.gone = True
            return found
        if may_pass(error):
            raise
        found.differ(f"{type(error).__name__}: {error}")
    return found


def gone_meanwhile(
    service: ServiceAddress, topic: str, ledger_id: int, path: str, error: MagnetarError
) -> bool:
    """Return whether `error` says that something of a ledger is missing, as it should be by now.

    Raises what a call may.
    """
    if not isinstance(error, _GONE):
        return False
    try:
        ledger = find_ledger(service, topic, ledger_id)
    except TopicNotFound:
        return True
    if ledger is None or ledger.offload.path != path:
        return True  # Trimmed, or offloaded anew.
    # The entries may be deleted then; a missing object is a loss.
    return not isinstance(error, NoSuchObject) and ledger.offload.left_bookies_ms > 0


def _fetch(store: ObjectStore, task: CompareTask, path: Path, found: Comparison) -> bool:
    """Download the object to a file; returns whether its bytes match the manifest."""
    name = f"{task.path}/{task.part.name}"
    digest, length = hashlib.sha256(), 0
    size = store.size(name)
    with path.open("wb") as file:
        while length < size:
            piece = store.read(name, length, PIECE_BYTES)
            if not piece:
                break
            digest.update(piece)
            file.write(piece)
            length += len(piece)
    if length != task.part.byte_length:
        found.differ(f"the object has {length} bytes, the manifest says {task.part.byte_length}")
    elif digest.digest() != task.part.sha256:
        found.differ("the object has other bytes than the manifest says (SHA-256)")
    else:
        return True
    return False


def compare_rows(reader: PartReader, entries: Entries, task: CompareTask, found: Comparison) -> None:
    """The rows of every row group against those of the same entries. Raises DataCorruption, StorageError."""
    assert task.source is not None, "there are entries to compare with"
    aborted = task.source.aborted_entries()
    partition = TopicName.parse(task.topic).partition_index
    expected = task.part.first_entry_id
    for group in reader.footer.row_groups:
        if group.first_entry_id != expected:
            found.differ(f"entry {group.first_entry_id} comes where {expected} is expected")
        expected = group.last_entry_id + 1
        table = reader.read_table([group.number])
        strange = set(table["entry_id"].unique().to_pylist())
        for runs in entries.read(group.first_entry_id, group.last_entry_id):
            for live in rows_in_pieces(runs, partition=partition, exact=task.exact, aborted=aborted):
                strange.difference_update(range(live.first_entry_id, live.last_entry_id + 1))
                _compare_piece(table, live, runs, found)
        for entry_id in sorted(strange):
            found.differ(f"entry {entry_id} is in the object and not in the ledger")
    if expected != task.part.last_entry_id + 1:
        found.differ(
            f"the object ends with entry {expected - 1}, the manifest says {task.part.last_entry_id}"
        )


def _compare_piece(table: pa.Table, live: Rows, runs: Sequence[Run], found: Comparison) -> None:
    """The rows of some entries, which are among those of `runs`, against what a row group has of them."""
    found.messages += live.rows
    found.entries += live.entries
    entry_ids = table["entry_id"]
    first, last = live.first_entry_id, live.last_entry_id
    its = table.filter(
        pc.and_(pc.greater_equal(entry_ids, pa.scalar(first)), pc.less_equal(entry_ids, pa.scalar(last)))
    )
    columns = {name: values_of(its[name]) for name in live.columns}
    if columns == live.columns:
        return
    order = list(zip(columns["entry_id"], columns["batch_index"], strict=True))
    if order != sorted(order):
        found.differ(f"the messages of entries {first} to {last} are in another order in the object")
    _compare_entries(_by_entry(columns), _by_entry(live.columns), dict(_bodies(runs)), found)


def _compare_entries(
    stored: dict[int, list[dict[str, Any]]],
    live: dict[int, list[dict[str, Any]]],
    bodies: dict[int, bytes],
    found: Comparison,
) -> None:
    for entry_id, rows in live.items():
        _compare_entry(entry_id, stored.pop(entry_id, []), rows, bodies[entry_id], found)


def _compare_entry(
    entry_id: int,
    stored: Sequence[Mapping[str, Any]],
    live: Sequence[Mapping[str, Any]],
    body: bytes,
    found: Comparison,
) -> None:
    if stored == live:
        return
    raw_reason = stored[0]["raw_reason"] if len(stored) == 1 else None
    if (
        raw_reason not in (None, ABORTED)
        and stored[0]["raw_entry"] == body
        and live[0]["raw_reason"] != ABORTED
    ):
        return  # Kept raw where it was offloaded, and decoded by this release.
    if not stored:
        found.differ(f"entry {entry_id} is in the ledger and not in the object")
        return
    if len(stored) != len(live):
        found.differ(f"entry {entry_id} has {len(stored)} messages in the object, {len(live)} in the ledger")
        return
    for its, expected in zip(stored, live, strict=True):
        for name, value in expected.items():
            if its[name] != value:
                found.differ(
                    f"message {entry_id}:{expected['batch_index']}: {name} is {_shown(its[name])} in the "
                    f"object, {_shown(value)} in the ledger"
                )


def _by_entry(columns: Mapping[str, list[Any]]) -> dict[int, list[dict[str, Any]]]:
    """Return the rows grouped by entry, in order."""
    entries: dict[int, list[dict[str, Any]]] = {}
    names = tuple(columns)
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(names, values, strict=True))
        if row["properties"] is not None:
            row["properties"] = [tuple(pair) for pair in row["properties"]]
        entries.setdefault(row["entry_id"], []).append(row)
    return entries


def _bodies(runs: Iterable[Run]) -> Iterator[tuple[int, bytes]]:
    for run in runs:
        for number, entry in enumerate(run.entries):
            yield run.first_entry_id + number, entry


def _shown(value: Any) -> str:
    text = repr(value)
    if len(text) <= _VALUE_CHARS:
        return text
    digest = hashlib.sha256(value if isinstance(value, bytes) else text.encode()).hexdigest()[:16]
    return f"{text[:_VALUE_CHARS]}... ({len(value)} long, SHA-256 {digest})"
