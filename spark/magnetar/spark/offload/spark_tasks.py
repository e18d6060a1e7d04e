"""Tasks on Spark: each list of tasks is one Spark job of as many tasks, in a group that can be canceled."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

from magnetar.spark.offload.measure_task import measure_entries
from magnetar.spark.offload.part_task import write_part
from magnetar.spark.offload.tasks import (
    Course,
    MeasureTask,
    PartTask,
    Stopped,
    TaskFailure,
    TasksFailed,
    VerifiedPart,
    VerifyTask,
    WrittenPart,
)
from magnetar.spark.offload.verify_task import verify_part
from pyspark import SparkContext

POLL_S: Final = 0.2
CANCEL_S: Final = 30.0
"""Timeout of canceled tasks, in seconds."""
CAUSE_CHARS_MAX: Final = 500

T = TypeVar("T")
R = TypeVar("R")


class SparkTasks:
    """Implements `tasks.Tasks` for several ledgers at a time. Use it from its making to `close`."""

    def __init__(self, context: SparkContext, jobs_max: int) -> None:
        self._context = context
        self._pool = ThreadPoolExecutor(jobs_max, "spark job")

    def measure(self, task: MeasureTask, course: Course) -> list[int]:
        (sizes,) = self._run("measure", measure_entries, [task], course)
        return sizes

    def write(self, tasks: Sequence[PartTask], course: Course) -> list[WrittenPart]:
        return self._run("write", write_part, tasks, course)

    def verify(self, tasks: Sequence[VerifyTask], course: Course) -> list[VerifiedPart]:
        return self._run("verify", verify_part, tasks, course)

    def close(self) -> None:
        """Wait for what still runs."""
        self._pool.shutdown(cancel_futures=True)

    # --- inside ---

    def _run(
        self, what: str, act: Callable[[T], R | TaskFailure], tasks: Sequence[T], course: Course
    ) -> list[R]:
        if not tasks:
            return []
        group = f"magnetar {what} {uuid.uuid4().hex}"
        job: Future[list[R | TaskFailure]] = self._pool.submit(self._collect, group, what, act, tasks)
        while not wait([job], POLL_S).done:
            course.advanced(self._done(group), len(tasks))
            if reason := course.over():
                self._cancel(group, job)
                raise Stopped(reason)
        try:
            results = job.result()
        except Exception as error:
            raise TasksFailed(cause_of(str(error))) from None
        sound: list[R] = []
        for each in results:
            if isinstance(each, TaskFailure):
                raise TasksFailed(each.reason)
            sound.append(each)
        course.advanced(len(tasks), len(tasks))
        return sound

    def _cancel(self, group: str, job: Future[Any]) -> None:
        """Cancels the tasks and waits for them, up to a timeout."""
        job.cancel()
        deadline = time.monotonic() + CANCEL_S
        while True:
            self._context.cancelJobGroup(group)  # Repeated: Spark may not have registered the job yet.
            if wait([job], POLL_S).done or time.monotonic() > deadline:
                return

    def _collect(self, group: str, what: str, act: Callable[[T], Any], tasks: Sequence[T]) -> list[Any]:
        context = self._context
        context.setJobGroup(group, f"{what}: {len(tasks)} tasks", interruptOnCancel=True)
        return context.parallelize(list(tasks), len(tasks)).map(act).collect()

    def _done(self, group: str) -> int:
        tracker = self._context.statusTracker()
        done = 0
        for job_id in tracker.getJobIdsForGroup(group):
            job = tracker.getJobInfo(job_id)
            for stage_id in () if job is None else job.stageIds:
                stage = tracker.getStageInfo(stage_id)
                done += 0 if stage is None else stage.numCompletedTasks
        return done


_PYTHON_ERROR: Final = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*): (.+)$", re.MULTILINE)
_NOT_A_CAUSE: Final = ("Py4JJavaError", "PythonException", "SparkException")


def cause_of(text: str) -> str:
    """Return the cause from the error of a failed Spark job: a line instead of two traces."""
    _, _, trace = text.partition("Traceback (most recent call last):")
    for found in _PYTHON_ERROR.finditer(trace):
        if found[1] not in _NOT_A_CAUSE:
            return f"{found[1]}: {found[2]}"[:CAUSE_CHARS_MAX]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if "Job aborted" in line or "Lost task" in line:
            return line[:CAUSE_CHARS_MAX]
    return (lines[0] if lines else "Spark gave no reason")[:CAUSE_CHARS_MAX]
