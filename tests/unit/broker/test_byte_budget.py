from __future__ import annotations

import asyncio
from functools import partial

from magnetar.broker.byte_budget import ByteBudget
from magnetar.broker.memory_config import MemoryConfig
from magnetar.ledger.ledger_store import Run
from magnetar.ledger.managed_ledger.entry_cache import EntryCache

MB = 1024 * 1024


class Holder:
    """Reads ahead and gives it all back when asked."""

    def __init__(self, budget: ByteBudget) -> None:
        self.budget = budget
        self.held = 0

    def read(self, byte_count: int) -> bool:
        if not self.budget.reserve_read(self, byte_count):
            return False
        self.held += byte_count
        self.budget.release_read(self, 0, all_of_it=False)  # what the read left over of its reservation
        return True

    def give_back(self) -> None:
        held, self.held = self.held, 0
        self.budget.release_read(self, held, all_of_it=True)


def budget_of(megabytes: int, publishes: int = 64, cache: EntryCache | None = None) -> ByteBudget:
    config = MemoryConfig(budget_megabytes=megabytes, pending_publish_megabytes_max=publishes)
    return ByteBudget(config, cache or EntryCache(0))


def test_a_connection_that_waits_to_publish_goes_on_at_half_and_only_once() -> None:
    budget = budget_of(100, publishes=10)
    resumed: list[str] = []
    budget.add_publishes(12 * MB)
    assert budget.publishes_spent
    budget.wait_to_publish(1, lambda: resumed.append("one"))
    budget.wait_to_publish(1, lambda: resumed.append("one"))
    budget.add_publishes(-6 * MB)
    assert not budget.publishes_spent
    assert resumed == []
    budget.add_publishes(-1 * MB)
    assert resumed == ["one"]
    budget.add_publishes(-1 * MB)
    assert resumed == ["one"]


def test_how_much_may_be_pending_can_change() -> None:
    config = MemoryConfig(budget_megabytes=100, pending_publish_megabytes_max=10)
    budget = ByteBudget(config, EntryCache(0))
    budget.add_publishes(12 * MB)
    assert budget.publishes_spent
    object.__setattr__(config, "pending_publish_megabytes_max", 20)  # as the dynamic configuration does
    budget.limit_publishes()
    assert not budget.publishes_spent
    object.__setattr__(config, "pending_publish_megabytes_max", 1_000)
    budget.limit_publishes()
    budget.add_publishes(88 * MB)
    assert budget.publishes_spent, "never more than all of the memory"


def test_whoever_is_gone_is_not_resumed() -> None:
    budget = budget_of(10, publishes=10)
    resumed: list[int] = []
    budget.add_publishes(10 * MB)
    budget.wait_to_publish(1, lambda: resumed.append(1))
    budget.wait_to_read(1, lambda: resumed.append(2))
    budget.forget(1)
    budget.add_publishes(-10 * MB)
    assert (budget.publishes, resumed) == (0, [])


def test_the_cache_gives_way_to_what_must_be_held_and_gets_it_back() -> None:
    cache = EntryCache(8 * MB)
    budget = budget_of(10, cache=cache)
    topic = cache.topic()
    for number in range(7):
        topic.put(Run([bytes(MB)], ledger_id=1, first_entry_id=number))
    budget.add_publishes(6 * MB)
    assert cache.bytes <= 4 * MB
    assert len(topic) == 3
    budget.add_publishes(-6 * MB)
    assert cache.bytes_max == 8 * MB


def test_a_read_takes_back_what_others_read_ahead() -> None:
    budget = budget_of(10)
    first, second = Holder(budget), Holder(budget)
    assert first.read(6 * MB)
    assert second.read(6 * MB)
    assert (first.held, second.held, budget.reads) == (0, 6 * MB, 6 * MB)


def test_room_is_what_nobody_has_to_give_back_for() -> None:
    budget = budget_of(10)
    assert budget.has_room(10 * MB)
    reader = Holder(budget)
    assert reader.read(6 * MB)
    assert budget.has_room(4 * MB)
    assert not budget.has_room(4 * MB + 1)
    assert reader.held == 6 * MB


def test_a_read_waits_when_others_hold_what_cannot_be_given_up() -> None:
    budget = budget_of(10)
    reader = Holder(budget)
    resumed: list[str] = []
    budget.add_output(6 * MB)
    assert not reader.read(6 * MB)
    budget.wait_to_read(id(reader), lambda: resumed.append("read"))
    budget.add_output(-1)
    assert resumed == ["read"]
    budget.add_output(1 - 6 * MB)
    assert reader.read(6 * MB)


def test_a_single_read_larger_than_the_budget_goes_through_when_nothing_else_is_held() -> None:
    budget = budget_of(1)
    reader = Holder(budget)
    assert reader.read(5 * MB)
    assert budget.spent
    reader.give_back()
    assert budget.used == 0


def test_reads_share_half_of_the_memory() -> None:
    budget = budget_of(16)
    readers = [Holder(budget) for _ in range(8)]
    assert budget.share_of_read(5 * MB) == 5 * MB
    assert all(reader.read(MB) for reader in readers[:7])
    assert budget.share_of_read(5 * MB) == MB
    assert budget.share_of_read(1_000) == 1_000
    assert budget_of(1).share_of_read(5 * MB) == MB // 2


def test_of_many_readers_as_many_are_resumed_as_there_is_room_for() -> None:
    async def main() -> None:
        budget = budget_of(16)
        holder, resumed, all_resumed = Holder(budget), list[int](), asyncio.Event()
        assert holder.read(MB)

        def resume(number: int) -> None:
            resumed.append(number)
            if len(resumed) == 10:
                all_resumed.set()

        budget.add_output(15 * MB)
        for number in range(10):
            budget.wait_to_read(number, partial(resume, number))
        budget.add_output(-1)
        assert resumed == [0], "the one that waited longest may reclaim what another has read"
        budget.add_output(-2 * MB)
        assert 1 < len(resumed) < 10
        await asyncio.wait_for(all_resumed.wait(), 10)
        assert resumed == list(range(10)), "without another release"

    asyncio.run(main())
