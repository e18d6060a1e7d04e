"""What holds for every test: Hypothesis profiles, seeds, and nothing left open behind a test."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog
from magnetar.common.runtime import speedups

from tests.bytecode import compile_ahead
from tests.compiled import why_not_compiled
from tests.integration.harness import launched
from tests.scheduling import IN_PROCESS, Scheduling, in_turn
from tests.spent import HAPPENED, SPENT
from tests.time_left import why_no_full_tier

# PySpark forks to start Java, and gRPC's threads must not begin anew in the child. gRPC looks at this when it
# is first imported, and here tests that use it are collected before those of Spark.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# A shell without job control ignores SIGINT in background commands, and every child would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
POLLERS = ("anon_inode:[eventpoll]", "anon_inode:[eventfd]")
RESERVED_PORTS = "/magnetar-ports-"
"""Part of the name of the file that `magnetar.testing.free_ports` opens for good."""

# The same examples in every run of `make test`, so that a failure belongs to the change that brought it.
# `HYPOTHESIS_PROFILE=explore` looks for new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile(
    "default-tier", derandomize=True, deadline=None, database=None, max_examples=40
)
hypothesis.settings.register_profile(
    "full-tier", derandomize=True, deadline=None, database=None, max_examples=60
)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1_000)

# What is logged here and not asked for by a test is as it comes: structlog's own tracebacks, with colors and
# every local variable, take seconds each, and simulated crashes make many.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the Hypothesis profile: each tier tries more examples than the one before."""
    tiers = config.option.markexpr
    profile = (
        "default-tier" if "not full" in tiers else "full-tier" if "not nightly" in tiers else "repeatable"
    )
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", profile))


def pytest_report_header() -> list[str]:
    hash_seed = os.environ.get("PYTHONHASHSEED", "random, so simulated runs do not repeat; make sets 0")
    profile = hypothesis.settings.get_current_profile_name()
    return [f"hash seed: {hash_seed}; hypothesis profile: {profile}; code: {speedups.description()}"]


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
    """Run tests marked `seeds(count, full=more, nightly=most)` once per seed.

    Seeds from `count` on belong to the full tier, those from `full` on to the nightly one. `make sim`
    chooses others through the environment: that many from 0 on, or `100-200`, which is 100 to 199.
    """
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
        (count,) = marker.args
        full = marker.kwargs.get("full", count)
        nightly = marker.kwargs.get("nightly", full)
        tiers = metafunc.config.option.markexpr  # thousands of tests cost seconds, if only to be left out
        more = [] if "not full" in tiers else range(count, full)
        most = [] if "not nightly" in tiers else range(full, nightly)
        parameters = [pytest.param(seed, marks=pytest.mark.full) for seed in more]
        parameters += [pytest.param(seed, marks=pytest.mark.nightly) for seed in most]
        metafunc.parametrize("seed", [*range(count), *parameters])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Ahead of pytest-xdist, which starts the other processes."""
    config = session.config
    first_of_several = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if first_of_several and not sys.dont_write_bytecode:
        compile_ahead(config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without tests marked `alone` where only those run: collecting all takes 10 seconds."""
    only_alone = config.option.markexpr.endswith(" and alone")
    if only_alone and collection_path.name.startswith("test_") and collection_path.suffix == ".py":
        return "pytest.mark.alone" not in collection_path.read_text(encoding="utf-8") or None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Spare later collections of garbage the thousands of tests, which live as long as the process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one of several processes, by pytest-xdist
        items[:] = in_turn(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Ahead of all fixtures, which start servers."""
    if item.get_closest_marker("full") and (reason := why_no_full_tier()):
        pytest.skip(reason)
    if other_reason := why_not_compiled(item.nodeid):
        pytest.skip(other_reason)


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


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries warn at the end of the process about objects that were never collected


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
    """Say how many simulated runs there were, and how fast."""
    seeds, cpu_s = SPENT["seeds"], SPENT["cpu_s"]
    if seeds:
        rate = seeds / cpu_s
        terminalreporter.write_line(
            f"replicated storage: {seeds:.0f} simulated runs in {cpu_s:.0f} s of CPU, {rate:.1f} a second"
        )
        counts = ", ".join(f"{name} {count}" for name, count in sorted(HAPPENED.items()))
        terminalreporter.write_line(f"trouble of these runs: {counts}")


@pytest.fixture(autouse=True, scope="module")
def leftovers_collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect what a module with servers leaves unclosed: its warnings fail no test of another module."""
    yield
    if not request.path.relative_to(ROOT).as_posix().startswith(IN_PROCESS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test leaves no task running at the end of `asyncio.run`, and no descriptor open."""
    path = request.path.relative_to(ROOT).as_posix()
    if not path.startswith(IN_PROCESS):
        yield  # the PyPI client keeps threads and sockets for as long as it likes
        return
    monkeypatch.delenv("PYTHONPATH", raising=False)  # a Spark session here sets it for its tasks
    full_tier = "not full" not in request.config.option.markexpr
    if path.startswith("tests/unit") and full_tier:  # debug mode takes a quarter more of CPU
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
            if target not in uncounted and RESERVED_PORTS not in target:
                found[number] = target
    except FileNotFoundError:
        return {}
    return found
