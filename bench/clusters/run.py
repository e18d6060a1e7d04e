"""One run: both clusters up, each load on both by turns, round by round."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from bench.clusters.apache import apache_side
from bench.clusters.backlog import Backlog, CatchUp
from bench.clusters.kills import BEFORE_S, Kill
from bench.clusters.magnetar import magnetar_side
from bench.clusters.processes import Process
from bench.clusters.scenarios import (
    AFTER,
    AWAY_SECONDS,
    IDLE,
    KILL_BOOKIE,
    KILL_BROKER,
    KILL_SPARED,
    PUBLISHED_PER_S,
    START,
    Scale,
    catch_ups,
    paired,
)
from bench.clusters.side import Side
from bench.footprint import idle
from bench.loads import Produce, Tail
from bench.progress import Steps
from bench.results import Results
from bench.runner import run_apart, settle
from bench.scenarios import Scenario
from bench.target import new_topic
from tests.integration.harness import temporary_directory

Measure = Callable[[Side, Steps], dict[str, float]]

RESULTS_KIND: Final = "cluster"
"""How the names of the files with results begin."""

FAILURE_LINES: Final = 2


class Run:
    """The clusters, what is measured of them, and the results so far."""

    def __init__(self, scale: Scale, results: Results, jars: Path | None, only: frozenset[str]) -> None:
        """`only`: the loads to measure, all when empty; without `jars` Magnetar is measured alone."""
        self.scale = scale
        self.results = results
        self._jars = jars
        self._only = only
        self._sides: dict[str, Side] = {}
        self._loads = [(one, measure) for one, measure in self._all() if not only or one.key in only]

    def step_count(self) -> int:
        sides = 1 if self._jars is None else 2
        return sides * (2 + self.scale.rounds * len(self._loads)) + 1

    def execute(self, steps: Steps) -> None:
        """Measure everything; no process that was started outlives it."""
        try:
            self._start(steps)
            steps.begin("both idle")
            time.sleep(self.scale.idle_seconds)
            for name, side in self._sides.items():
                self.results.add(IDLE.key, name, idle(side.target, self.scale.idle_seconds))
            for name, side in self._sides.items():
                steps.begin(f"warm-up: {name}")
                self._warm_up(side)
            for number in range(self.scale.rounds):
                self._round(number, steps)
                self.results.save(RESULTS_KIND)  # a long run that is interrupted later keeps these
            for name, side in self._sides.items():
                self.results.add(AFTER.key, name, {AFTER.figures[0].key: side.target.rss_bytes() / 1e6})
        finally:
            for side in self._sides.values():
                side.remove()

    def _all(self) -> list[tuple[Scenario, Measure]]:
        return [
            *((one, partial(_measure_load, one)) for one in paired(self.scale)),
            *(
                (one, partial(_measure_catch_up, entries, batch))
                for one, entries, batch in catch_ups(self.scale).values()
            ),
            (KILL_SPARED, _measure_spared_kill),
            (KILL_BOOKIE, _measure_bookie_kill),
            (KILL_BROKER, _measure_broker_kill),
        ]

    def _start(self, steps: Steps) -> None:
        makers = [magnetar_side]
        if self._jars is not None:
            makers.append(partial(apache_side, jars=self._jars))
        for make in makers:
            side = make(temporary_directory())
            self._sides[side.name] = side
            steps.begin(f"start: {side.name}")
            began = time.perf_counter()
            side.start(steps.say)
            self.results.add(START.key, side.name, {START.figures[0].key: time.perf_counter() - began})

    def _warm_up(self, side: Side) -> None:
        """For the JVMs' compilers, and for equal treatment the other too."""
        seconds = self.scale.warm_up_seconds
        for load in (
            Produce(1_024, seconds=seconds),
            Produce(1_024, batch=100, window=100, seconds=seconds / 2),
            Tail(1_024, "cumulative", seconds=seconds),
            Tail(1_024, "individual", seconds=seconds / 2),
        ):
            run_apart(load, side.target)

    def _round(self, number: int, steps: Steps) -> None:
        self.results.load_averages.append(os.getloadavg()[0])
        for position, (scenario, measure) in enumerate(self._loads):
            names = list(self._sides)
            if (number + position) % 2:
                names.reverse()
            for name in names:
                steps.begin(f"round {number + 1}: {scenario.title}: {name}")
                self._attempt(scenario, name, measure, steps)

    def _attempt(self, scenario: Scenario, name: str, measure: Measure, steps: Steps) -> None:
        side = self._sides[name]
        try:
            figures = measure(side, steps)
        except Exception as error:
            # One load that fails is a result too; the others are still worth having.
            told = [type(error).__name__, *str(error).split("\n")[:FAILURE_LINES]]
            failure = f"{scenario.title}: {name}: {': '.join(told)}"
            self.results.failures.append(failure)
            steps.say(f"failed: {failure}")
            steps.say("\n".join(one.log_tail() for one in side.processes if not one.running))
            side.serve(steps.say)
            return
        self.results.add(scenario.key, name, figures)


def _measure_load(scenario: Scenario, side: Side, steps: Steps) -> dict[str, float]:
    assert scenario.measure is not None
    side.check()
    settle()
    return run_apart(scenario.measure, side.target).figures


def _measure_catch_up(entries: int, batch: int, side: Side, steps: Steps) -> dict[str, float]:
    backlog = Backlog(new_topic(), 1_024, entries, batch)
    run_apart(backlog, side.target)
    side.restart_cold(steps.say)
    settle()
    return run_apart(CatchUp(backlog), side.target).figures


def _measure_spared_kill(side: Side, steps: Steps) -> dict[str, float]:
    side.add_spare_bookies()
    settle()
    try:
        return run_apart(_bookie_kill(side), side.target).figures
    finally:
        side.serve(steps.say)


def _measure_bookie_kill(side: Side, steps: Steps) -> dict[str, float]:
    """Where no bookie can replace it, the killed one comes back: a cluster may wait for that."""
    settle()
    back = threading.Timer(AWAY_SECONDS + BEFORE_S, _launch_again, [side.bookies[0]])
    back.start()
    try:
        return run_apart(_bookie_kill(side), side.target).figures
    finally:
        back.cancel()
        back.join()
        side.serve(steps.say)


def _bookie_kill(side: Side) -> Kill:
    return Kill(side.brokers[0].endpoint.service_url, PUBLISHED_PER_S, bookie_pid=side.bookies[0].pid)


def _launch_again(bookie: Process) -> None:
    if not bookie.running:
        bookie.launch()


def _measure_broker_kill(side: Side, steps: Steps) -> dict[str, float]:
    side.add_broker()
    settle()
    pids = tuple((one.endpoint.service_url, one.pid) for one in side.brokers)
    try:
        return run_apart(Kill(side.service_url, PUBLISHED_PER_S, broker_pids=pids), side.target).figures
    finally:
        side.serve(steps.say)
