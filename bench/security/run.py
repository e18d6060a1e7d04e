"""One run: every part on Magnetar and on Apache Pulsar, plain and with TLS, by turns, round by round."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

from bench.authorization import measured as decisions_measured
from bench.brokers import APACHE_PULSAR, MAGNETAR
from bench.loads import Measure, Produce, Tail
from bench.progress import Steps
from bench.results import Results
from bench.runner import run_apart, settle
from bench.security.measures import handshakes, memory
from bench.security.services import RSA_BITS, Service, column, serving

THROUGHPUT: Final = "throughput"
HANDSHAKES: Final = "handshakes"
MEMORY: Final = "memory"
DECISIONS: Final = "decisions"
PARTS: Final = (THROUGHPUT, HANDSHAKES, MEMORY, DECISIONS)


@dataclass(frozen=True, slots=True)
class Scale:
    """Amounts of each measurement."""

    rounds: int
    seconds: float
    """Duration of a load, in seconds."""
    warm_up_seconds: float
    handshakes: int
    connections: int
    decision_rounds: int


FULL: Final = Scale(
    rounds=3, seconds=5.0, warm_up_seconds=8.0, handshakes=2_000, connections=1_000, decision_rounds=5
)
QUICK: Final = Scale(
    rounds=1, seconds=1.0, warm_up_seconds=1.0, handshakes=100, connections=50, decision_rounds=1
)


@dataclass(frozen=True, slots=True)
class Load:
    """A load of the general benchmark, which runs over TLS, too."""

    key: str
    title: str
    rate: str
    """The figure of its throughput."""
    measure: Measure


def loads(seconds: float) -> list[Load]:
    """Loads that throughput is measured by, each for so many seconds."""
    return [
        Load("produce-100b", "produce 100 B unbatched", "entries/s", Produce(100, seconds=seconds)),
        Load("produce-1k", "produce 1 KiB unbatched", "entries/s", Produce(1_024, seconds=seconds)),
        Load(
            "produce-batches",
            "produce batches of 100 x 1 KiB",
            "MB/s",
            Produce(1_024, batch=100, window=100, seconds=seconds),
        ),
        Load(
            "tail-exclusive",
            "produce and consume 1 KiB, Exclusive",
            "messages/s",
            Tail(1_024, "cumulative", seconds=seconds),
        ),
    ]


class Run:
    """A run in progress: the choice of parts, and the results so far."""

    def __init__(self, scale: Scale, results: Results, jars: Path | None, parts: Sequence[str]) -> None:
        """`jars`: Apache Pulsar's, None to measure Magnetar alone."""
        self._scale = scale
        self._results = results
        self._jars = jars
        self._parts = parts
        self._names = [MAGNETAR] if jars is None else [MAGNETAR, APACHE_PULSAR]

    def step_count(self) -> int:
        """Steps that `execute` begins."""
        brokers, scale = len(self._names), self._scale
        counts = {
            THROUGHPUT: brokers + scale.rounds * len(loads(0)) * brokers * 2,
            HANDSHAKES: len(RSA_BITS) * (brokers + scale.rounds * brokers * 2),
            MEMORY: scale.rounds * brokers * 2,
            DECISIONS: 1,
        }
        return sum(counts[part] for part in self._parts)

    def execute(self, steps: Steps) -> None:
        """Measure. Brokers that it started have ended when it returns or raises."""
        if THROUGHPUT in self._parts:
            self._throughput(steps)
        if HANDSHAKES in self._parts:
            for certificate in RSA_BITS:
                self._handshakes(certificate, steps)
        if MEMORY in self._parts:
            for number, name, tls in product(range(self._scale.rounds), self._names, (False, True)):
                self._memory(number, name, tls, steps)
        if DECISIONS in self._parts:
            steps.begin("decisions")
            for kind, rate in decisions_measured(self._scale.decision_rounds).items():
                self._results.add(DECISIONS, MAGNETAR, {kind: rate})

    def _throughput(self, steps: Steps) -> None:
        with contextlib.ExitStack() as stack:
            services = [stack.enter_context(serving(name, self._jars)) for name in self._names]
            for service, tls in product(services, (False, True)):
                if not tls:
                    steps.begin(f"warm-up: {service.name}")
                for load in loads(self._scale.warm_up_seconds / 4):
                    run_apart(load.measure, service.target(tls))
            for number in range(self._scale.rounds):
                self._results.load_averages.append(os.getloadavg()[0])
                for position, load in enumerate(loads(self._scale.seconds)):
                    for service, tls in _turns(services, number + position):
                        steps.begin(f"round {number + 1}: {load.title}: {column(service.name, tls)}")
                        settle()
                        self._attempt(load.key, service, tls, partial(_figures, load.measure))

    def _handshakes(self, certificate: str, steps: Steps) -> None:
        with contextlib.ExitStack() as stack:
            services = []
            for name in self._names:
                steps.begin(f"handshakes, {certificate}: start {name}")
                services.append(stack.enter_context(serving(name, self._jars, certificate)))
            for service, tls in product(services, (False, True)):  # the JVM compiles as it goes
                handshakes(service, tls, self._scale.handshakes)
            for number in range(self._scale.rounds):
                for service, tls in _turns(services, number):
                    steps.begin(f"handshakes, {certificate}, round {number + 1}: {column(service.name, tls)}")
                    self._attempt(
                        f"{HANDSHAKES} {certificate}",
                        service,
                        tls,
                        lambda s, t: handshakes(s, t, self._scale.handshakes),
                    )

    def _memory(self, number: int, name: str, tls: bool, steps: Steps) -> None:
        """Measures with a broker started for it: memory that one connection gave back would serve another."""
        steps.begin(f"memory, round {number + 1}: {column(name, tls)}")
        with serving(name, self._jars) as service:
            self._attempt(MEMORY, service, tls, lambda s, t: memory(s, t, self._scale.connections))

    def _attempt(
        self, key: str, service: Service, tls: bool, measure: Callable[[Service, bool], dict[str, float]]
    ) -> None:
        name = column(service.name, tls)
        try:
            self._results.add(key, name, measure(service, tls))
        except Exception as error:
            # One load that fails is a result too; the others are still worth having.
            self._results.failures.append(f"{key}: {name}: {type(error).__name__}: {error}")


def _figures(measure: Measure, service: Service, tls: bool) -> dict[str, float]:
    return run_apart(measure, service.target(tls)).figures


def _turns(services: Sequence[Service], number: int) -> list[tuple[Service, bool]]:
    """Each service plain and with TLS, every second time in the other order."""
    turns = [(service, tls) for tls in (False, True) for service in services]
    return turns[::-1] if number % 2 else turns
