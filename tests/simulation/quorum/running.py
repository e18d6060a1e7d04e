"""Running one seed: a loop, a cluster, a workload; what was logged on the way; its trace."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from magnetar.sim.process import WorldLoop, current_process, run_world

from tests.simulation.quorum.cluster import SHAPES, Cluster, Shape
from tests.spent import HAPPENED, SPENT

TIME_MAX_S: Final = 300.0
"""Virtual seconds after which a run is stuck."""

TALK: Final = bool(os.environ.get("MAGNETAR_SIM_LOG"))
"""Print what every process logs, with its virtual time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run went through."""

    trace: str
    steps: int
    messages: int
    virtual_s: float
    ledgers: int
    confirmations: int
    reads: int
    happened: Counter[str]


def run_cluster(
    seed: int, main: Callable[[Cluster], Awaitable[Any]], *, shape: Shape | None = None
) -> Outcome:
    """Run `main` on a new cluster; the seed decides everything, the shape of its ledgers too."""
    loop = WorldLoop(seed, time_max_s=TIME_MAX_S)
    cluster = Cluster(loop, seed, shape or SHAPES[seed % len(SHAPES)])
    started_s = time.process_time()
    before = structlog.get_config()
    structlog.configure(
        processors=[lambda _logger, method, event: _hear(loop, method, event)],
        wrapper_class=structlog.make_filtering_bound_logger(0 if TALK else 40),
        cache_logger_on_first_use=False,
    )
    try:
        asyncio._set_running_loop(None)
        run_world(loop, _start(cluster, main))
    finally:
        structlog.configure(**before)
        SPENT["seeds"] += 1
        SPENT["cpu_s"] += time.process_time() - started_s
        cluster.count_metadata()
        HAPPENED.update(cluster.happened)
    checker = cluster.checker
    return Outcome(
        trace=loop.trace_hash(),
        steps=loop.steps,
        messages=cluster.network.messages,
        virtual_s=loop.time(),
        ledgers=len(checker.ledgers),
        confirmations=checker.confirmations,
        reads=checker.reads,
        happened=cluster.happened,
    )


async def _start(cluster: Cluster, main: Callable[[Cluster], Awaitable[Any]]) -> None:
    await main(cluster)


def _hear(loop: WorldLoop, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """An exception that somebody only logged is an error of the run."""
    process = current_process()
    if TALK:
        name = "world" if process is None else process.name
        text = " ".join(f"{key}={value}" for key, value in event.items() if key != "logger_name")
        print(f"{loop.time():9.4f} {name:8} {method:8} {text}", file=sys.stderr)
    error = event.get("exc_info")
    if error is not None and error is not False:
        found = sys.exc_info()[1] if error is True else error
        if isinstance(found, Exception):
            loop.errors.append(found)
    raise structlog.DropEvent
