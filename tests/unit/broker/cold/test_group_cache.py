"""The cache of row groups: loaded once for all, bounded; nobody drives out where another reader stands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from magnetar.broker.cold.entry_group import EntryGroup
from magnetar.broker.cold.group_cache import READERS_MAX, UNUSED_S, GroupCache
from magnetar.common.errors import LogFailed
from magnetar.ledger.ledger_store import Run
from magnetar.sim.loop import SimClock, SimLoop
from magnetar.sim.loop import run as run_loop


@dataclass(frozen=True)
class Thing:
    name: str
    cost: int = 10


class Loads:
    """Loads things after a while, and counts how often."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.error: Exception | None = None

    def of(self, name: str, cost: int = 10) -> Callable[[], Awaitable[Thing]]:
        async def load() -> Thing:
            self.names.append(name)
            await asyncio.sleep(1)
            if self.error is not None:
                raise self.error
            return Thing(name, cost)

        return load


def caching(
    scenario: Callable[[GroupCache[str, Thing], Loads], Awaitable[None]], bytes_max: int = 40
) -> None:
    loop = SimLoop(0)

    async def main() -> None:
        cache: GroupCache[str, Thing] = GroupCache("things", bytes_max, SimClock(loop))
        await scenario(cache, Loads())
        await cache.close()
        assert cache.byte_length == 0

    run_loop(loop, main())


def test_one_load_serves_all_who_wait_even_when_the_first_one_gives_up() -> None:
    async def scenario(cache: GroupCache[str, Thing], loads: Loads) -> None:
        waiting = [asyncio.ensure_future(cache.get("a", loads.of("a"))) for _ in range(5)]
        await asyncio.sleep(0.5)
        waiting[0].cancel()
        found = await asyncio.gather(*waiting[1:])
        assert {thing.name for thing in found} == {"a"}
        assert loads.names == ["a"]
        assert cache.peek("a") is found[0]

    caching(scenario)


def test_a_load_that_failed_fails_for_all_who_wait_and_is_tried_again_for_the_next() -> None:
    async def scenario(cache: GroupCache[str, Thing], loads: Loads) -> None:
        loads.error = LogFailed("not now")
        waiting = [asyncio.ensure_future(cache.get("a", loads.of("a"))) for _ in range(3)]
        assert all(isinstance(e, LogFailed) for e in await asyncio.gather(*waiting, return_exceptions=True))
        assert cache.peek("a") is None
        loads.error = None
        assert (await cache.get("a", loads.of("a"))).name == "a"
        assert loads.names == ["a", "a"]

    caching(scenario)


def test_eviction_prefers_groups_without_readers_then_least_recently_used() -> None:
    async def scenario(cache: GroupCache[str, Thing], loads: Loads) -> None:
        for name in "abcd":
            await cache.get(name, loads.of(name))
        cache.stands_at("reader", "a")
        await cache.get("e", loads.of("e"))
        assert [name for name in "abcde" if cache.peek(name)] == ["a", "c", "d", "e"]
        cache.stands_at("another", "c")
        await cache.get("big", loads.of("big", 15))
        assert [name for name in ("a", "c", "d", "e", "big") if cache.peek(name)] == ["a", "c", "big"]
        assert cache.byte_length <= 40

    caching(scenario)


def test_prefetch_evicts_no_group_in_use() -> None:
    async def scenario(cache: GroupCache[str, Thing], loads: Loads) -> None:
        for name in "abcd":
            await cache.get(name, loads.of(name))
            cache.stands_at(f"reader of {name}", name)
        assert not cache.ahead("e", loads.of("e"))
        assert cache.came_from("reader of b"), "it goes on"
        assert cache.ahead("e", loads.of("e"))
        await cache.get("e", loads.of("e"))
        assert [name for name in "abcde" if cache.peek(name)] == ["a", "c", "d", "e"]
        assert loads.names.count("e") == 1

    caching(scenario)


def test_one_that_is_larger_than_the_bound_is_kept_alone() -> None:
    async def scenario(cache: GroupCache[str, Thing], loads: Loads) -> None:
        await cache.get("a", loads.of("a"))
        await cache.get("huge", loads.of("huge", 100))
        assert cache.peek("a") is None
        assert cache.peek("huge") is not None
        await cache.get("b", loads.of("b"))
        assert cache.byte_length == 10

    caching(scenario)


def test_unused_groups_go_with_positions_of_closed_readers() -> None:
    async def scenario(cache: GroupCache[str, Thing], loads: Loads) -> None:
        await cache.get("a", loads.of("a"))
        cache.stands_at("reader", "a")
        await asyncio.sleep(UNUSED_S * 2)
        assert cache.byte_length == 0
        assert not cache.came_from("reader")

    caching(scenario)


def test_places_are_bounded_and_given_up_when_their_reader_goes_on() -> None:
    async def scenario(cache: GroupCache[str, Thing], loads: Loads) -> None:
        for number in range(READERS_MAX + 1):
            cache.stands_at(number, "a")
        assert not cache.came_from(0)
        assert cache.came_from(1)
        assert not cache.came_from(1)

    caching(scenario)


RUNS = [
    Run([b"aa", b"bb", b"cc"], 10, 0, ledger_id=1, first_entry_id=4),
    Run([b"dddd"], 20, 3, ledger_id=1, first_entry_id=7),
    Run([b"e", b"f"], 30, 4, ledger_id=1, first_entry_id=8),
]


@pytest.mark.parametrize(
    ("first", "last", "bytes_max", "expected"),
    [
        (4, 9, 100, [4, 5, 6, 7, 8, 9]),
        (5, 8, 100, [5, 6, 7, 8]),
        (5, 9, 4, [5, 6]),
        (5, 9, 3, [5]),
        (7, 9, 1, [7]),
        (6, 9, 5, [6]),
        (4, 50, 100, [4, 5, 6, 7, 8, 9]),
        (9, 9, 1, [9]),
    ],
)
def test_a_group_gives_what_is_asked_for_as_far_as_it_fits(
    first: int, last: int, bytes_max: int, expected: list[int]
) -> None:
    group = EntryGroup(RUNS)
    found = group.take(first, last, bytes_max, at_least_one=True)
    assert [run.first_entry_id + n for run in found for n in range(len(run.entries))] == expected
    assert group.cost > sum(run.byte_length for run in RUNS)


def test_a_group_gives_nothing_that_does_not_fit_where_something_was_given_before() -> None:
    assert EntryGroup(RUNS).take(7, 9, 3, at_least_one=False) == []


def test_a_group_knows_the_first_entry_from_a_time_on() -> None:
    group = EntryGroup(RUNS)
    assert [group.first_not_before(at) for at in (0, 10, 11, 20, 30, 31)] == [4, 4, 7, 7, 8, None]
    assert (group.first_entry_id, group.last_entry_id) == (4, 9)
