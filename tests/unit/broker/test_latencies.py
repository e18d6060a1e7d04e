"""How long messages take: each publish is counted, and what comes after it is sampled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from magnetar.broker import latencies
from magnetar.broker.latencies import DISPATCH, END_TO_END, PUBLISH, SAMPLE_EVERY_S, Sample, Sampler
from magnetar.broker.topics.subscribe import persistent_subscriptions
from magnetar.common.naming.position import Position
from magnetar.ledger.ledger_store import RUN_MARKER, Run
from magnetar.ledger.managed_ledger.write_samples import STORAGE_LATENCY

from tests.unit.broker.topics.world import ListeningPeer, Topics, in_a_broker, producer_of, sends, subscribed
from tests.unit.common.wire.frames import entry, metadata
from tests.unit.ledger.managed_ledger.harness import until


@dataclass
class Clock:
    now: float = 50.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)


@dataclass
class FakeSubscription:
    samples: list[Sample] = field(default_factory=list)

    def follow(self, sample: Sample) -> None:
        self.samples.append(sample)


def run_of(*entries: bytes, flags: int = 0) -> Run:
    return Run([*entries], flags=flags, ledger_id=3, first_entry_id=7)


def published(at_s: float, **fields: Any) -> bytes:
    return entry(encoded_metadata=metadata(publish_time=int(at_s * 1000), **fields))


def test_an_entry_is_followed_from_being_durable_and_from_its_producers_clock() -> None:
    clock, subscriptions = Clock(), [FakeSubscription(), FakeSubscription()]
    before = (DISPATCH.count, DISPATCH.sum_ms, END_TO_END.count, END_TO_END.sum_ms)
    Sampler().follow(run_of(published(49.9)), subscriptions, clock.now, clock)
    for subscription, waited in zip(subscriptions, (0.25, 0.5), strict=True):
        (sample,) = subscription.samples
        assert sample.position == Position(3, 7)
        clock.now = 50.0 + waited
        sample.sent()
    after = (DISPATCH.count, DISPATCH.sum_ms, END_TO_END.count, END_TO_END.sum_ms)
    assert [b - a for a, b in zip(before, after, strict=True)] == pytest.approx([2, 750.0, 2, 950.0])


def test_a_producer_whose_clock_is_ahead_took_no_time() -> None:
    clock, subscription = Clock(), FakeSubscription()
    before = END_TO_END.sum_ms
    Sampler().follow(run_of(published(90.0)), [subscription], clock.now, clock)
    subscription.samples[0].sent()
    assert END_TO_END.sum_ms == before


@pytest.mark.parametrize(
    "run",
    [
        run_of(published(49.0), flags=RUN_MARKER),
        run_of(published(49.0, deliver_at_time=60_000)),
        run_of(b"?"),
    ],
    ids=["a marker", "wanted late", "no message"],
)
def test_what_is_not_delivered_as_it_comes_is_not_followed(run: Run) -> None:
    clock, subscription = Clock(), FakeSubscription()
    Sampler().follow(run, [subscription], clock.now, clock)
    assert not subscription.samples


def test_so_many_a_second_are_followed_and_another_clock_does_not_end_it() -> None:
    sampler, clock = Sampler(), Clock()
    followed = 0
    for step in range(1000):
        now = 1000.0 + step / 1000
        if sampler.due(now):
            followed += 1
            sampler.follow(run_of(published(0)), [], now, clock)
    assert 80 <= followed <= 1 / SAMPLE_EVERY_S
    assert sampler.due(5.0), "a clock that begins anew"


def test_messages_of_a_topic_are_counted_when_published_and_sampled_when_they_go_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(persistent_subscriptions, "SAMPLER", latencies.Sampler())

    async def scenario(made: Topics) -> None:
        topic, peer = await made.load("orders"), ListeningPeer()
        producer = await producer_of(topic, peer)
        subscription, consumer = await subscribed(topic, peer)
        before = [each.count for each in (PUBLISH, DISPATCH, END_TO_END, STORAGE_LATENCY)]
        for number in range(3):
            topic.publishing.publish(producer, sends(entry(), entry(), first=2 * number))
            await until(lambda: producer.pending_runs == 0)
            await asyncio.sleep(SAMPLE_EVERY_S)
        counts = [each.count for each in (PUBLISH, DISPATCH, END_TO_END, STORAGE_LATENCY)]
        published, dispatched, ended, stored = (b - a for a, b in zip(before, counts, strict=True))
        assert published == 6
        assert stored >= 1
        assert (dispatched, ended) == (0, 0), "nothing has gone out"
        subscription.add_permits(consumer, 100)
        await until(lambda: consumer.entries_out == 6)
        assert (DISPATCH.count - before[1], END_TO_END.count - before[2]) == (1, 1), "one at a time"
        topic.publishing.publish(producer, sends(entry(), first=6))
        await until(lambda: consumer.entries_out == 7)
        assert (DISPATCH.count - before[1], END_TO_END.count - before[2]) == (2, 2)

    in_a_broker(scenario)


def test_a_subscription_without_consumers_follows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistent_subscriptions, "SAMPLER", latencies.Sampler())

    async def scenario(made: Topics) -> None:
        topic, peer = await made.load("orders"), ListeningPeer()
        producer = await producer_of(topic, peer)
        subscription, consumer = await subscribed(topic, peer)
        topic.remove_consumer(subscription, consumer)
        topic.publishing.publish(producer, sends(entry()))
        await until(lambda: producer.pending_runs == 0)
        before = DISPATCH.count
        await asyncio.sleep(60)
        _, consumer = await subscribed(topic, peer)
        subscription.add_permits(consumer, 1)
        await until(lambda: consumer.entries_out == 1)
        assert DISPATCH.count == before, "it was durable long before anybody asked for it"

    in_a_broker(scenario)
