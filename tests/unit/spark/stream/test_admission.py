"""How far a micro-batch goes: never past a limit, never nowhere, and the same for the same topic."""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import accumulate, pairwise

import pytest
from magnetar.spark.message_ids import BEGINNING, MessageAt
from magnetar.spark.source.index_search import PROBES_MAX, Probed, entry_of_index
from magnetar.spark.source.range_reader import MessagesLost
from magnetar.spark.source.reading_plan import TopicLedgers
from magnetar.spark.stream.admission import admitted, begin_of, checked_start, waiting_behind
from magnetar.spark.stream.offsets import (
    BadOffset,
    LedgerRun,
    TopicOffset,
    cut_by_bytes,
    from_json,
    shares,
    to_json,
)

from tests.unit.spark.stream.topic_world import SERVICE, World


@pytest.mark.parametrize("seed", range(40))
def test_batches_of_rows_reach_the_end_in_order_and_keep_the_limit(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    largest = chance.choice((1, 10, 500))
    counts = {
        number * 2: [chance.randint(1, largest) for _ in range(chance.randint(1, 60))]
        for number in range(1, chance.randint(2, 5))
    }
    world = World(counts, monkeypatch)
    limit = chance.choice((1, 7, 100, 10_000))
    offset = begin_of(world.described, BEGINNING)
    end = world.described.end
    batches = 0
    while offset.at < end and offset.index < world.messages:
        waiting = waiting_behind(world.described, offset, None)
        assert waiting.messages == world.messages - offset.index
        (reached,) = admitted([waiting], rows=limit, size=None)
        assert reached.at > offset.at
        assert reached.index == world.index_of(reached.at)
        taken = reached.index - offset.index
        assert taken <= limit or taken <= largest, "only one entry may be more than the limit"
        assert admitted([waiting], rows=limit, size=None) == [reached]
        offset = reached
        batches += 1
    assert offset.index == world.messages
    assert batches >= world.messages / max(limit, largest)


def test_without_a_limit_everything_is_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({3: [5, 5], 5: [1]}, monkeypatch)
    waiting = waiting_behind(world.described, begin_of(world.described, BEGINNING), None)
    assert admitted([waiting], rows=None, size=None) == [TopicOffset(7, MessageAt(5, 1), 11)]


def test_a_target_is_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({3: [5, 5, 5], 5: [1]}, monkeypatch)
    target = TopicOffset(7, MessageAt(3, 2), 10)
    waiting = waiting_behind(world.described, begin_of(world.described, BEGINNING), target)
    assert waiting.end == target
    assert waiting_behind(world.described, target, target).end == target


def test_batches_of_bytes_are_about_as_large_as_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({3: [2] * 50}, monkeypatch)
    waiting = waiting_behind(world.described, begin_of(world.described, BEGINNING), None)
    assert admitted([waiting], rows=None, size=1_000) == [TopicOffset(7, MessageAt(3, 10), 20)]
    assert admitted([waiting], rows=None, size=1) == [TopicOffset(7, MessageAt(3, 1), 2)]
    assert admitted([waiting], rows=6, size=1_000) == [TopicOffset(7, MessageAt(3, 3), 6)]


def test_messages_that_were_trimmed_are_counted_and_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({3: [5, 5], 5: [1, 1]}, monkeypatch)
    described = world.described
    kept = TopicLedgers(
        topic=described.topic,
        partition=-1,
        creation_id=7,
        service=SERVICE,
        owner=SERVICE,
        ledgers=described.ledgers[1:],
    )
    read = TopicOffset(7, MessageAt(3, 2), 10)
    assert checked_start(kept, read, fail_on_data_loss=True) == read
    unread = TopicOffset(7, MessageAt(3, 1), 5)
    with pytest.raises(MessagesLost, match="5 messages"):
        checked_start(kept, unread, fail_on_data_loss=True)
    assert checked_start(kept, unread, fail_on_data_loss=False) == TopicOffset(7, MessageAt(5, 0), 10)
    with pytest.raises(MessagesLost, match="recreated"):
        checked_start(described, TopicOffset(8, MessageAt(3, 0), 0), fail_on_data_loss=True)


@pytest.mark.parametrize("seed", range(20))
def test_a_message_is_found_with_few_probes(seed: int) -> None:
    chance = random.Random(seed)
    even = seed % 2 == 0
    sizes = [100 if even else chance.choice((1, 1, 1, 5_000)) for _ in range(2_000)]
    firsts = list(accumulate([0, *sizes]))
    probes = 0

    class Probe:
        def entry(self, entry_id: int) -> Probed:
            nonlocal probes
            probes += 1
            return Probed(firsts[entry_id], sizes[entry_id])

    for _ in range(20):
        index = chance.randrange(firsts[-1])
        probes = 0
        found = entry_of_index(Probe(), (0, 0), (2_000, firsts[-1]), index)
        expected = bisect_right(firsts, index) - 1
        assert found == (expected, firsts[expected])
        assert probes <= (6 if even else PROBES_MAX)


@pytest.mark.parametrize("seed", range(50))
def test_limit_is_shared_whole_and_no_partition_with_data_starves(seed: int) -> None:
    chance = random.Random(seed)
    available = [chance.choice((0, 1, 5, 1_000)) for _ in range(chance.randint(1, 12))]
    limit = chance.randint(1, 2_000)
    given = shares(available, limit)
    assert all(0 <= share <= have for share, have in zip(given, available, strict=True))
    assert all(share for share, have in zip(given, available, strict=True) if have)
    busy = sum(1 for have in available if have)
    assert sum(given) <= max(limit + busy, 0)
    assert sum(given) >= min(limit, sum(available))


def test_bytes_cut_ledgers_at_entries_and_take_at_least_one() -> None:
    runs = [LedgerRun(3, 5, 9, 0, 5, 100.0), LedgerRun(4, 0, 9, 5, 15, 10.0)]
    assert cut_by_bytes(runs, 1) == MessageAt(3, 6)
    assert cut_by_bytes(runs, 250) == MessageAt(3, 7)
    assert cut_by_bytes(runs, 500) == MessageAt(4, 0)
    assert cut_by_bytes(runs, 555) == MessageAt(4, 5)
    assert cut_by_bytes(runs, 600) is None
    assert all(
        one is not None and other is not None and one <= other
        for one, other in pairwise(cut_by_bytes(runs, most) for most in range(1, 599))
    )


def test_offsets_survive_the_checkpoint() -> None:
    offsets = {"a": TopicOffset(2**64 - 1, MessageAt(5, 6), 7), "b": TopicOffset(1, BEGINNING, 0)}
    assert from_json(to_json(offsets)) == offsets
    assert list(to_json(dict(reversed(offsets.items())))["topics"]) == ["a", "b"]
    with pytest.raises(BadOffset, match="version 2"):
        from_json({"version": 2})
    with pytest.raises(BadOffset, match="none"):
        from_json({"version": 1, "topics": {"a": {"at": "x"}}})
