"""Sequence ids of what Spark writes: the same for a row however often its task runs, and a check of the rows.

A broker with deduplication drops what a producer name has published before, by the highest sequence id. So a
task that is tried again, or a batch that a restarted query runs again, publishes under the same name with the
same ids, and only what was not stored yet is stored. That holds as long as the rows come again as they came
before. Whether they do is in the ids themselves:

    batch (27 bits)   row in the task (23)   check (13)      of streams, and of writes that number batches
                      row in the task (43)   check (20)      of other writes

The check is a checksum over all rows up to this one. The broker says the last id that it has; a task that
comes to that row with another check has other rows than the attempt before it, and must not go on: the broker
would drop rows that were never stored.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.common.errors import MagnetarError

NONE_YET: Final = -1
"""Sequence id that a broker returns for an unknown name."""


class RowsDiffer(MagnetarError):
    """A batch that was published in part has come again with other rows, or in another order."""


class BatchPassed(MagnetarError):
    """The producer name has published a later batch."""


class TooManyRows(MagnetarError):
    """A task has more rows than there are numbers for, or a query more batches."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """Layout of a 63-bit sequence id: batch, row and check."""

    batch_bits: int
    row_bits: int
    check_bits: int

    def __post_init__(self) -> None:
        assert self.batch_bits + self.row_bits + self.check_bits == 63, "a sequence id has 63 bits"

    def first(self, batch: int) -> int:
        """The lowest id of a batch. Raises TooManyRows when there is no such batch."""
        if not 0 <= batch < 1 << self.batch_bits:
            raise TooManyRows(
                f"batch {batch} has no sequence ids, the last one that has is {(1 << self.batch_bits) - 1}: "
                "begin a query with another checkpoint, or set the option query.id"
            )
        return batch << self.row_bits + self.check_bits

    def sequence_id(self, batch: int, row: int, checksum: int) -> int:
        """The id of a row. Raises TooManyRows."""
        if row >> self.row_bits:
            raise TooManyRows(
                f"a task writes more than {1 << self.row_bits} rows at once: repartition them into more tasks"
            )
        return self.first(batch) | row << self.check_bits | checksum & (1 << self.check_bits) - 1

    def batch_of(self, sequence_id: int) -> int:
        return sequence_id >> self.row_bits + self.check_bits

    def row_of(self, sequence_id: int) -> int:
        return sequence_id >> self.check_bits & (1 << self.row_bits) - 1


BATCHES: Final = Numbering(27, 23, 13)
"""Layout for streams: a batch every second for four years, of 8 million rows a task."""

ONE_BATCH: Final = Numbering(0, 43, 20)
"""Layout for a write of one batch."""


class RowNumbers:
    """Gives the rows of one task their sequence ids, in the order in which they are asked for."""

    def __init__(self, numbering: Numbering, batch: int) -> None:
        """Raises TooManyRows when there is no such batch."""
        numbering.first(batch)
        self._numbering = numbering
        self._batch = batch
        self._row = 0
        self._checksum = 0

    @property
    def rows(self) -> int:
        """Number of rows that were numbered."""
        return self._row

    def mix(self, what: bytes) -> None:
        """Add a routing parameter, such as a number of partitions, to all later checks."""
        self._checksum = zlib.crc32(what, self._checksum)

    def next(self, row: bytes) -> int:
        """The id of the next row; `row` is all that is published of it. Raises TooManyRows."""
        self._checksum = zlib.crc32(row, self._checksum)
        sequence_id = self._numbering.sequence_id(self._batch, self._row, self._checksum)
        self._row += 1
        return sequence_id


class PlainNumbers:
    """Counts the rows of a task that publishes in a transaction: what a failed attempt published is aborted,
    and nothing has to be found again.
    """

    def __init__(self) -> None:
        self._row = 0
        self._checksum = 0

    @property
    def rows(self) -> int:
        """Number of rows that were numbered."""
        return self._row

    @property
    def checksum(self) -> int:
        """Checksum over all rows so far, in their order."""
        return self._checksum

    def mix(self, what: bytes) -> None:
        """Add a routing parameter to the checksum."""
        self._checksum = zlib.crc32(what, self._checksum)

    def next(self, row: bytes) -> int:
        """The number of the next row, from 0."""
        self._checksum = zlib.crc32(row, self._checksum)
        self._row += 1
        return self._row - 1


class Resumption:
    """Determines which rows of a task an earlier attempt stored, by the last sequence id of its producer
    name.
    """

    def __init__(self, numbering: Numbering, batch: int, last: int, subject: str) -> None:
        """`subject` names topic and producer in errors. Raises BatchPassed."""
        self._numbering = numbering
        self._subject = subject
        self._last = last if last >= numbering.first(batch) else NONE_YET
        self._found = self._last == NONE_YET
        if last != NONE_YET and numbering.batch_of(last) > batch:
            raise BatchPassed(
                f"{subject} has published batch {numbering.batch_of(last)}, and is asked for batch {batch}: "
                "another query uses the same query.id, or its checkpoint was set back; choose another one"
            )

    @property
    def resumes(self) -> bool:
        """Whether an earlier attempt published rows of this batch."""
        return self._last != NONE_YET

    def stored(self, sequence_ids: Sequence[int]) -> int:
        """How many of the next rows, by their ascending ids, are stored. Raises RowsDiffer.

        All calls together see all rows of the topic, in order.
        """
        if self._last == NONE_YET:
            return 0
        stored = bisect_right(sequence_ids, self._last)
        if stored and sequence_ids[stored - 1] == self._last:
            self._found = True
        if stored < len(sequence_ids):
            self.finish()
        return stored

    def finish(self) -> None:
        """There are no more rows. Raises RowsDiffer when the last one that is stored was none of them."""
        if self._found:
            return
        row = self._numbering.row_of(self._last)
        raise RowsDiffer(
            f"{self._subject} was interrupted after row {row} of its task, and now the rows up to there "
            "are others, or come in another order. Make the rows repeatable (sort them with "
            "sortWithinPartitions, in a stream by foreachBatch; keep the number of partitions), or set "
            "another query.id, which publishes the batch once more"
        )
