"""A run leaves the last message of each key, by the rules of compaction, however it is cut into runs."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
from magnetar.common.naming.txn_id import Action, TxnId
from magnetar.common.wire.pulsar_pb2 import LZ4
from magnetar.ledger.compacted import merge_plan, segment_builder
from magnetar.ledger.compacted import page as pages
from magnetar.ledger.managed_ledger import ManagedLedgerConfig, compaction_run

from tests.simulation.power_loss import Process
from tests.unit.ledger.compacted.compacted_topic import CompactedTopic, read_view
from tests.unit.ledger.compacted.history import Chunk, RandomHistory, batch, chunk, marker, single
from tests.unit.ledger.managed_ledger.harness import load, simulated
from tests.unit.ledger.managed_ledger.test_topic_transactions import end

Scenario = Callable[[CompactedTopic], Awaitable[None]]


def on_topic(scenario: Scenario, *, seed: int = 0, config: ManagedLedgerConfig | None = None) -> None:
    async def run(process: Process) -> None:
        topic = await (load(process) if config is None else load(process, config))
        await scenario(CompactedTopic(topic))

    simulated(run, seed)


def test_the_last_message_of_each_key_survives_and_an_empty_one_deletes() -> None:
    async def scenario(topic: CompactedTopic) -> None:
        await topic.publish(
            single(1, "a", b"1"), single(2, "b", b"1"), single(3, "a", b"2"), single(4, "c", b"1")
        )
        result = await topic.compact()
        assert result.removed_messages == 1
        await topic.check()
        await topic.publish(single(5, "c", b""), single(6, "b", b"2", uncompressed_size=1))
        result = await topic.compact()
        assert result.removed_messages == 3
        assert result.figures.entries == 2
        await topic.check()

    on_topic(scenario)


def test_nothing_new_writes_nothing() -> None:
    async def scenario(topic: CompactedTopic) -> None:
        assert not (await topic.compact()).did_anything
        assert topic.topic.ledger.compaction.horizon is None
        await topic.publish(single(1, "a", b"1"))
        assert (await topic.compact()).did_anything
        assert not (await topic.compact()).did_anything

    on_topic(scenario)


def test_a_view_of_which_everything_is_deleted_is_empty() -> None:
    async def scenario(topic: CompactedTopic) -> None:
        await topic.publish(single(1, "a", b"1"), batch(2, [("b", b"1"), ("c", b"1")], LZ4))
        await topic.compact()
        await topic.publish(batch(3, [("a", b""), ("b", b""), ("c", b"")]))
        await topic.compact()
        await topic.check()
        assert topic.topic.ledger.compaction.figures.segments == 0

    on_topic(scenario)


def test_a_batch_that_dies_message_by_message_keeps_its_place_until_the_last_one() -> None:
    async def scenario(topic: CompactedTopic) -> None:
        await topic.publish(batch(1, [("a", b"1"), ("b", b"1"), ("c", b"1"), ("a", b"2")], LZ4))
        for key in ("b", "a", "c"):
            await topic.compact()
            await topic.check()
            await topic.publish(single(2, key, b"later"))
        await topic.compact()
        await topic.check()

    on_topic(scenario)


def test_messages_without_a_key_are_kept_on_request() -> None:
    async def scenario(topic: CompactedTopic) -> None:
        await topic.publish(
            single(1, None, b"1"), batch(2, [(None, b"1"), ("a", b"1")]), single(3, "a", b"2")
        )
        await topic.compact(retain_null_key=True)
        await topic.check(retain_null_key=True)
        await topic.publish(single(4, "a", b""))
        await topic.compact(retain_null_key=True)
        await topic.check(retain_null_key=True)

    on_topic(scenario)


def test_an_encrypted_batch_is_kept_whole_and_shadows_nothing() -> None:
    async def scenario(topic: CompactedTopic) -> None:
        await topic.publish(
            single(1, "a", b"1"), batch(2, [("a", b"1"), ("b", b"")], encrypted=True), single(3, "b", b"1")
        )
        await topic.compact()
        await topic.check()
        await topic.publish(single(4, "a", b"2"))
        await topic.compact()
        await topic.check()

    on_topic(scenario)


def test_chunks_across_the_horizon_are_decided_with_their_last_one() -> None:
    async def scenario(topic: CompactedTopic) -> None:
        await topic.publish(single(1, "a", b"1"), chunk(2, "a", b"x", Chunk("u", 0, 3)), single(3, "a", b"2"))
        await topic.compact()
        await topic.check()
        await topic.publish(chunk(4, "a", b"x", Chunk("u", 1, 3)), single(5, "a", b"3"))
        await topic.compact()
        await topic.check()
        await topic.publish(chunk(6, "a", b"x", Chunk("u", 2, 3)))
        await topic.compact()
        await topic.check()
        assert len(topic.until(topic.history[-1].position)) == 6
        await topic.publish(single(7, "a", b"4"))
        await topic.compact()
        await topic.check()

    on_topic(scenario)


def test_markers_and_aborted_transactions_are_left_out() -> None:
    async def scenario(topic: CompactedTopic) -> None:
        aborted = single(2, "a", b"2", txnid_least_bits=1, txnid_most_bits=1)
        aborted.aborted = True
        committed = single(4, "b", b"4")
        committed.txn = TxnId(0, 1)
        topic.topic.ledger.use_transactions()
        await topic.publish(single(1, "a", b"1"), aborted, marker(3), committed)
        await end(topic.topic, committed.txn, Action.COMMIT)
        await topic.compact()
        await topic.check()
        assert set(await read_view(topic.topic)) == {topic.history[0].position, topic.history[3].position}

    on_topic(scenario)


def test_a_run_ends_before_the_first_entry_of_an_open_transaction() -> None:
    async def scenario(topic: CompactedTopic) -> None:
        topic.topic.ledger.use_transactions()
        unfinished = single(2, "a", b"2")
        unfinished.txn = TxnId(0, 0)
        await topic.publish(single(1, "a", b"1"), unfinished, single(3, "a", b"3"))
        result = await topic.compact(topic.topic.ledger.last_confirmed)
        assert result.horizon == topic.history[0].position
        await topic.check()

    on_topic(scenario)


@contextmanager
def small_sizes(rng: random.Random) -> Iterator[None]:
    """Several pages, segments and reads with little data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "PAGE_BYTES_MAX", rng.choice((100, 1_000, 256 << 10)))
        patch.setattr(segment_builder, "_LINES_PER_INDEX_PAGE", rng.choice((1, 3, 5_000)))
        patch.setattr(merge_plan, "SMALL_BYTES", rng.choice((1, 1_000, 64 << 20)))
        patch.setattr(compaction_run, "DEAD_SET_BYTES_MAX", rng.choice((18, 8 << 10)))
        patch.setattr(compaction_run, "KEPT_BYTES_MAX", rng.choice((1, 2_000, 8 << 20)))
        patch.setattr(compaction_run, "PROBED_KEYS", rng.choice((1, 3, 1 << 18)))
        patch.setattr(compaction_run, "READ_ENTRIES", rng.choice((1, 6, 5_000)))
        yield


@pytest.mark.seeds(8, full=30, nightly=400)
def test_many_runs_give_what_the_model_gives(seed: int) -> None:
    rng = random.Random(seed)
    retain = rng.random() < 0.3

    async def scenario(topic: CompactedTopic) -> None:
        history = RandomHistory(rng, keys=rng.choice((2, 8, 40)))
        for _ in range(rng.choice((2, 5, 9))):
            await topic.publish(*[history.next() for _ in range(rng.randrange(1, 40))])
            what = rng.random()
            limit = rng.choice(topic.history).position if what < 0.3 else None
            await topic.compact(
                limit, retain_null_key=retain, memory_bytes=rng.choice((1, 400, 1 << 20)), rewrite=what > 0.9
            )
            await topic.check(retain_null_key=retain, entries_max=rng.choice((1, 3, 1000)))
            if rng.random() < 0.2:
                await topic.load_again()
                await topic.check(retain_null_key=retain)

    with small_sizes(rng):
        on_topic(scenario, seed=seed)
