"""Tasks on Spark that are canceled, with a context that is slow to know of its jobs."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from magnetar.spark.ledgers.ledger_source import LedgerSource, ServiceAddress
from magnetar.spark.offload import spark_tasks
from magnetar.spark.offload.spark_tasks import SparkTasks
from magnetar.spark.offload.tasks import MeasureTask, Stopped


class Slow:
    """A Spark context that takes a job only after it was asked twice to cancel it, and runs it until asked
    again."""

    def __init__(self) -> None:
        self.asked = 0
        self.known = threading.Event()
        self.canceled = threading.Event()

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool) -> None:
        assert self.known.wait(30)

    def parallelize(self, tasks: list[Any], parts: int) -> Slow:
        return self

    def map(self, act: Any) -> Slow:
        return self

    def collect(self) -> list[Any]:
        assert self.canceled.wait(30)
        raise RuntimeError("canceled")

    def cancelJobGroup(self, group: str) -> None:
        self.asked += 1
        if self.known.is_set():
            self.canceled.set()
        if self.asked == 2:
            self.known.set()

    def statusTracker(self) -> Slow:
        return self

    def getJobIdsForGroup(self, group: str) -> list[int]:
        return []


class Over:
    """Implements `tasks.Course`: nobody wants the result."""

    def advanced(self, done: int, total: int) -> None:
        """Nothing to note."""

    def over(self) -> str:
        return "somebody stopped it"


def test_a_job_that_spark_does_not_know_yet_is_canceled_once_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_tasks, "POLL_S", 0.01)
    context = Slow()
    tasks = SparkTasks(context, 1)  # type: ignore[arg-type]
    source = LedgerSource(ServiceAddress("127.0.0.1:1"), "persistent://a/b/c", 1, 0)
    try:
        with pytest.raises(Stopped, match="somebody stopped it"):
            tasks.measure(MeasureTask(source, (0,)), Over())
        assert context.canceled.is_set()
    finally:
        context.canceled.set()
        tasks.close()
