"""A Spark task: reads the entries of one range and writes their rows as one Parquet object.

The object is made in a file of this machine first: what goes to the object store is whole. A task that is
tried again writes the same bytes to the same name.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from magnetar.common.errors import DataCorruption, MagnetarError
from magnetar.common.naming.topic_name import TopicName
from magnetar.common.offload.offload_errors import may_pass
from magnetar.ledger.cold.objects import open_store
from magnetar.ledger.cold.part_writer import PartInfo, PartWriter
from magnetar.ledger.cold.rows import rows_in_pieces
from magnetar.ledger.ledger_store import Run
from magnetar.spark.ledgers.entries import Entries, open_entries
from magnetar.spark.offload.envelope_checksum import envelope_crc
from magnetar.spark.offload.tasks import PartTask, TaskFailure, WrittenPart
from magnetar.spark.scratch import scratch_directory


def write_part(task: PartTask) -> WrittenPart | TaskFailure:
    """Write one part; raises only errors for which a retry may help."""
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
    passing = _Passing(task)
    aborted = task.source.aborted_entries()
    max_publish_time_ms = 0
    raw_reasons: Counter[str] = Counter()
    with path.open("wb") as sink:
        writer = PartWriter(sink, info)
        runs = passing.of(entries.read(task.first_entry_id, task.last_entry_id))
        # In pieces: a few hundred bytes of an entry can be a hundred thousand rows.
        pieces = rows_in_pieces(runs, partition=topic.partition_index, exact=task.exact, aborted=aborted)
        for rows in pieces:
            max_publish_time_ms = max(max_publish_time_ms, rows.max_publish_time_ms)
            raw_reasons += rows.raw_reasons
            writer.write(rows)
        part = writer.close()
    return WrittenPart(part, passing.first_index, max_publish_time_ms, passing.crc, dict(raw_reasons))


class _Passing:
    """Looks at the entries of a task on their way to rows."""

    def __init__(self, task: PartTask) -> None:
        self._task = task
        self.first_index = 0
        self.crc = 0
        """See `envelopes`."""

    def of(self, read: Iterable[list[Run]]) -> Iterator[Run]:
        """Yield the same runs. Raises DataCorruption unless they are all entries of the task, in order."""
        task = self._task
        ledger_id, expected = task.source.ledger_id, task.first_entry_id
        for runs in read:
            for run in runs:
                if run.first_entry_id != expected or run.last_entry_id > task.last_entry_id:
                    raise DataCorruption(
                        f"entries {ledger_id}:{run.first_entry_id} to {run.last_entry_id} came where "
                        f"{expected} to {task.last_entry_id} were to follow"
                    )
                if expected == task.first_entry_id:
                    self.first_index = run.first_index
                self.crc = envelope_crc((run,), self.crc)
                expected = run.last_entry_id + 1
                yield run
        if expected != task.last_entry_id + 1:
            raise DataCorruption(
                f"ledger {ledger_id} ended before entry {expected}, expected {task.last_entry_id}"
            )
