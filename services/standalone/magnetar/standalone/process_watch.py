"""Background tasks of every service process: event loop monitoring and garbage collection."""

from __future__ import annotations

from contextlib import AsyncExitStack

from magnetar.common.runtime.loop_lag import LoopLagProbe
from magnetar.common.runtime.task_owner import TaskOwner
from magnetar.standalone.idle_collection import collect_when_idle


def watch_process(opened: AsyncExitStack) -> None:
    """Measure event loop delays and collect garbage while idle, until `opened` closes."""
    probe = LoopLagProbe()
    probe.start()
    opened.callback(probe.stop)
    tasks = TaskOwner("process")
    opened.push_async_callback(tasks.close)
    tasks.spawn(collect_when_idle(), "collect when idle")
