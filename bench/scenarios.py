"""Scenarios and the target of each figure: one table, from which everything is reported.

Floors and aims are ratios to Apache Pulsar standalone in the same run, unless they say that they are of the
value itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.delayed import Delayed
from bench.figures import Figure
from bench.java_client import JavaProduce
from bench.key_shared import TailKeyShared
from bench.loads import AtRate, Drain, DrainTopics, Measure, OneInFlight, Produce, Tail
from bench.random_acks import RandomAcks

SERVER_CPU: Final = Figure("server CPU per million", "s", "lower")
JAVA: Final = (("java-unbatched", "unbatched", False), ("java-batched", "batched", True))
"""Loads of the Java client, which runs only where there is one: key, how, whether it batches (by default)."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything: for figures to publish, or for a look within minutes."""

    rounds: int
    starts: int
    seconds: float
    backlog: int
    backlog_topics: int
    idle_topics: int
    admin_topics: int
    holes: int
    random_acks: int
    delayed: int
    delayed_lead_seconds: float
    """From publishing to the first message that is due: within it a slow broker has all of them."""
    idle_seconds: float
    warm_up_seconds: float
    jvm_seconds: float
    """Each program of the Java client is warmed up for so long, too."""


FULL: Final = Scale(
    rounds=3,
    starts=3,
    seconds=5.0,
    backlog=200_000,
    backlog_topics=1_000,
    idle_topics=50_000,
    admin_topics=10_000,
    holes=1_000_000,
    random_acks=1_000_000,
    delayed=100_000,
    delayed_lead_seconds=12.0,
    idle_seconds=10.0,
    warm_up_seconds=8.0,
    jvm_seconds=5.0,
)
QUICK: Final = Scale(
    rounds=1,
    starts=1,
    seconds=2.0,
    backlog=50_000,
    backlog_topics=250,
    idle_topics=2_000,
    admin_topics=1_000,
    holes=50_000,
    random_acks=50_000,
    delayed=10_000,
    delayed_lead_seconds=4.0,
    idle_seconds=3.0,
    warm_up_seconds=3.0,
    jvm_seconds=3.0,
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load and the figures taken from it."""

    key: str
    title: str
    figures: tuple[Figure, ...]
    measure: Measure | None = None
    """The load that every round runs against each broker; None when the run itself takes the figures."""
    full_load: bool = False
    """The event loop's lag is taken while it runs."""


def paired_scenarios(scale: Scale) -> list[Scenario]:
    """The figures that each round measures on both brokers, by turns."""
    return [
        Scenario(
            "produce-100b",
            "produce 100 B unbatched, 1,000 in flight",
            (
                Figure("entries/s", "/s", "higher", floor=2.5, aim=4.0),
                Figure("ack p99", "ms", "lower"),
                SERVER_CPU,
            ),
            Produce(100, seconds=scale.seconds),
            full_load=True,
        ),
        Scenario(
            "produce-1k",
            "produce 1 KiB unbatched, 1,000 in flight",
            (
                Figure("entries/s", "/s", "higher", floor=1.8, aim=2.5),
                Figure("ack p99", "ms", "lower"),
                SERVER_CPU,
            ),
            Produce(1_024, seconds=scale.seconds),
            full_load=True,
        ),
        Scenario(
            "produce-batches",
            "produce batches of 100 x 1 KiB, 100 in flight",
            (
                Figure("MB/s", "MB/s", "higher", floor=1.3, aim=1.8),
                Figure("ack p99", "ms", "lower"),
                SERVER_CPU,
            ),
            Produce(1_024, batch=100, window=100, seconds=scale.seconds),
            full_load=True,
        ),
        Scenario(
            "one-in-flight",
            "produce 1 KiB, one in flight",
            (Figure("ack p50", "ms", "lower", floor=1 / 12, aim=1 / 20), Figure("ack p99", "ms", "lower")),
            OneInFlight(1_024, seconds=scale.seconds),
        ),
        Scenario(
            "rate-2000",
            "2,000/s of 1 KiB, consumed at once",
            (
                Figure("ack p50", "ms", "lower", floor=1 / 6),
                Figure("ack p99", "ms", "lower", floor=1 / 4),
                Figure("end to end p50", "ms", "lower", floor=1 / 12),
                Figure("end to end p99", "ms", "lower"),
                Figure("generator lag p99", "ms", "lower"),
            ),
            AtRate(1_024, rate=2_000, seconds=scale.seconds),
        ),
        Scenario(
            "tail-exclusive",
            "produce and consume 1 KiB, Exclusive, cumulative acks",
            (
                Figure("messages/s", "/s", "higher", floor=2.0, aim=3.0),
                Figure("end to end p50", "ms", "lower", floor=1 / 10),
                Figure("server CPU per million", "s", "lower", floor=1 / 4, aim=1 / 8),
            ),
            Tail(1_024, "cumulative", seconds=scale.seconds),
            full_load=True,
        ),
        Scenario(
            "tail-shared",
            "produce and consume 1 KiB, Shared, individual acks",
            (
                Figure("messages/s", "/s", "higher", floor=2.0, aim=3.0),
                Figure("end to end p50", "ms", "lower"),
                SERVER_CPU,
            ),
            Tail(1_024, "individual", seconds=scale.seconds),
            full_load=True,
        ),
        Scenario(
            "drain",
            f"drain a backlog of {scale.backlog:,} x 1 KiB",
            (Figure("messages/s", "/s", "higher", floor=4.0, aim=7.0), SERVER_CPU),
            Drain(1_024, scale.backlog),
            full_load=True,
        ),
        Scenario(
            "drain-topics",
            f"the same, interleaved over {scale.backlog_topics:,} topics",
            (Figure("messages/s", "/s", "higher", floor=2.0, aim=3.0), SERVER_CPU),
            DrainTopics(1_024, scale.backlog_topics, scale.backlog // scale.backlog_topics),
        ),
        Scenario(
            "key-shared",
            "produce and consume 1 KiB, Key_Shared, 1,000 keys, four consumers",
            (Figure("messages/s", "/s", "higher", floor=2.0), SERVER_CPU),
            TailKeyShared(1_024, keys=1_000, consumers=4, seconds=scale.seconds),
            full_load=True,
        ),
        Scenario(
            "random-acks",
            f"acknowledge {scale.random_acks:,} messages one by one, in random order",
            (
                Figure("seconds", "s", "lower", floor=1 / 2),
                Figure("last receipt", "s", "lower"),
                Figure("peak RSS MB", "MB", "lower", floor=1 / 2),
                Figure("extra MB", "MB", "lower"),
                SERVER_CPU,
            ),
            RandomAcks(scale.random_acks),
        ),
        Scenario(
            "delayed",
            f"{scale.delayed:,} delayed messages, due at 10,000/s",
            (
                Figure("lateness p50", "ms", "lower"),
                Figure("lateness p99", "ms", "lower", floor=50.0, of="value"),
                Figure("earliest", "ms", "lower"),
                SERVER_CPU,
            ),
            Delayed(scale.delayed, lead_seconds=scale.delayed_lead_seconds),
        ),
        *(_java_scenario(key, how, batching=batching, scale=scale) for key, how, batching in JAVA),
    ]


def _java_scenario(key: str, how: str, *, batching: bool, scale: Scale) -> Scenario:
    return Scenario(
        key,
        f"produce 1 KiB {how}, 1,000 in flight, by Apache's Java client",
        (
            Figure("messages/s", "/s", "higher"),
            Figure("ack p50", "ms", "lower"),
            Figure("ack p99", "ms", "lower"),
            SERVER_CPU,
        ),
        JavaProduce(1_024, batching, seconds=scale.seconds, warm_up_seconds=scale.jvm_seconds),
    )


START: Final = Scenario(
    "start",
    "start on an empty directory",
    (Figure("first acknowledged message", "s", "lower", floor=1 / 5, aim=1 / 10),),
)
IDLE: Final = Scenario(
    "idle",
    "idle after the start",
    (
        Figure("idle RSS MB", "MB", "lower", floor=1 / 10),
        Figure("idle CPU %", "%", "lower", floor=1.0, of="value"),
    ),
)
AFTER: Final = Scenario("after", "after all the runs above", (Figure("RSS MB", "MB", "lower", floor=1 / 8),))
LOOP_LAG: Final = Scenario(
    "loop-lag", "event loop, while at full load", (Figure("lag p99", "ms", "lower", floor=5.0, of="value"),)
)
IDLE_TOPICS: Final = Scenario(
    "idle-topics",
    "an idle topic with one subscription",
    (
        Figure("bytes per topic", "B", "lower", floor=8_192, of="value"),
        Figure("made a second", "/s", "higher", floor=1_000, of="value"),
        Figure("CPU to make one", "ms", "lower"),
        Figure("loaded a second", "/s", "higher", floor=3_000, of="value"),
        Figure("CPU to load one", "ms", "lower", floor=2.0, of="value"),
        Figure("bytes per topic, loaded after a restart", "B", "lower", floor=8_192, of="value"),
    ),
)
ADMIN_SCALE: Final = Scenario(
    "admin-scale",
    "figures of ten thousand topics with a subscription each, and a thousand partitions",
    (
        Figure("topics", "", "higher"),
        Figure("pages", "s", "lower", floor=2.0, of="value"),
        Figure("call by call", "s", "lower"),
        Figure("partitioned stats", "s", "lower", floor=2.0, of="value"),
        Figure("broker stats", "s", "lower", floor=2.0, of="value"),
        Figure("scrape", "s", "lower", floor=1.0, of="value"),
        Figure("longest alone", "ms", "lower"),
        Figure("p99.9 alone", "ms", "lower"),
        Figure("longest while scraped", "ms", "lower"),
        Figure("p99.9 while scraped", "ms", "lower"),
        Figure("stalled while scraped", "ms", "lower", floor=5.0, of="value"),
        Figure("longest while paged", "ms", "lower"),
        Figure("p99.9 while paged", "ms", "lower"),
        Figure("stalled while paged", "ms", "lower", floor=5.0, of="value"),
    ),
)
HOLES: Final = Scenario(
    "holes",
    "a restart with unacknowledged holes",
    (
        Figure("holes", "", "higher"),
        Figure("lookup to first message", "s", "lower", floor=1.0, of="value"),
        Figure("start to first message", "s", "lower"),
    ),
)


def all_scenarios(scale: Scale) -> list[Scenario]:
    """Everything, in the order of the report."""
    return [*paired_scenarios(scale), START, IDLE, AFTER, LOOP_LAG, IDLE_TOPICS, ADMIN_SCALE, HOLES]
