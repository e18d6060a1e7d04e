"""Live entries of a page: without what later segments overwrote or deleted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from magnetar.ledger.compacted import page as pages
from magnetar.ledger.compacted.batch_parts import without
from magnetar.ledger.compacted.page import EntriesPage
from magnetar.ledger.ledger_store import RUN_CHUNK, Run
from pyroaring import BitMap


def live_numbers(
    page: EntriesPage, first_keyed: int, dead: BitMap, start: int = 0
) -> Iterator[tuple[int, int, list[int]]]:
    """Yields (number, ordinal of its first keyed message, batch indexes that died since it was written) of
    each live entry from number `start` on.
    """
    ordinals = list(accumulate(page.keyed, initial=0))
    any_dead = dead.range_cardinality(first_keyed, first_keyed + ordinals[-1]) if ordinals[-1] else 0
    flags = page.flags
    for number in range(start, len(page.positions)):
        at, end = ordinals[number], ordinals[number + 1]
        if not any_dead or at == end:
            yield number, first_keyed + at, []
            continue
        died = [at_ for at_ in range(at, end) if first_keyed + at_ in dead]
        if len(died) == end - at and not flags[number] & pages.UNKEYED:
            continue
        yield number, first_keyed + at, [page.batch_indexes[each] for each in died]


def live_data(page: EntriesPage, number: int, died: list[int]) -> bytes:
    """Returns the bytes of a live entry. Raises DataCorruption."""
    data = page.entry(number)
    return without(data, frozenset(died)) if died else data


def live_run(page: EntriesPage, number: int, died: list[int]) -> Run:
    """Returns a live entry as a run of its own. Raises DataCorruption."""
    flags, messages = page.flags[number], page.messages[number]
    position = page.positions[number]
    return Run(
        entries=[live_data(page, number, died)],
        publish_time_ms=page.publish_times_ms[number],
        first_index=page.first_indexes[number],
        message_counts=[messages] if messages != 1 or flags & pages.BATCH else None,
        flags=RUN_CHUNK if flags & pages.CHUNK else 0,
        ledger_id=position.ledger_id,
        first_entry_id=position.entry_id,
    )


def join_runs(runs: list[Run]) -> list[Run]:
    """Joins neighbors with consecutive entries, equal times and consecutive indexes."""
    joined: list[Run] = []
    for run in runs:
        last = joined[-1] if joined else None
        if (
            last is not None
            and run.ledger_id == last.ledger_id
            and run.first_entry_id == last.last_entry_id + 1
            and run.publish_time_ms == last.publish_time_ms
            and run.flags == last.flags
            and (run.message_counts is None) == (last.message_counts is None)
            and run.first_index == last.first_index + last.messages
        ):
            last.entries += run.entries
            last.byte_length += run.byte_length
            if run.message_counts is not None:
                last.message_counts = [*(last.message_counts or ()), *run.message_counts]
        else:
            joined.append(run)
    return joined
