"""A Spark task: measures some entries of a ledger, before it is cut into parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from magnetar.common.errors import MagnetarError
from magnetar.common.offload.offload_errors import may_pass
from magnetar.spark.ledgers.entries import open_entries
from magnetar.spark.offload.tasks import MeasureTask, TaskFailure


def measure_entries(task: MeasureTask) -> list[int] | TaskFailure:
    """Return entry sizes in bytes, in the order of the task; raises only errors for which a retry may
    help.
    """
    try:
        with open_entries(task.source) as entries:
            return [
                len(entry)
                for first, last in _ranges(task.entry_ids)
                for runs in entries.read(first, last)
                for run in runs
                for entry in run.entries
            ]
    except MagnetarError as error:
        if may_pass(error):
            raise
        return TaskFailure(f"ledger {task.source.ledger_id}: {type(error).__name__}: {error}")


def _ranges(entry_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Group consecutive entries that are read at once: for a small ledger, all of them."""
    first = last = -1
    for each in entry_ids:
        if first >= 0 and each == last + 1:
            last = each
            continue
        if first >= 0:
            yield first, last
        first = last = each
    if first >= 0:
        yield first, last
