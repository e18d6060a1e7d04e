"""One run of the comparison: the servers, each load on all of them by turns, round by round."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.brokers import MAGNETAR, Broker, Magnetar
from bench.peers.loads import IDLE, KAFKA, LOADS, NATS, START, STARTS, Load, arguments, figures_of
from bench.peers.programs import Programs
from bench.peers.servers import kafka, nats
from bench.progress import Steps
from bench.results import Results
from bench.runner import settle

LOAD_SECONDS_MAX: Final = 300.0
"""Longer than the generator waits for a server that starts."""
IDLE_SECONDS: Final = 4.0
"""From the first acknowledgement to the look at the resident memory."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server with or without a sync before each acknowledgement."""

    server: str
    synced: bool

    @property
    def label(self) -> str:
        return f"{self.server}, {'synced' if self.synced else 'not synced'}"

    @property
    def process(self) -> Contestant:
        """The contestant whose process it uses: topics of one Kafka differ."""
        return Contestant(KAFKA, True) if self.server == KAFKA else self


def group(load: str, *, synced: bool) -> str:
    """The key under which the results keep a load's figures."""
    return f"{load}, {'synced' if synced else 'not synced'}"


def contestants(programs: Programs) -> dict[Contestant, Callable[[], Broker]]:
    """Contestants that can be measured here, with the functions that make their processes."""
    made: dict[Contestant, Callable[[], Broker]] = {}
    for synced in (True, False):
        settings = {} if synced else {"journalSyncData": "false"}
        made[Contestant(MAGNETAR, synced)] = partial(Magnetar, settings)
        if isinstance(programs.nats, Path):
            made[Contestant(NATS, synced)] = partial(nats, programs.nats, synced=synced)
        if isinstance(programs.kafka, Path):
            made[Contestant(KAFKA, synced)] = partial(kafka, programs.kafka)
    return made


def order(sides: Sequence[Contestant], number: int) -> list[Contestant]:
    """Forward in even rounds, backward in odd ones: what comes first does not stay first."""
    return list(sides if number % 2 == 0 else reversed(sides))


class Run:
    """The chosen loads, the processes, and the results so far."""

    def __init__(
        self, programs: Programs, results: Results, *, rounds: int, starts: int, only: frozenset[str]
    ) -> None:
        """`only`: keys of the loads to measure; all when empty."""
        assert isinstance(programs.generator, Path), "there is no generator"
        self._generator = programs.generator
        self._results = results
        self._rounds = rounds
        self._make = contestants(programs)
        self._loads = [load for load in LOADS if not only or load.key in only]
        counted = not only or {START, IDLE} & only
        self._counted = [load.key for load in STARTS if not only or load.key in only]
        self._starts = starts if counted else 1
        self._running: dict[Contestant, Broker] = {}

    def step_count(self) -> int:
        starts = sum(len(self._processes(number)) for number in range(self._starts))
        return starts + (self._rounds + 1) * sum(len(self._sides(load)) for load in self._loads)

    def execute(self, steps: Steps) -> None:
        try:
            for number in range(self._starts):
                if not self._loads:
                    self._results.load_averages.append(os.getloadavg()[0])
                self._start_all(number, steps)
            # Round 0 is short and does not count: the JVM compiles what it runs often.
            for number in range(self._rounds + 1 if self._loads else 0):
                if number:
                    self._results.load_averages.append(os.getloadavg()[0])
                for load in self._loads:
                    for one in order(self._sides(load), number):
                        steps.begin(
                            f"{f'round {number}' if number else 'warm-up'}: {load.title}: {one.label}"
                        )
                        self._attempt(load, one, steps, count=number > 0)
        finally:
            self._stop_all()

    def _sides(self, load: Load) -> list[Contestant]:
        return [one for one in self._make if one.server in load.servers]

    def _processes(self, number: int) -> list[Contestant]:
        """Processes of a start: all in the last one, which the loads use, else those that count."""
        last = number == self._starts - 1
        return list(dict.fromkeys(one.process for one in self._make if one.synced or last))

    def _start_all(self, number: int, steps: Steps) -> None:
        """Start processes on empty data, by turns; those of the last time stay."""
        self._stop_all()
        for one in order(self._processes(number), number):
            steps.begin(f"start {number + 1}: {one.label}")
            settle()
            broker = self._running[one] = self._make[one]()
            seconds = self._first_acknowledgement(one, broker)
            time.sleep(IDLE_SECONDS)
            figures = {
                START: {"start": seconds},
                IDLE: {"resident memory": broker.target.rss_bytes() / 1e6},
            }
            for key in self._counted if one.synced else ():
                self._results.add(group(key, synced=True), one.server, figures[key])

    def _first_acknowledgement(self, one: Contestant, broker: Broker) -> float:
        """Seconds from the start to an acknowledgement; the generator waits for the server."""
        began = time.perf_counter()
        broker.launch()
        words = ["-peer", one.server.lower(), "-n", "1", "-size", "100", "-window", "1"]
        self._generate(broker, words)
        return time.perf_counter() - began

    def _attempt(self, load: Load, one: Contestant, steps: Steps, *, count: bool) -> None:
        broker = self._running[one.process]
        quick = self._results.quick or not count
        words = arguments(load, one.server, synced=one.synced, quick=quick)
        settle()
        cpu_before = broker.target.cpu_seconds()
        try:
            output = self._generate(broker, words)
            figures = figures_of(load, output, broker.target.cpu_seconds() - cpu_before)
        except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            # One load that fails is a result too; the others are still worth having.
            failure = f"{load.title}: {one.label}: {' '.join(str(error).split())}"
            self._results.failures.append(failure)
            steps.say(f"failed: {failure}")
            return
        if count:
            self._results.add(group(load.key, synced=one.synced), one.server, dict(figures))

    def _generate(self, broker: Broker, words: Sequence[str]) -> str:
        """Return the output of the generator. Raises RuntimeError when it failed."""
        address = broker.target.service_url.partition("://")[2]
        done = subprocess.run(
            [str(self._generator), "-addr", address, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LOAD_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{done.stderr.strip()[-300:]} {broker.died() or ''}".strip())
        return done.stdout

    def _stop_all(self) -> None:
        for broker in self._running.values():
            broker.stop()
        self._running.clear()
