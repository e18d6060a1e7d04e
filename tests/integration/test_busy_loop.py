"""A commit never waits long behind a busy event loop, or a thread that keeps the interpreter.

A thread that finished a sync or a read needs the interpreter to say so: with a switch interval of 0.5 ms such
a thread was seen to starve for 14 seconds behind a loop that never idles, on an otherwise idle machine. Here
are the real disk, syncers, threads, loop and interpreter settings, in this process. The files are in memory
where that can be had, so that loop and interpreter decide and not a disk that others use.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import uvloop
from magnetar.common.metadata.keys import Keys
from magnetar.common.metadata.sqlite_store import SqliteMetadataStore
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.common.runtime.posix_disk import PosixDisk
from magnetar.ledger.ledger_store import LedgerListener, LedgerWriter, Run
from magnetar.ledger.local_store import open_local_store
from magnetar.ledger.segment_log.config import SegmentLogConfig
from magnetar.ledger.segment_log.kernel_syncer import system_syncer
from magnetar.ledger.segment_log.syncer import Syncer, ThreadSyncer
from magnetar.standalone.process import favor_waiting_threads

pytestmark = [pytest.mark.alone, pytest.mark.full]

WAIT_S_MAX = 1.0
"""The longest of 300 waits was 2 to 9 ms on two idle cores."""

ATTEMPTS = 3

COMMITS = 300
SLICE_S = 0.0005
"""What one callback may take of the loop (the longest that a handler of the broker works at once)."""


def work_in_slices(stop: Callable[[], bool]) -> None:
    """Keep the loop busy with callbacks of pure Python, each of which schedules the next."""
    loop = asyncio.get_running_loop()

    def work() -> None:
        until = time.perf_counter() + SLICE_S
        while time.perf_counter() < until:
            pass
        if not stop():
            loop.call_soon(work)

    work()


def spin_in_a_task(stop: Callable[[], bool]) -> None:
    """A task that is always ready, so that the loop never waits for anything."""

    async def spin() -> None:
        while not stop():  # noqa: ASYNC110 - to keep the loop from idling is what it is for
            await asyncio.sleep(0)

    _spinning.add(task := asyncio.get_running_loop().create_task(spin()))
    task.add_done_callback(_spinning.discard)


def hold_the_interpreter(stop: Callable[[], bool]) -> None:
    """A thread that never gives the interpreter away by itself."""

    def spin() -> None:
        while not stop():
            pass

    threading.Thread(target=spin, name="spinning").start()


_spinning: set[asyncio.Task[None]] = set()

Busy = list[Callable[[Callable[[], bool]], None]]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as path:
        yield Path(path)


@contextmanager
def interpreter_as_in_the_server() -> Iterator[None]:
    before = sys.getswitchinterval()
    favor_waiting_threads()
    try:
        yield
    finally:
        sys.setswitchinterval(before)


async def commit_waits(
    directory: Path, make_syncer: Callable[[asyncio.AbstractEventLoop], Syncer], keep_busy: Busy
) -> list[float]:
    """Seconds from each append to its confirmation, one commit after the other."""
    (directory / "ledgers").mkdir(parents=True)
    metadata = await SqliteMetadataStore.open(directory / "metadata.sqlite")
    pool = ThreadPool(1, "read")
    store = await open_local_store(
        PosixDisk(directory / "ledgers"),
        metadata,
        Keys("busy"),
        instance_id=bytes(16),
        pool=pool,
        syncer=make_syncer(asyncio.get_running_loop()),
        clock=SystemClock(),
        rng=random.Random(1),
        config=SegmentLogConfig(segment_size_bytes=16 << 20, free_space_headroom_bytes=0),
    )
    done = False
    try:
        confirmed = asyncio.Event()
        writer: LedgerWriter | None = None

        def on_confirmed(last_confirmed: int) -> None:
            if writer is None or last_confirmed + 1 == entries:
                confirmed.set()

        entries = 0
        listener = LedgerListener(on_confirmed=on_confirmed, on_failed=lambda error, last: None)
        writer = await store.create(listener, properties={})
        for begin in keep_busy:
            begin(lambda: done)
        waits = []
        for number in range(COMMITS):
            confirmed.clear()
            began = time.perf_counter()
            # One record may be synced on the loop, two never are.
            for _ in range(1 + number % 2):
                writer.append(Run([bytes(100)]))
                entries += 1
            await confirmed.wait()
            waits.append(time.perf_counter() - began)
        return waits
    finally:
        done = True
        await store.close()
        pool.close()
        await metadata.close()


async def read_waits(path: Path, keep_busy: Busy) -> list[float]:
    """Seconds that a pool of threads takes for a small read, one after the other."""
    pool = ThreadPool(1, "read")
    done = False
    try:
        for begin in keep_busy:
            begin(lambda: done)
        waits = []
        for _ in range(COMMITS):
            began = time.perf_counter()
            assert len(await pool.run(path.read_bytes)) == 4096
            waits.append(time.perf_counter() - began)
        return waits
    finally:
        done = True
        pool.close()


def assert_never_starved(measure: Callable[[int], Coroutine[Any, Any, list[float]]]) -> None:
    longest: list[float] = []
    with interpreter_as_in_the_server():
        # Who starves does so every time, a machine that stalls does not.
        while len(longest) < ATTEMPTS and min(longest, default=WAIT_S_MAX) >= WAIT_S_MAX:
            waits = sorted(uvloop.run(measure(len(longest))))
            longest.append(waits[-1])
            print(
                f"{len(waits)} waits, ms: p50 {median(waits) * 1e3:.2f}, "
                f"p99 {waits[-len(waits) // 100] * 1e3:.2f}, longest {waits[-1] * 1e3:.2f}"
            )
    assert min(longest) < WAIT_S_MAX, f"longest waits in seconds: {longest}"


busy_loops = pytest.mark.parametrize(
    "keep_busy",
    [
        pytest.param([work_in_slices], id="slices of work"),
        pytest.param([work_in_slices, spin_in_a_task], id="slices of work and a spinning task"),
        pytest.param([work_in_slices, spin_in_a_task, hold_the_interpreter], id="and a spinning thread"),
    ],
)


@busy_loops
@pytest.mark.parametrize("make_syncer", [system_syncer, ThreadSyncer])
def test_a_commit_does_not_wait_behind_a_busy_loop(
    directory: Path, make_syncer: Callable[[asyncio.AbstractEventLoop], Syncer], keep_busy: Busy
) -> None:
    assert_never_starved(lambda attempt: commit_waits(directory / str(attempt), make_syncer, keep_busy))


@busy_loops
def test_a_read_does_not_wait_behind_a_busy_loop(directory: Path, keep_busy: Busy) -> None:
    path = directory / "file"
    path.write_bytes(bytes(4096))
    assert_never_starved(lambda attempt: read_waits(path, keep_busy))
