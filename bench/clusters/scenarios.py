"""Loads of both clusters and what is asked of each figure: one table, from which everything is reported.

Floors are ratios to Apache's cluster in the same run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.figures import Figure
from bench.loads import AtRate, OneInFlight, Produce, Tail
from bench.scenarios import Scenario

FASTER: Final = 1.5
"""Floor of throughput."""

SOONER: Final = 1 / 3
"""Floor of the median time to an acknowledgement."""

CHEAPER: Final = 1 / 2
"""Floor of CPU a message, all processes together."""

NO_LONGER: Final = 1.0
"""Floor of pauses."""

CPU: Final = Figure("server CPU per million", "s", "lower", floor=CHEAPER)
PUBLISHED_PER_S: Final = 500.0
"""While a process is killed."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything."""

    rounds: int
    seconds: float
    warm_up_seconds: float
    idle_seconds: float
    backlog_batches: int
    backlog_messages: int


FULL: Final = Scale(
    rounds=3,
    seconds=5.0,
    warm_up_seconds=8.0,
    idle_seconds=5.0,
    backlog_batches=5_000,
    backlog_messages=200_000,
)
QUICK: Final = Scale(
    rounds=1,
    seconds=2.0,
    warm_up_seconds=3.0,
    idle_seconds=2.0,
    backlog_batches=1_000,
    backlog_messages=50_000,
)


def paired(scale: Scale) -> list[Scenario]:
    """Loads of the first broker with three bookies."""
    return [
        Scenario(
            "produce-1k",
            "produce 1 KiB unbatched, 1,000 in flight",
            (
                Figure("entries/s", "/s", "higher", floor=FASTER),
                Figure("ack p50", "ms", "lower", floor=SOONER),
                Figure("ack p99", "ms", "lower"),
                CPU,
            ),
            Produce(1_024, seconds=scale.seconds),
        ),
        Scenario(
            "produce-batches",
            "produce batches of 100 x 1 KiB, 100 in flight",
            (
                Figure("MB/s", "MB/s", "higher", floor=FASTER),
                Figure("ack p50", "ms", "lower", floor=SOONER),
                Figure("ack p99", "ms", "lower"),
                CPU,
            ),
            Produce(1_024, batch=100, window=100, seconds=scale.seconds),
        ),
        Scenario(
            "tail-exclusive",
            "produce and consume 1 KiB, Exclusive, cumulative acks",
            (
                Figure("messages/s", "/s", "higher", floor=FASTER),
                Figure("end to end p50", "ms", "lower"),
                CPU,
            ),
            Tail(1_024, "cumulative", seconds=scale.seconds),
        ),
        Scenario(
            "tail-shared",
            "produce and consume 1 KiB, Shared, individual acks",
            (
                Figure("messages/s", "/s", "higher", floor=FASTER),
                Figure("end to end p50", "ms", "lower"),
                CPU,
            ),
            Tail(1_024, "individual", seconds=scale.seconds),
        ),
        Scenario(
            "one-in-flight",
            "produce 1 KiB, one in flight",
            (Figure("ack p50", "ms", "lower", floor=SOONER), Figure("ack p99", "ms", "lower")),
            OneInFlight(1_024, seconds=scale.seconds),
        ),
        Scenario(
            "rate-2000",
            "2,000/s of 1 KiB, consumed at once",
            (
                Figure("ack p50", "ms", "lower", floor=SOONER),
                Figure("ack p99", "ms", "lower"),
                Figure("end to end p50", "ms", "lower"),
                Figure("end to end p99", "ms", "lower"),
                Figure("server CPU", "%", "lower", floor=CHEAPER),
            ),
            AtRate(1_024, rate=2_000, seconds=scale.seconds),
        ),
    ]


def catch_ups(scale: Scale) -> dict[str, tuple[Scenario, int, int]]:
    """Backlogs that are read after a restart by key: the scenario, entries, and messages of each."""
    figures = (
        Figure("MB/s", "MB/s", "higher", floor=FASTER),
        Figure("messages/s", "/s", "higher"),
        CPU,
    )
    batches, single = scale.backlog_batches, scale.backlog_messages
    return {
        "catch-up-batches": (
            Scenario(
                "catch-up-batches",
                f"catch up with {batches:,} batches of 100 x 1 KiB after a restart",
                figures,
            ),
            batches,
            100,
        ),
        "catch-up": (
            Scenario("catch-up", f"catch up with {single:,} x 1 KiB after a restart", figures),
            single,
            1,
        ),
    }


_PAUSE: Final = (
    Figure("longest pause", "ms", "lower", floor=NO_LONGER),
    Figure("longest pause before the kill", "ms", "lower"),
)
START: Final = Scenario(
    "start", "start on empty directories", (Figure("first acknowledged message", "s", "lower"),)
)
IDLE: Final = Scenario(
    "idle",
    "idle after the start, all processes",
    (Figure("idle RSS MB", "MB", "lower"), Figure("idle CPU %", "%", "lower")),
)
KILL_SPARED: Final = Scenario(
    "kill-bookie-spare", "kill -9 of a bookie while a fourth one runs, a publisher at 500/s", _PAUSE
)
AWAY_SECONDS: Final = 30.0
KILL_BOOKIE: Final = Scenario(
    "kill-bookie",
    f"kill -9 of one of three bookies, which is back after {AWAY_SECONDS:g} s, a publisher at 500/s",
    _PAUSE,
)
KILL_BROKER: Final = Scenario("kill-broker", "kill -9 of the broker, a publisher at 500/s", _PAUSE)
AFTER: Final = Scenario(
    "after", "after all the runs above, all processes", (Figure("RSS MB", "MB", "lower"),)
)


def all_scenarios(scale: Scale) -> list[Scenario]:
    """Everything, in the order of the report."""
    caught_up = [scenario for scenario, _, _ in catch_ups(scale).values()]
    return [*paired(scale), *caught_up, KILL_SPARED, KILL_BOOKIE, KILL_BROKER, START, IDLE, AFTER]
