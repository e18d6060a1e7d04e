"""Loads of the comparison, the generator's command line for each, and the figures that its output gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from bench.brokers import MAGNETAR
from bench.figures import Figure

NATS: Final = "NATS"
KAFKA: Final = "Kafka"
SERVERS: Final = (MAGNETAR, NATS, KAFKA)
START: Final = "start"
IDLE: Final = "idle"
ONE_IN_FLIGHT: Final = "one-in-flight"
DRAIN: Final = "drain"

NATS_FILL_BATCH: Final = 100
QUICK_SHARE: Final = 10
"""Share of the messages that `--quick` and a warm-up send: one in so many."""


@dataclass(frozen=True, slots=True)
class Load:
    """One load; `phase` is the one whose rate and latency count."""

    key: str
    title: str
    phase: Literal["produce", "consume"]
    figures: tuple[Figure, ...]
    messages: int
    mode: Literal["produce", "both", "backlog"] = "produce"
    size: int = 1_024
    window: int = 1_000
    queue: int = 1_000
    """Messages that the consumer asks for ahead."""
    each_synced: int = 0
    """Messages against a server that syncs each of them by itself; 0: as many as for others."""
    share: bool = False
    """Kafka's share groups in the place of its consumer groups."""
    servers: tuple[str, ...] = SERVERS


RATE: Final = Figure("messages/s", "/s")
CPU: Final = Figure("server CPU per million", "s", "lower")
P50: Final = Figure("ack p50", "ms", "lower")
P99: Final = Figure("ack p99", "ms", "lower")
END_TO_END: Final = Figure("end to end p50", "ms", "lower")
_PRODUCED: Final = (RATE, CPU)
_CONSUMED: Final = (RATE, END_TO_END, CPU)
_QUEUES: Final = (MAGNETAR, KAFKA)

LOADS: Final = (
    Load(
        "produce-100b",
        "produce 100 B, 1,000 in flight",
        "produce",
        _PRODUCED,
        400_000,
        size=100,
        each_synced=15_000,
    ),
    Load("produce-1k", "produce 1 KiB, 1,000 in flight", "produce", _PRODUCED, 300_000, each_synced=15_000),
    Load(ONE_IN_FLIGHT, "produce 100 B, one in flight", "produce", (P50, P99), 3_000, size=100, window=1),
    Load(
        "tail",
        "produce and consume 1 KiB, explicit acks",
        "consume",
        _CONSUMED,
        200_000,
        mode="both",
        each_synced=12_000,
    ),
    Load(
        DRAIN,
        "drain a backlog of 1 KiB, explicit acks",
        "consume",
        (RATE,),
        300_000,
        mode="backlog",
        queue=5_000,
    ),
    Load(
        "queue-tail",
        "produce and consume 1 KiB; Kafka: share group",
        "consume",
        _CONSUMED,
        100_000,
        mode="both",
        share=True,
        servers=_QUEUES,
    ),
    Load(
        "queue-drain",
        "drain a backlog of 1 KiB; Kafka: share group",
        "consume",
        (RATE,),
        100_000,
        mode="backlog",
        share=True,
        servers=_QUEUES,
    ),
)
STARTS: Final = (
    Load(
        START,
        "start on empty data to the first acknowledgement",
        "produce",
        (Figure("start", "s", "lower"),),
        1,
    ),
    Load(IDLE, "idle", "produce", (Figure("resident memory", "MB", "lower"),), 0),
)
"""Measured at each start, without a generator's load."""


def arguments(load: Load, server: str, *, synced: bool, quick: bool) -> list[str]:
    """The generator's arguments but the address."""
    each_synced = synced and server == NATS
    messages = load.each_synced if each_synced and load.each_synced else load.messages
    if quick:
        messages = max(1_000, messages // QUICK_SHARE)
    words = ["-peer", server.lower(), "-mode", load.mode, "-size", str(load.size), "-queue", str(load.queue)]
    if each_synced and load.mode == "backlog":
        # An atomic batch takes one sync; how the backlog was filled does not matter to its reader.
        words += ["-batch", str(NATS_FILL_BATCH), "-window", "20", "-n", str(messages // NATS_FILL_BATCH)]
    else:
        words += ["-window", str(load.window), "-n", str(messages)]
    if server == KAFKA:
        words += ["-flush1"] * synced + ["-share"] * load.share
    return words


def figures_of(load: Load, output: str, cpu_seconds: float) -> Mapping[str, float]:
    """Figures by name of what the generator printed. Raises ValueError when the phase is not in it."""
    phases = {line["phase"]: line for line in map(json.loads, output.splitlines())}
    if load.phase not in phases:
        raise ValueError(f"the generator printed no figures of {load.phase}")
    of = phases[load.phase]
    found = {
        RATE.key: of["messages"] / of["seconds"],
        CPU.key: cpu_seconds / of["messages"] * 1e6,
        P50.key: of["p50"],
        P99.key: of["p99"],
        END_TO_END.key: of["p50"],
    }
    return {figure.key: found[figure.key] for figure in load.figures}
