"""The time of a group's write and sync, as the bookie's metrics tell it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from magnetar.bookie.timed_syncer import TimedSyncer
from magnetar.common.obs.latency import Latency
from magnetar.common.runtime.disk import Buffer, DiskFile


@dataclass
class Clock:
    now: float = 50.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


@dataclass
class HandSyncer:
    """Keeps what was submitted until the test says what became of it."""

    submitted: list[Callable[[OSError | None], None]] = field(default_factory=list)
    states: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.states.append("started")

    def submit(
        self,
        file: DiskFile,
        buffers: Sequence[Buffer],
        offset: int,
        done: Callable[[OSError | None], None],
        *,
        sync: bool,
        busy: bool,
    ) -> None:
        assert (buffers, offset, sync, busy) == ([b"group"], 4096, True, False)
        self.submitted.append(done)

    def close(self) -> None:
        self.states.append("closed")


def test_a_group_is_timed_until_it_is_told_and_failures_are_apart() -> None:
    inner, syncs, clock = HandSyncer(), Latency(), Clock()
    syncer = TimedSyncer(inner, syncs, clock)
    file: Any = object()
    told: list[OSError | None] = []
    syncer.start()
    for error, seconds in ((None, 0.004), (OSError(errno.EIO, "broken"), 2.0)):
        syncer.submit(file, [b"group"], 4096, told.append, sync=True, busy=False)
        clock.now += seconds
        inner.submitted.pop()(error)
        assert told.pop() is error
    syncer.close()
    assert inner.states == ["started", "closed"]
    assert (syncs.succeeded.count, syncs.failed.count) == (1, 1)
    assert syncs.succeeded.sum_ms == pytest.approx(4.0)
    assert syncs.failed.sum_ms == pytest.approx(2000.0)


def test_a_group_may_be_submitted_while_the_one_before_is_told() -> None:
    inner, syncs, clock = HandSyncer(), Latency(), Clock()
    syncer = TimedSyncer(inner, syncs, clock)
    file: Any = object()
    told: list[str] = []

    def again(error: OSError | None) -> None:
        told.append("first")
        syncer.submit(file, [b"group"], 4096, lambda _: told.append("second"), sync=True, busy=False)

    syncer.submit(file, [b"group"], 4096, again, sync=True, busy=False)
    inner.submitted.pop()(None)
    inner.submitted.pop()(None)
    assert told == ["first", "second"]
    assert syncs.succeeded.count == 2
