"""Rebuilds runs of entries from rows, which a broker streams from Parquet to consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from magnetar.common.errors import DataCorruption
from magnetar.common.naming.txn_id import TxnId
from magnetar.common.wire.frame import encode_entry
from magnetar.ledger.cold.entry_envelope import decode_envelope
from magnetar.ledger.ledger_store import RUN_TXN, Run

RUN_ENTRIES_MAX: Final = 5_000
RUN_BYTES_MAX: Final = 4 << 20

_UINT64: Final = (1 << 64) - 1


def runs_of(columns: Mapping[str, Sequence[Any]]) -> list[Run]:
    """Returns the entries of rows that begin and end with whole entries, in order.

    Needs REBUILD_COLUMNS. Consecutive entries accepted together, and in the same transaction, form one run
    again, up to RUN_ENTRIES_MAX and RUN_BYTES_MAX, whatever the original runs were. Raises DataCorruption for
    rows not produced by `rows_of`.
    """
    envelopes = columns["entry_metadata"]
    starts = first_rows(envelopes)
    if not starts:
        return []
    ledger_ids, entry_ids = columns["ledger_id"], columns["entry_id"]
    broker_times, indexes = columns["broker_publish_time"], columns["message_index"]
    payloads, raw_entries = columns["payload"], columns["raw_entry"]
    singles = columns["message_metadata"]
    txn_mosts, txn_leasts = columns["txn_most"], columns["txn_least"]
    builder = RunBuilder()
    for start, stop in pairwise((*starts, len(envelopes))):
        envelope = decode_envelope(envelopes[start])
        entry = raw_entries[start]
        if entry is None:
            if entry_ids[start] != entry_ids[stop - 1]:
                raise DataCorruption(f"rows of entry {entry_ids[stop - 1]} without its first")
            if singles[start] is None:
                payload = payloads[start] if stop - start == 1 else None
            else:
                payload = _batch_payload(singles, payloads, start, stop)
            if payload is None:
                raise DataCorruption(f"entry {entry_ids[start]} has neither payload nor raw bytes")
            entry = encode_entry(envelope.metadata, payload)
        builder.add(
            ledger_ids[start],
            entry_ids[start],
            entry,
            broker_times[start] // 1000,
            indexes[start],
            envelope.message_count,
            envelope.run_flags,
            _txn(txn_mosts[start], txn_leasts[start]) if envelope.run_flags & RUN_TXN else None,
        )
    return builder.take()


def first_rows(envelopes: Sequence[bytes | None]) -> list[int]:
    """Returns the number of each entry's first row. Raises DataCorruption if rows precede the first one."""
    starts = [row for row, envelope in enumerate(envelopes) if envelope is not None]
    if not starts and envelopes:
        raise DataCorruption(f"{len(envelopes)} rows without the first of an entry")
    if starts and starts[0]:
        raise DataCorruption(f"{starts[0]} rows before the first of an entry")
    return starts


def _batch_payload(
    singles: Sequence[bytes | None], payloads: Sequence[bytes | None], start: int, stop: int
) -> bytes | None:
    """Returns the batch's payload; None if something is missing."""
    parts: list[bytes] = []
    for row in range(start, stop):
        single, payload = singles[row], payloads[row]
        if single is None or payload is None:
            return None
        parts += (len(single).to_bytes(4, "big"), single, payload)
    return b"".join(parts)


def _txn(most: int | None, least: int | None) -> TxnId | None:
    return None if most is None or least is None else TxnId(most & _UINT64, least & _UINT64)


class RunBuilder:
    """Joins entries into runs."""

    __slots__ = ("_bytes", "_counts", "_next_index", "_run", "_runs")

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._run: Run | None = None
        self._counts: list[int] = []
        self._bytes = 0
        self._next_index = 0

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        entry: bytes,
        publish_time_ms: int,
        index: int,
        count: int,
        flags: int,
        txn: TxnId | None,
    ) -> None:
        """Adds the next entry; `count` is the number of messages that it counts as."""
        run = self._run
        if (
            run is None
            or run.publish_time_ms != publish_time_ms
            or run.flags != flags
            or run.txn != txn
            or self._next_index != index
            or run.first_entry_id + len(run.entries) != entry_id
            or run.ledger_id != ledger_id
            or self._bytes + len(entry) > RUN_BYTES_MAX
            or len(run.entries) >= RUN_ENTRIES_MAX
        ):
            self._finish()
            self._run = run = Run(
                [],
                publish_time_ms=publish_time_ms,
                first_index=index,
                flags=flags,
                ledger_id=ledger_id,
                first_entry_id=entry_id,
                txn=txn,
            )
        run.entries.append(entry)
        self._counts.append(count)
        self._bytes += len(entry)
        self._next_index = index + count

    def _finish(self) -> None:
        if self._run is not None:
            self._run.byte_length = self._bytes
            if any(count != 1 for count in self._counts):
                self._run.message_counts = self._counts
            self._runs.append(self._run)
        self._run, self._counts, self._bytes = None, [], 0

    def take(self) -> list[Run]:
        """Returns the runs since the last call."""
        self._finish()
        runs, self._runs = self._runs, []
        return runs
