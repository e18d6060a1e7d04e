"""A task of Spark: the entries of one range, read, made into rows, written as one Parquet object.

The object is made in a file of this machine first: what goes to the object store is whole. A task that is
tried again writes the same bytes to the same name.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from magnetar.common.errors import DataCorruption, MagnetarError
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_errors import may_pass
from magnetar.ledger.cold.objects import open_store
from magnetar.ledger.cold.part_writer import PartInfo, PartWriter
from magnetar.ledger.cold.rows import rows_of
from magnetar.ledger.ledger_store import Run
from magnetar.spark.offload.entries import Entries, in_units, open_entries
from magnetar.spark.offload.envelopes import envelope_crc
from magnetar.spark.offload.scratch import scratch_directory
from magnetar.spark.offload.tasks import PartTask, TaskFailure, WrittenPart


def write_part(task: PartTask) -> WrittenPart | TaskFailure:
    """Write one part; raises only where another try may do better."""
    try:
        store = open_store(task.location)
        with tempfile.TemporaryDirectory(prefix="magnetar-offload-", dir=scratch_directory()) as directory:
            path = Path(directory) / task.name
            with open_entries(task.source) as entries:
                written = _write_file(task, entries, path)
            store.put_file(str(path), f"{task.path}/{task.name}")
        return written
    except MagnetarError as error:
        if may_pass(error):
            raise
        return TaskFailure(f"{task.name}: {type(error).__name__}: {error}")


def _write_file(task: PartTask, entries: Entries, path: Path) -> WrittenPart:
    topic = TopicName.parse(task.source.topic)
    info = PartInfo(name=task.name, topic=task.source.topic, ledger_id=task.source.ledger_id)
    expected = task.first_entry_id
    first_index = max_publish_time_ms = crc = 0
    raw_reasons: Counter[str] = Counter()
    with path.open("wb") as sink:
        writer = PartWriter(sink, info)
        for runs in in_units(entries.read(task.first_entry_id, task.last_entry_id)):
            if expected == task.first_entry_id:
                first_index = runs[0].first_index
            expected = _check_order(runs, expected)
            crc = envelope_crc(runs, crc)
            rows = rows_of(runs, partition=topic.partition_index, exact=task.exact)
            max_publish_time_ms = max(max_publish_time_ms, rows.max_publish_time_ms)
            raw_reasons += rows.raw_reasons
            writer.write(rows)
        part = writer.close()
    if expected != task.last_entry_id + 1:
        raise DataCorruption(
            f"ledger {task.source.ledger_id} ended before entry {expected}, expected {task.last_entry_id}"
        )
    return WrittenPart(part, first_index, max_publish_time_ms, crc, dict(raw_reasons))


def _check_order(runs: list[Run], expected: int) -> int:
    """The entry after the last one. Raises DataCorruption unless each follows the one before."""
    for run in runs:
        if run.first_entry_id != expected:
            raise DataCorruption(
                f"entry {run.ledger_id}:{run.first_entry_id} came instead of entry {expected}"
            )
        expected = run.last_entry_id + 1
    return expected
