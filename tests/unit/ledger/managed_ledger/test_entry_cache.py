"""The tail cache: slices, misses, the budget over all topics."""

from __future__ import annotations

from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.entry_cache import EntryCache


def a_run(ledger_id: int, first: int, count: int = 1, size: int = 100) -> Run:
    return Run([bytes(size)] * count, first_index=1_000 + first, ledger_id=ledger_id, first_entry_id=first)


def test_a_run_is_found_by_any_of_its_entries_and_shares_their_bytes() -> None:
    cache = EntryCache(1 << 20).topic()
    runs = [a_run(1, 0, 3), a_run(1, 3), a_run(4, 0, 5), a_run(4, 7, 2)]
    for run in runs:
        cache.put(run)
    assert len(cache) == 4
    for run in runs:
        assert cache.get(Position(run.ledger_id, run.first_entry_id), 100, 1_000) is run
    part = cache.get(Position(4, 2), 2, 1_000)
    assert part is not None
    assert (part.first_entry_id, len(part.entries), part.first_index) == (2, 2, 1_002)
    assert part.entries[0] is runs[2].entries[2]


def test_uncached_entry_is_a_miss() -> None:
    cache = EntryCache(1 << 20).topic()
    assert cache.get(Position(1, 0), 1, 1) is None
    cache.put(a_run(2, 5, 2))
    cache.put(a_run(2, 9, 2))
    for position in (Position(1, 0), Position(2, 4), Position(2, 7), Position(2, 11), Position(3, 0)):
        assert cache.get(position, 100, 1_000) is None


def test_a_slice_is_bounded_by_entries_and_bytes_but_has_one_entry() -> None:
    cache = EntryCache(1 << 20).topic()
    cache.put(a_run(1, 0, 10))
    for entries_max, bytes_max, expected in (
        (3, 9_999, 3),
        (99, 250, 2),
        (99, 0, 1),
        (1, 0, 1),
        (99, 999, 9),
    ):
        run = cache.get(Position(1, 0), entries_max, bytes_max)
        assert run is not None
        assert len(run.entries) == expected


def test_the_oldest_runs_of_any_topic_go_first() -> None:
    budget = EntryCache(10_000)
    topics = [budget.topic() for _ in range(3)]
    for number in range(300):
        topics[number % 3].put(a_run(1, number))
        assert budget.bytes <= 10_000
    kept = [number for number in range(300) if topics[number % 3].get(Position(1, number), 1, 1_000)]
    assert kept == list(range(kept[0], 300))
    assert 15 < len(kept) < 25, "what a run costs beside its bytes is charged"


def test_topics_that_come_and_go_leave_nothing_behind() -> None:
    budget = EntryCache(1 << 20)
    stays = budget.topic()
    stays.put(a_run(1, 0))
    cost = budget.bytes
    for _ in range(100):
        topic = budget.topic()
        for number in range(50):
            topic.put(a_run(2, number))
        topic.clear()
        assert len(topic) == 0
    assert budget.bytes == cost
    assert len(budget._order) < 2_100
    assert stays.get(Position(1, 0), 1, 1_000) is not None


def test_a_budget_of_nothing_keeps_nothing() -> None:
    budget = EntryCache(0)
    topic = budget.topic()
    topic.put(a_run(1, 0))
    assert topic.get(Position(1, 0), 1, 1_000) is None
    assert budget.bytes == 0


def test_places_of_topics_that_went_are_no_evictions() -> None:
    cache = EntryCache(2_000)
    gone, stays = cache.topic(), cache.topic()
    for entry in range(3):
        gone.put(a_run(1, entry))
    assert cache.evictions == 0
    gone.clear()
    while not cache.evictions:
        stays.put(a_run(2, cache.inserted_entries))
    assert cache.evictions == cache.inserted_entries - 3 - len(stays)


def test_insertions_evictions_and_read_sources_are_counted() -> None:
    cache = EntryCache(2_000)
    first, second = cache.topic(), cache.topic()
    for entry in range(10):
        first.put(a_run(1, 2 * entry, 2))
    assert cache.inserted_entries == 20
    assert cache.evictions == 10 - len(first) > 0
    assert cache.dropped_entries == 2 * cache.evictions
    first.count_cached(a_run(1, 0, 3))
    second.count_stored([a_run(1, 0, 2, size=50), a_run(1, 2, 1, size=50)])
    first.clear()
    assert cache.dropped_entries == cache.inserted_entries == 20
    assert cache.evictions < 10, "a topic that goes evicts nothing"
    reads = cache.reads
    assert (reads.cached_entries, reads.cached_bytes) == (3, 300)
    assert (reads.stored_entries, reads.stored_bytes) == (3, 150)
    assert (first.reads.cached_entries, second.reads.cached_entries) == (3, 0)
