"""One run: every load on both brokers by turns, round by round; then recovery of each alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.brokers import APACHE_PULSAR, MAGNETAR, ApachePulsar, Broker, Magnetar, first_acknowledgement
from bench.progress import Steps
from bench.results import Results
from bench.runner import settle
from bench.target import new_topic
from bench.transactions import recovery
from bench.transactions.program import Program, cycle_figures, program, publish_figures

SETTINGS: Final = {"transactionCoordinatorEnabled": "true"}
WARM_UP_S: Final = 0.5
WINDOW: Final = 1_000
PUBLISHED: Final = 1_000
"""Messages of one transaction where publishing is measured."""

COORDINATOR: Final = "coordinator"
ABORTED: Final = "aborted"
CYCLES: Final = "cycles"
PUBLISHING: Final = "publishing"
RECOVERY: Final = "recovery"
PARTS: Final = (CYCLES, PUBLISHING, RECOVERY)


@dataclass(frozen=True, slots=True)
class Scale:
    """Amounts of each measurement."""

    rounds: int
    seconds: float
    """Duration of a load, in seconds."""
    transactions: int
    """Open and aborted ones in recovery."""
    loads: int
    """How often the topic with aborted transactions is unloaded."""


FULL: Final = Scale(rounds=3, seconds=3.0, transactions=10_000, loads=3)
QUICK: Final = Scale(rounds=1, seconds=1.0, transactions=500, loads=1)


@dataclass(frozen=True, slots=True)
class Load:
    """Words for the program, and how its answer is read."""

    part: str
    key: str
    title: str
    words: Callable[[str, float], Sequence[object]]
    """Takes a topic and seconds."""
    figures: Callable[[Sequence[str], float], dict[str, float]]


INSIDE: Final = "publish-inside"
OUTSIDE: Final = "publish-outside"
_INPUTS_A_SECOND: Final = {1: 3_000, 100: 20_000}


def _cycle(size: int, in_flight: int) -> Load:
    def words(topic: str, seconds: float) -> Sequence[object]:
        inputs = int(_INPUTS_A_SECOND[size] * (seconds + WARM_UP_S))
        return ("cycle", topic, size, in_flight, WARM_UP_S, seconds, inputs)

    title = f"{size} published + {size} acknowledged, {in_flight} in flight"
    return Load(CYCLES, f"cycle-{size}-{in_flight}", title, words, cycle_figures)


def _publish(key: str, title: str, size: int) -> Load:
    def words(topic: str, seconds: float) -> Sequence[object]:
        return ("publish", topic, size, WINDOW, WARM_UP_S, seconds)

    return Load(PUBLISHING, key, title, words, publish_figures)


LOADS: Final = (
    _cycle(1, 1),
    _cycle(1, 16),
    _cycle(100, 1),
    _cycle(100, 16),
    _publish(OUTSIDE, "published outside of transactions", 0),
    _publish(INSIDE, f"published in transactions of {PUBLISHED:,}", PUBLISHED),
)


class Run:
    """A run in progress: the choice of parts, and the results so far."""

    def __init__(self, scale: Scale, results: Results, jars: Path | None, parts: Sequence[str]) -> None:
        """`jars`: Apache Pulsar's, None to measure Magnetar alone."""
        self._scale = scale
        self._results = results
        self._jars = jars
        self._parts = parts
        self._names = [MAGNETAR] if jars is None else [MAGNETAR, APACHE_PULSAR]
        self._loads = [load for load in LOADS if load.part in parts]

    def step_count(self) -> int:
        """Steps that `execute` begins."""
        rounds = len(self._names) * (1 + self._scale.rounds * len(self._loads)) if self._loads else 0
        return rounds + (2 * len(self._names) if RECOVERY in self._parts else 0)

    def execute(self, steps: Steps) -> None:
        """Measure. Processes that it started have ended when it returns or raises."""
        if self._loads:
            self._rounds(steps)
        if RECOVERY in self._parts:
            for name in self._names:
                self._recovery(name, steps)

    def _rounds(self, steps: Steps) -> None:
        with contextlib.ExitStack() as stack:
            programs: dict[str, Program] = {}
            for name in self._names:
                steps.begin(f"start and warm-up: {name}")
                broker = self._broker(name)
                stack.callback(broker.stop)
                first_acknowledgement(broker)
                programs[name] = stack.enter_context(program(broker.target))
            for load in self._loads:  # the JVMs compile as they go
                for client in programs.values():
                    client.run(*load.words(new_topic(), self._scale.seconds / 2))
            for number in range(self._scale.rounds):
                self._results.load_averages.append(os.getloadavg()[0])
                for position, load in enumerate(self._loads):
                    for name in self._turns(number + position):
                        steps.begin(f"round {number + 1}: {load.title}: {name}")
                        settle()
                        answer = programs[name].run(*load.words(new_topic(), self._scale.seconds))
                        self._results.add(load.key, name, load.figures(*answer))

    def _turns(self, number: int) -> list[str]:
        return self._names[::-1] if number % 2 else self._names

    def _recovery(self, name: str, steps: Steps) -> None:
        count = self._scale.transactions
        self._results.load_averages.append(os.getloadavg()[0])
        steps.begin(f"recovery of a coordinator with {count:,} open transactions: {name}")
        broker = self._broker(name)
        try:
            self._attempt(COORDINATOR, name, lambda: [recovery.coordinator(broker, count)])
            steps.begin(f"load of a topic with {count:,} aborted transactions: {name}")
        finally:
            broker.stop()
        broker = self._broker(name)
        try:
            first_acknowledgement(broker)
            self._attempt(ABORTED, name, lambda: recovery.aborted(broker.target, count, self._scale.loads))
        finally:
            broker.stop()

    def _attempt(self, key: str, name: str, measure: Callable[[], list[dict[str, float]]]) -> None:
        try:
            for figures in measure():
                self._results.add(key, name, figures)
        except Exception as error:
            # One part that fails is a result too; the others are still worth having.
            self._results.failures.append(f"{key}: {name}: {type(error).__name__}: {error}")

    def _broker(self, name: str) -> Broker:
        if name == MAGNETAR:
            return Magnetar(dict(SETTINGS))
        assert self._jars is not None
        return ApachePulsar(self._jars, SETTINGS)
