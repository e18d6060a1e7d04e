"""The parts without a cluster: who is lost, what comes next, how fast, pages, marks, views that follow."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest
from magnetar.bookie.autorecovery.lost_bookies import LostBookies
from magnetar.bookie.autorecovery.prefix_view import PrefixView
from magnetar.bookie.autorecovery.repair_queue import REST_MAX_S, RepairQueue
from magnetar.bookie.autorecovery.replication_marks import merge_mark, remove_mark
from magnetar.bookie.autorecovery.session_holder import SessionHolder
from magnetar.bookie.autorecovery.throttle import Throttle
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.ledger_pages import ledger_pages
from magnetar.common.metadata.store import Delete, Put
from magnetar.common.metadata.values import (
    Counter,
    LedgerMetadata,
    LedgerRef,
    UnderReplicated,
    decode,
    encode,
)
from magnetar.sim.loop import SimLoop, run
from magnetar.sim.metadata import SimMetadataServer, SimMetadataStore, SimSession

KEYS = Keys("test")


# --- whose session ---


def test_request_after_a_session_end_gets_the_next_session() -> None:
    """A worker whose lock is refused asks again for its next ledger, and nothing else runs in between."""

    async def main() -> None:
        metadata = SimMetadataStore(SimMetadataServer(), random.Random(1))
        holder = SessionHolder(metadata, 2_000)
        first = await holder.get()
        assert isinstance(first, SimSession)
        assert await holder.get() is first
        first.expire()
        await first.expired()  # returns in the very step in which all who wait for the end are woken
        second = await holder.get()
        assert second is not first
        await second.put_ephemeral("/a", b"mine")
        await holder.close()
        assert await metadata.get("/a") is None
        await metadata.close()

    run(SimLoop(1), main())


# --- who is lost ---


def test_a_bookie_is_lost_after_the_whole_delay_and_not_when_it_came_back() -> None:
    lost = LostBookies(10)
    lost.update(["a", "b"], ["a", "b"], 0)
    assert lost.next_loss(0) is None
    lost.update(["a", "b"], ["a"], 1)
    assert lost.lost(1) == frozenset()
    assert lost.next_loss(1) == 11
    assert lost.lost(11) == {"b"}
    lost.update(["a", "b"], ["a", "b"], 12)
    assert lost.lost(12) == frozenset()
    lost.update(["a", "b"], ["a"], 13)
    assert lost.lost(22.9) == frozenset()
    assert lost.lost(23) == {"b"}
    assert lost.next_loss(23) is None, "nobody else is away"


def test_a_bookie_that_does_not_exist_any_more_is_not_lost() -> None:
    lost = LostBookies(0)
    lost.update(["a"], [], 0)
    assert lost.lost(0) == {"a"}
    lost.update([], [], 1)
    assert lost.lost(1) == frozenset()


# --- what comes next ---


def test_failing_task_backs_off_longer_up_to_ten_minutes() -> None:
    queue = RepairQueue(random.Random(1), 1.0)
    queue.add(7, 0.0)
    now, rests = 0.0, []
    for _ in range(15):
        assert queue.take(now) == 7
        queue.rest(7, now)
        assert queue.take(now) is None
        due = queue.next_due()
        assert due is not None
        rests.append(due - now)
        now = due
    assert rests[0] < 1.3
    assert all(later > earlier for earlier, later in pairwise(rests[:9]))
    assert max(rests) <= REST_MAX_S * 1.25


def test_a_change_among_the_bookies_ends_every_rest() -> None:
    queue = RepairQueue(random.Random(1), 1000.0)
    for ledger_id in range(50):
        queue.add(ledger_id, 0.0)
    for _ in range(50):
        taken = queue.take(0.0)
        assert taken is not None
        queue.rest(taken, 0.0)
    assert queue.take(1.0) is None
    queue.wake_all(1.0)
    assert {queue.take(1.0) for _ in range(50)} == set(range(50))


def test_a_ledger_is_worked_on_by_one_at_a_time_and_again_when_its_mark_changed_meanwhile() -> None:
    queue = RepairQueue(random.Random(1), 1.0)
    queue.add(1, 0.0)
    assert queue.take(0.0) == 1
    queue.add(1, 0.0)
    assert queue.take(0.0) is None
    queue.done(1, 0.0)
    assert queue.take(0.0) == 1
    queue.add(1, 0.0)
    queue.remove(1)
    queue.done(1, 0.0)
    assert queue.take(0.0) is None
    assert len(queue) == 0


def test_the_queue_does_not_grow_with_what_happened_to_it() -> None:
    queue = RepairQueue(random.Random(1), 1.0)
    for _ in range(100):
        for ledger_id in range(10):
            queue.add(ledger_id, 0.0)
            queue.remove(ledger_id)
    assert len(queue._heap) <= 100


# --- how fast ---


@pytest.mark.parametrize("workers", [1, 5])
def test_bytes_go_at_the_rate_however_many_share_it(workers: int) -> None:
    loop = SimLoop(1)

    async def main() -> None:
        throttle = Throttle(1000)

        async def work() -> None:
            for _ in range(20 // workers):
                await throttle.spend(500)

        await asyncio.gather(*(work() for _ in range(workers)))
        assert 9.0 < loop.time() <= 10.1

    run(loop, main())


def test_no_limit_is_no_limit() -> None:
    loop = SimLoop(1)

    async def main() -> None:
        for rate in (0, -1):
            await Throttle(rate).spend(1 << 60)
        assert loop.time() == 0

    run(loop, main())


# --- page by page ---


def test_pages_hold_every_ledger_once_in_order_and_none_too_many() -> None:
    async def main() -> None:
        server = SimMetadataServer()
        metadata = SimMetadataStore(server, random.Random(1))
        ids = [1, 2, 9_999, 10_000, 10_001, 35_000, *range(70_000, 70_100), 99_999]
        server.commit([Put(KEYS.ledger(each), encode(LedgerMetadata())) for each in ids])
        server.commit([Put(KEYS.ledger_id_counter, encode(Counter(next=100_000)))])
        found = [
            [KEYS.ledger_id_of(i.key) for i in page.items] async for page in ledger_pages(metadata, KEYS)
        ]
        assert [each for page in found for each in page] == ids
        assert len(found) == 5
        assert all(len({each // 10_000 for each in page}) == 1 for page in found)
        await metadata.close()

    run(SimLoop(1), main())


def test_without_ledgers_there_are_no_pages() -> None:
    async def main() -> None:
        metadata = SimMetadataStore(SimMetadataServer(), random.Random(1))
        assert [page async for page in ledger_pages(metadata, KEYS)] == []
        await metadata.close()

    run(SimLoop(1), main())


# --- marks ---


def test_a_mark_gathers_names_and_is_removed_only_as_it_was_seen() -> None:
    async def main() -> None:
        server = SimMetadataServer()
        metadata = SimMetadataStore(server, random.Random(1))
        ref = LedgerRef(id=5, key=6)
        metadata.lose_next_outcome(applied=False)
        await merge_mark(metadata, KEYS, ref, [], 1)
        first = server.get(KEYS.under_replicated(5))
        assert first is not None
        metadata.lose_next_outcome(applied=True)
        await merge_mark(metadata, KEYS, ref, ["b"], 2)
        await merge_mark(metadata, KEYS, ref, ["a", "b"], 3)
        found = server.get(KEYS.under_replicated(5))
        assert found is not None
        assert list(decode(UnderReplicated, found.value).missing_bookie_ids) == ["a", "b"]
        await merge_mark(metadata, KEYS, ref, ["a"], 4)
        assert server.get(KEYS.under_replicated(5)) == found, "nothing new, nothing written"
        assert not await remove_mark(metadata, KEYS, 5, first.version)
        metadata.lose_next_outcome(applied=True)
        assert await remove_mark(metadata, KEYS, 5, found.version)
        assert server.get(KEYS.under_replicated(5)) is None
        await metadata.close()

    run(SimLoop(1), main())


def test_the_mark_of_an_earlier_ledger_of_that_id_gives_way() -> None:
    async def main() -> None:
        server = SimMetadataServer()
        metadata = SimMetadataStore(server, random.Random(1))
        await merge_mark(metadata, KEYS, LedgerRef(id=5, key=6), ["x"], 1)
        await merge_mark(metadata, KEYS, LedgerRef(id=5, key=7), [], 2)
        found = server.get(KEYS.under_replicated(5))
        assert found is not None
        value = decode(UnderReplicated, found.value)
        assert value.ref.key == 7
        assert not value.missing_bookie_ids
        await metadata.close()

    run(SimLoop(1), main())


# --- views ---


@pytest.mark.parametrize("seed", range(20))
def test_a_view_ends_up_with_what_is_there_whatever_happens_to_its_watch(seed: int) -> None:
    loop = SimLoop(seed)

    async def main() -> None:
        rng = random.Random(seed)
        server = SimMetadataServer()
        metadata = SimMetadataStore(server, random.Random(seed), watch_events_max=5)
        told: dict[str, int] = {}

        def on_change(key: str, value: int | None) -> None:
            if value is None:
                del told[key]
            else:
                told[key] = value

        view = PrefixView(metadata, "/p/", str, lambda data, version: decode(Counter, data).next, on_change)
        following = asyncio.ensure_future(view.run())
        await view.listed.wait()
        for step in range(300):
            key = f"/p/{rng.randrange(8)}"
            if rng.random() < 0.6:
                server.commit([Put(key, encode(Counter(next=step)))])
            else:
                server.commit([Delete(key)])
            if rng.random() < 0.1:
                await asyncio.sleep(rng.random() / 20)
            if rng.random() < 0.02:
                metadata.lose_watches()
            metadata.faults.unreachable = rng.random() < 0.1
        metadata.faults.unreachable = False
        await asyncio.sleep(20)
        now = {key: decode(Counter, value).next for key, value in server.dump().items()}
        assert {key: view.get(key) for key in view} == told == now
        await metadata.close()
        await following

    run(loop, main())


def test_a_value_that_cannot_be_read_is_left_out() -> None:
    async def main() -> None:
        server = SimMetadataServer()
        metadata = SimMetadataStore(server, random.Random(1))
        server.commit([Put("/p/good", encode(Counter(next=1))), Put("/p/bad", b"garbage")])
        view = PrefixView(metadata, "/p/", str, lambda data, v: decode(Counter, data).next, lambda k, v: None)
        following = asyncio.ensure_future(view.run())
        await view.listed.wait()
        assert list(view) == ["/p/good"]
        server.commit([Put("/p/good", b"garbage")])
        await asyncio.sleep(1)
        assert len(view) == 0
        await metadata.close()
        await following

    run(SimLoop(1), main())
