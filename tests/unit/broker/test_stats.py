"""Counters, histograms and the sampler that turns them into rates."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from magnetar.broker.stats import (
    ENTRY_SIZE_BOUNDS_BYTES,
    Histogram,
    ProducerStats,
    RateSampler,
    SubscriptionStats,
    TopicStats,
)
from magnetar.ledger.ledger_store import RUN_CHUNK, Run
from magnetar.ledger.managed_ledger.entry_cache import ReadCounts
from magnetar.sim.loop import SimClock, SimLoop, run


@dataclass
class FakeClock:
    now: float = 100.0

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now


@dataclass
class FakeConsumer:
    stats: SubscriptionStats = field(default_factory=SubscriptionStats)


@dataclass
class FakeProducer:
    stats: ProducerStats = field(default_factory=ProducerStats)


@dataclass
class FakeSubscription:
    stats: SubscriptionStats = field(default_factory=SubscriptionStats)
    consumers: list[FakeConsumer] = field(default_factory=list)


@dataclass
class FakeTopic:
    stats: TopicStats = field(default_factory=TopicStats)
    producers: dict[str, FakeProducer] = field(default_factory=dict)
    read_counts: ReadCounts | None = None
    subscriptions: dict[str, FakeSubscription] = field(default_factory=dict)


def test_a_value_on_a_bound_belongs_to_the_bucket_below_it() -> None:
    histogram = Histogram((1.0, 5.0))
    for value in (0.2, 1.0, 1.1, 5.0, 5.1, 1000.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 2]


def test_entries_of_one_size_and_of_many_sizes_are_counted_alike() -> None:
    lengths = [0, 1, 128, 129, 512, 1024, 1025, 4096, 16384, 102400, 102401, 1048576, 1048577]
    together, alone = Histogram(ENTRY_SIZE_BOUNDS_BYTES), Histogram(ENTRY_SIZE_BOUNDS_BYTES)
    together.observe_lengths([bytes(length) for length in lengths])
    for length in lengths:
        alone.observe_lengths([bytes(length)])
    together.observe_lengths([])
    assert together.counts == alone.counts == [3, 2, 1, 1, 1, 1, 1, 2, 1]
    assert together.total == alone.total == sum(lengths)


def test_a_histogram_publishes_only_the_last_complete_period() -> None:
    histogram = Histogram((1.0, 5.0))
    histogram.observe(0.5, 3)
    assert histogram.period_counts == (0, 0, 0)
    histogram.sample()
    assert (histogram.period_counts, histogram.period_total) == ((3, 0, 0), 1.5)
    histogram.observe(7.0)
    histogram.sample()
    assert (histogram.period_counts, histogram.period_total) == ((0, 0, 1), 7.0)
    histogram.sample()
    assert (histogram.period_counts, histogram.period_total) == ((0, 0, 0), 0)
    assert histogram.counts == [3, 0, 1]


def test_rates_are_the_difference_of_two_samples_by_their_time() -> None:
    clock = FakeClock()
    topic, subscription = FakeTopic(), FakeSubscription()
    topic.subscriptions["s"] = subscription
    sampler = RateSampler(lambda: [topic], clock)

    topic.stats.messages_in, topic.stats.entries_in, topic.stats.bytes_in = 600, 60, 6000
    subscription.stats.messages_out, subscription.stats.acks = 300, 150
    consumer = FakeConsumer()
    consumer.stats.messages_out = 120
    subscription.consumers.append(consumer)
    clock.now += 60
    asyncio.run(sampler.sample())
    assert (topic.stats.message_rate_in, topic.stats.entry_rate_in, topic.stats.byte_rate_in) == (10, 1, 100)
    assert (subscription.stats.message_rate_out, subscription.stats.ack_rate) == (5, 2.5)
    assert consumer.stats.message_rate_out == 2

    clock.now += 30
    topic.stats.messages_out, topic.stats.bytes_out = 30, 3000
    asyncio.run(sampler.sample())
    assert (topic.stats.message_rate_in, topic.stats.message_rate_out, topic.stats.byte_rate_out) == (
        0,
        1,
        100,
    )


def test_chunks_are_counted_for_their_producer_and_noted_on_their_topic() -> None:
    topic, producer = FakeTopic(), FakeProducer()
    topic.producers["p"] = producer
    clock = FakeClock()
    sampler = RateSampler(lambda: [topic], clock)

    def publish(run: Run) -> None:
        topic.stats.count_publish(run)
        producer.stats.count_publish(run)

    publish(Run([b"12345", b"67890"], message_counts=[4, 6]))
    assert (producer.stats.messages_in, producer.stats.bytes_in, producer.stats.chunks_in) == (10, 10, 0)
    assert not topic.stats.chunked
    publish(Run([b"12345", b"67890"], flags=RUN_CHUNK))
    assert topic.stats.chunked
    clock.now += 2
    asyncio.run(sampler.sample())
    rates = producer.stats.message_rate_in, producer.stats.byte_rate_in, producer.stats.chunk_rate
    assert rates == (6, 10, 1)


def test_samples_of_what_is_idle_take_no_memory() -> None:
    idle = [(TopicStats(), SubscriptionStats(), ProducerStats()) for _ in range(100)]

    def sample() -> None:
        for each in idle:
            for stats in each:
                stats.sample(60.0)

    sample()
    assert {id(stats.byte_rate_in) for stats, _, _ in idle} == {id(idle[0][0].message_rate_out)}
    assert {id(stats.ack_rate) for _, stats, _ in idle} == {id(idle[0][1].chunk_rate)}
    assert {id(stats._sampled) for _, stats, _ in idle} == {id(SubscriptionStats()._sampled)}
    assert {id(stats._sampled) for stats, _, _ in idle} == {id(TopicStats()._sampled)}


def test_two_samples_at_the_same_moment_do_not_divide_by_zero() -> None:
    topic = FakeTopic()
    sampler = RateSampler(lambda: [topic], FakeClock())
    topic.stats.messages_in = 5
    asyncio.run(sampler.sample())
    assert topic.stats.message_rate_in == 0.0


def test_topics_of_many_slices_are_all_sampled() -> None:
    clock = FakeClock()
    topics = [FakeTopic() for _ in range(450)]
    sampler = RateSampler(lambda: topics, clock)
    for topic in topics:
        topic.stats.bytes_in = 20
    clock.now += 10
    asyncio.run(sampler.sample())
    assert {topic.stats.byte_rate_in for topic in topics} == {2.0}


def test_samples_are_taken_as_often_as_is_said() -> None:
    loop = SimLoop(1)
    topic = FakeTopic()

    async def main() -> None:
        sampling = asyncio.create_task(RateSampler(lambda: [topic], SimClock(loop), 2).run())
        await asyncio.sleep(0.5)
        topic.stats.messages_in = 20
        await asyncio.sleep(2)
        assert topic.stats.message_rate_in == 10
        await asyncio.sleep(2)
        assert topic.stats.message_rate_in == 0
        sampling.cancel()

    run(loop, main())


def test_what_was_read_becomes_rates_where_anything_was() -> None:
    reads = ReadCounts()
    topics = [FakeTopic(read_counts=reads), FakeTopic()]
    clock = FakeClock()

    async def scenario() -> None:
        sampler = RateSampler(lambda: topics, clock)
        reads.cached(Run([bytes(10)] * 30, ledger_id=1, first_entry_id=0))
        reads.stored([Run([bytes(20)] * 6), Run([bytes(20)] * 4)])
        clock.now += 10
        await sampler.sample()
        stats = topics[0].stats
        assert (stats.read_entry_rate, stats.read_byte_rate, stats.read_miss_rate) == (4.0, 50.0, 1.0)
        clock.now += 10
        await sampler.sample()
        assert (stats.read_entry_rate, stats.read_byte_rate, stats.read_miss_rate) == (0.0, 0.0, 0.0)
        assert topics[1].stats.read_entry_rate == 0.0

    asyncio.run(scenario())
