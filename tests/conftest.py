"""What holds for every test: Hypothesis profiles, seeds, and nothing left open behind a test."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog

from tests.integration.harness import launched
from tests.spent import HAPPENED, SPENT
from tests.time_left import why_no_full_tier
from tools.run_tests import IN_PROCESS, OUTCOMES, RESULTS_VARIABLE, Results

ROOT = Path(__file__).parent.parent
POLLERS = ("anon_inode:[eventpoll]", "anon_inode:[eventfd]")

# The same examples in every run of `make test`, so that a failure belongs to the change that brought it.
# `HYPOTHESIS_PROFILE=explore` looks for new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1_000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# What is logged here and not asked for by a test is as it comes: structlog's own tracebacks, with colors and
# every local variable, take seconds each, and simulated crashes make many.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


def pytest_report_header() -> list[str]:
    hash_seed = os.environ.get("PYTHONHASHSEED", "random, so simulated runs do not repeat; make sets 0")
    return [f"hash seed: {hash_seed}; hypothesis profile: {hypothesis.settings.get_current_profile_name()}"]


@pytest.fixture
def logging_restored() -> Iterator[None]:
    """For tests that configure logging: afterwards it is as it was."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `seeds(count)` run once per seed, with `full=more` more often in the full tier; `make sim`
    chooses others through the environment: so many from 0 on, or `100-200`, which is 100 to 199."""
    marker = metafunc.definition.get_closest_marker("seeds")
    if marker is None or "seed" not in metafunc.fixturenames:
        return
    chosen = os.environ.get("MAGNETAR_SIM_SEEDS")
    one = os.environ.get("MAGNETAR_SIM_SEED")
    if one:
        metafunc.parametrize("seed", [int(one)])
    elif chosen:
        first, _, end = chosen.rpartition("-")
        metafunc.parametrize("seed", range(int(first or 0), int(end)))
    else:
        count, full = marker.args[0], marker.kwargs.get("full", 0)
        more = [pytest.param(seed, marks=pytest.mark.full) for seed in range(count, full)]
        metafunc.parametrize("seed", [*range(count), *more])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Ahead of all fixtures, which start servers."""
    if item.get_closest_marker("full") and (reason := why_no_full_tier()):
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A failure shows the logs of what the test started; one under a seed says how to see it again."""
    report = yield
    if report.failed:
        report.sections += [("log of a process", process.log_tail()) for process in launched.values()]
    if report.failed and isinstance(item, pytest.Function) and item.get_closest_marker("seeds"):
        seed = item.callspec.params["seed"]
        report.sections.append(("replay", f'make sim SEED={seed} ARGS="-k {item.originalname}"'))
    return report


def pytest_runtest_logstart() -> None:
    launched.clear()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # one of several processes, by pytest-xdist
        session.config.workeroutput["spent"] = SPENT
        session.config.workeroutput["happened"] = dict(HAPPENED)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for name, value in getattr(node, "workeroutput", {}).get("spent", {}).items():
        SPENT[name] += value
    HAPPENED.update(getattr(node, "workeroutput", {}).get("happened", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says how many simulated runs there were, and how fast; notes what a summary of several runs needs."""
    if told := os.environ.get(RESULTS_VARIABLE):
        Path(told).write_text(json.dumps(results_of(terminalreporter.stats)._asdict()))
    seeds, cpu_s = SPENT["seeds"], SPENT["cpu_s"]
    if seeds:
        rate = seeds / cpu_s
        terminalreporter.write_line(
            f"replicated storage: {seeds:.0f} simulated runs in {cpu_s:.0f} s of CPU, {rate:.1f} a second"
        )
        counts = ", ".join(f"{name} {count}" for name, count in sorted(HAPPENED.items()))
        terminalreporter.write_line(f"trouble of these runs: {counts}")


def results_of(stats: dict[str, list[Any]]) -> Results:
    """From the reports that pytest's terminal has by outcome."""
    failures = [
        f"{what.upper()} {report.nodeid}" for what in ("failed", "error") for report in stats.get(what, ())
    ]
    return Results({outcome: len(stats.get(outcome, ())) for outcome in OUTCOMES}, failures)


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test leaves no task running at the end of `asyncio.run`, and no descriptor open."""
    path = request.path.relative_to(ROOT).as_posix()
    if not path.startswith(IN_PROCESS):
        yield  # the PyPI client keeps threads and sockets for as long as it likes
        return
    if path.startswith("tests/unit"):  # debug mode slows simulation down too much
        monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    leaked: list[str] = []
    cancel_all_tasks = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]

    def record_then_cancel(loop: asyncio.AbstractEventLoop) -> None:
        leaked.extend(task.get_name() + " " + repr(task.get_coro()) for task in asyncio.all_tasks(loop))
        cancel_all_tasks(loop)

    monkeypatch.setattr(asyncio.runners, "_cancel_all_tasks", record_then_cancel)
    before = descriptors()
    yield
    assert not leaked, f"tasks still running at the end of the test: {leaked}"
    if len(descriptors()) > len(before):
        gc.collect()
        after = descriptors()
        opened = [after[number] for number in after.keys() - before.keys()]
        assert len(after) <= len(before), f"descriptors left open by the test: {opened}"


def descriptors() -> dict[str, str]:
    """Open descriptors of this process and what they refer to; empty where /proc does not exist.

    gRPC's threads open and close pollers as load comes and goes, tests or no tests: they are not counted. An
    event loop that is not closed still shows, by its sockets and a ResourceWarning.
    """
    uncounted = POLLERS if "grpc" in sys.modules else ()
    found = {}
    try:
        for number in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{number}")
            except FileNotFoundError:
                continue  # the one that listed the directory
            if target not in uncounted:
                found[number] = target
    except FileNotFoundError:
        return {}
    return found
