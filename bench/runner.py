"""One run of the benchmark: both brokers side by side, each scenario on both by turns, round by round."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from bench.admin_scale import AdminScale
from bench.brokers import APACHE_PULSAR, MAGNETAR, ApachePulsar, Broker, Magnetar, first_acknowledgement
from bench.figures import histogram_quantile
from bench.footprint import idle
from bench.loads import IdleTopics, MakeHoles, Measure, Measured, Produce, RestoreHoles, Tail
from bench.progress import Steps
from bench.results import Results
from bench.scenarios import (
    ADMIN_SCALE,
    AFTER,
    HOLES,
    IDLE,
    IDLE_TOPICS,
    LOOP_LAG,
    START,
    Scale,
    Scenario,
    paired_scenarios,
)
from bench.target import Target, new_topic

LOAD_SECONDS_MAX: Final = 600.0
SETTLE_SECONDS: Final = 1.0
STOP_SECONDS_MAX: Final = 70.0
"""Longer than the server's own limit (brokerShutdownTimeoutMs): fifty thousand topics are closed in it."""


def run_apart(measure: Measure, target: Target) -> Measured:
    """Run a load in a fresh process, so that no load inherits memory, garbage or threads of another."""
    context = get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_run_here, args=(sending, measure, target), daemon=True)
    process.start()
    sending.close()
    try:
        if not receiving.poll(LOAD_SECONDS_MAX):
            raise TimeoutError(f"not finished within {LOAD_SECONDS_MAX:g} s")
        outcome: Measured | Exception = receiving.recv()
    finally:
        process.kill()
        process.join()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _run_here(outcome: Connection, measure: Measure, target: Target) -> None:
    gc.disable()
    try:
        outcome.send(measure(target))
    except Exception as error:
        outcome.send(error)


def settle() -> None:
    """Writes the page cache of the run before, so that the next does not pay for it."""
    os.sync()
    time.sleep(SETTLE_SECONDS)


class Run:
    """The state of one run: what was chosen, the brokers, and the results so far."""

    def __init__(
        self,
        scale: Scale,
        results: Results,
        jars: Path | None,
        only: frozenset[str],
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        """`only`: the loads to measure, all when empty; `left_out`: those that cannot be measured here."""
        self.scale = scale
        self.results = results
        possible = [one for one in paired_scenarios(scale) if one.key not in left_out]
        self.paired = [one for one in possible if not only or one.key in only]
        self.alone = [one for one in (IDLE_TOPICS, ADMIN_SCALE, HOLES) if not only or one.key in only]
        self.starts = scale.starts if not only or {START.key, IDLE.key} & only else 1
        self._only = only
        self._make: dict[str, Callable[[], Broker]] = {MAGNETAR: Magnetar}
        if jars is not None:
            self._make[APACHE_PULSAR] = lambda: ApachePulsar(jars)
        self._brokers: dict[str, Broker] = {}
        self._lag: dict[float, float] = {}

    def step_count(self) -> int:
        each = len(self._make)
        paired = self.starts * each + 1 + each + self.scale.rounds * len(self.paired) * each
        alone = sum(1 if scenario is ADMIN_SCALE else 2 for scenario in self.alone)
        return (paired if self.paired else 0) + alone

    def execute(self, steps: Steps) -> None:
        try:
            if self.paired:
                self._start(steps)
                self._idle(steps)
                self._warm_up(steps)
                for number in range(self.scale.rounds):
                    self._round(number, steps)
                self._after()
        finally:
            self._stop_all()
        for scenario in self.alone:
            self._attempt(scenario, MAGNETAR, steps, partial(self._measure_alone, scenario, steps))

    def _start(self, steps: Steps) -> None:
        for number in range(self.starts):
            self._stop_all()
            for name, make in self._make.items():
                steps.begin(f"start {number + 1}: {name}")
                settle()
                broker = self._brokers[name] = make()
                seconds = first_acknowledgement(broker)
                self._add_if_wanted(START, name, {START.figures[0].key: seconds})

    def _add_if_wanted(self, scenario: Scenario, name: str, figures: dict[str, float]) -> None:
        """Figures of what every run does; one of some loads tells those of these only."""
        if not self._only or scenario.key in self._only:
            self.results.add(scenario.key, name, figures)

    def _idle(self, steps: Steps) -> None:
        steps.begin("both idle")
        time.sleep(self.scale.idle_seconds)
        for name, broker in self._brokers.items():
            self._add_if_wanted(IDLE, name, idle(broker.target, self.scale.idle_seconds))

    def _warm_up(self, steps: Steps) -> None:
        """For the JVM's compilers, and for equal treatment the other too."""
        seconds = self.scale.warm_up_seconds
        for name, broker in self._brokers.items():
            steps.begin(f"warm-up: {name}")
            for load in (
                Produce(100, seconds=seconds),
                Produce(1_024, batch=100, window=100, seconds=seconds / 2),
                Tail(1_024, "cumulative", seconds=seconds),
                Tail(1_024, "individual", seconds=seconds / 2),
            ):
                run_apart(load, broker.target)

    def _round(self, number: int, steps: Steps) -> None:
        self.results.load_averages.append(os.getloadavg()[0])
        for position, scenario in enumerate(self.paired):
            names = list(self._brokers)
            if (number + position) % 2:
                names.reverse()
            for name in names:
                steps.begin(f"round {number + 1}: {scenario.title}: {name}")
                self._attempt(scenario, name, steps, partial(self._measure_paired, scenario, name))

    def _attempt(self, scenario: Scenario, name: str, steps: Steps, measure: Callable[[], None]) -> None:
        try:
            measure()
        except Exception as error:
            # One load that fails is a result too; the others are still worth having.
            told = [type(error).__name__, *str(error).split("\n")]
            failure = f"{scenario.title}: {name}: {': '.join(dict.fromkeys((*told[:2], told[-1].strip())))}"
            self.results.failures.append(failure)
            steps.say(f"failed: {failure}")

    def _measure_paired(self, scenario: Scenario, name: str) -> None:
        assert scenario.measure is not None
        target = self._brokers[name].target
        settle()
        lag_is_of_interest = scenario.full_load and name == MAGNETAR
        before = target.loop_lag_buckets() if lag_is_of_interest else {}
        measured = run_apart(scenario.measure, target)
        self.results.add(scenario.key, name, measured.figures)
        self.results.add_curves(scenario.key, name, measured.curves)
        if lag_is_of_interest:
            for bound, count in target.loop_lag_buckets().items():
                self._lag[bound] = self._lag.get(bound, 0.0) + count - before.get(bound, 0.0)

    def _after(self) -> None:
        for name, broker in self._brokers.items():
            self._add_if_wanted(AFTER, name, {AFTER.figures[0].key: broker.target.rss_bytes() / 1e6})
        if self._lag:
            buckets = sorted(self._lag.items())
            self.results.add(
                LOOP_LAG.key,
                MAGNETAR,
                {"lag p99": histogram_quantile(buckets, 0.99) * 1000, "observations": buckets[-1][1]},
            )

    def _measure_alone(self, scenario: Scenario, steps: Steps) -> None:
        settle()
        broker = Magnetar()
        try:
            broker.server.start()
            if scenario is IDLE_TOPICS:
                self._measure_idle_topics(broker, steps)
            elif scenario is ADMIN_SCALE:
                self._measure_admin_scale(broker, steps)
            else:
                self._measure_holes(broker, steps)
        finally:
            broker.stop()

    def _measure_idle_topics(self, broker: Magnetar, steps: Steps) -> None:
        load = IdleTopics(new_topic(), self.scale.idle_topics)
        steps.begin(f"{load.topics:,} idle topics: make them")
        made = run_apart(load, broker.target).figures
        steps.begin(f"{load.topics:,} idle topics: restart and load them")
        broker.server.stop(STOP_SECONDS_MAX)
        broker.server.start()
        loaded = run_apart(load, broker.target).figures
        self.results.add(
            IDLE_TOPICS.key,
            MAGNETAR,
            {
                "bytes per topic": made["bytes per topic"],
                "made a second": made["topics/s"],
                "CPU to make one": made["CPU per topic"],
                "loaded a second": loaded["topics/s"],
                "CPU to load one": loaded["CPU per topic"],
                "bytes per topic, loaded after a restart": loaded["bytes per topic"],
            },
        )

    def _measure_admin_scale(self, broker: Magnetar, steps: Steps) -> None:
        load = AdminScale(self.scale.admin_topics, self.scale.admin_topics // 10, self.scale.seconds)
        steps.begin(f"{load.topics:,} topics: figures of them")
        self.results.add(ADMIN_SCALE.key, MAGNETAR, run_apart(load, broker.target).figures)

    def _measure_holes(self, broker: Magnetar, steps: Steps) -> None:
        topic = new_topic()
        steps.begin(f"{self.scale.holes:,} holes: make them")
        run_apart(MakeHoles(topic, self.scale.holes), broker.target)
        steps.begin(f"{self.scale.holes:,} holes: restart")
        broker.server.stop(STOP_SECONDS_MAX)
        started = time.perf_counter()
        broker.server.start()
        up = time.perf_counter() - started
        restored = run_apart(RestoreHoles(topic), broker.target).figures
        self.results.add(
            HOLES.key,
            MAGNETAR,
            {
                "holes": backlog(broker.target, topic),
                "lookup to first message": restored["to first message"],
                "start to first message": up + restored["to first message"],
            },
        )

    def _stop_all(self) -> None:
        for broker in self._brokers.values():
            broker.stop()
        self._brokers.clear()


def backlog(target: Target, topic: str) -> float:
    """Entries that the subscription `bench` of a topic has not acknowledged, as its broker counts them."""
    for line in target.metrics().splitlines():
        if line.startswith("pulsar_subscription_back_log{") and f'topic="{topic}"' in line:
            return float(line.rpartition(" ")[2])
    raise RuntimeError(f"no backlog of {topic} on the metrics page")
