"""Parts shared by the jobs `compact` and `verify`: options, the Spark session, progress."""

from __future__ import annotations

import argparse
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.offload.offload_errors import OffloadUnreachable
from magnetar.spark.ledgers.service_channel import open_channel
from magnetar.spark.offload.options import add_service, service_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DONE: Final = 0
FAILED: Final = 1
WRONG: Final = 2
NO_BROKER: Final = 3

ASK_DEADLINE_S: Final = 20.0
POLL_S: Final = 0.3

CREDENTIALS: Final = (
    "Credentials of object stores come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
    "AWS_ENDPOINT_URL and the like."
)

T = TypeVar("T")


def add_common(command: argparse.ArgumentParser) -> None:
    """Add the options common to all jobs."""
    add_service(command)
    command.add_argument(
        "--topic",
        "-t",
        action="append",
        default=[],
        required=True,
        metavar="NAME",
        help="a topic, all of its partitions if it has some; repeat it for several",
    )
    command.add_argument("--json", action="store_true", help="the result as a line of JSON")
    command.add_argument(
        "--master",
        default="",
        metavar="URL",
        help="of Spark; default: all cores of this machine, under spark-submit what that says",
    )
    command.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark; repeat it"
    )


def topics_of(given: argparse.Namespace) -> list[str]:
    """Full names, partitions for partitioned topics. Raises TopicNotFound, OffloadUnreachable."""
    with open_channel(service_of(given), deadline_s=ASK_DEADLINE_S) as channel:
        return list(dict.fromkeys(channel.topics(given.topic)))


def exit_code_of(act: Callable[[], int]) -> int:
    """Run a job and return its exit code; an error becomes a line on stderr."""
    try:
        return act()
    except OffloadUnreachable as error:
        print(f"Error: {error}", file=sys.stderr)
        return NO_BROKER
    except (ConfigError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return WRONG
    except MagnetarError as error:
        print(f"Error: {type(error).__name__}: {error}", file=sys.stderr)
        return FAILED


class JobFailed(MagnetarError):
    """Tasks of a job failed after all retries."""


@contextmanager
def session_of(name: str, given: argparse.Namespace) -> Iterator[SparkSession]:
    """A Spark session, stopped in the end. Raises ConfigError."""
    from magnetar.spark.offload.command import settings
    from magnetar.spark.offload.session import open_session

    session = open_session(name, given.master, settings(given.conf))
    try:
        yield session
    finally:
        session.stop()


def with_progress(session: SparkSession, what: str, act: Callable[[], T]) -> T:
    """Returns the result of `act`, which runs Spark jobs, and shows their progress on a terminal.

    Raises JobFailed with the reason in a line.
    """
    context = session.sparkContext
    group = f"{what} {uuid.uuid4().hex}"
    ended = threading.Event()
    context.setJobGroup(group, what, interruptOnCancel=True)
    shown = threading.Thread(target=_show, args=(context, group, what, ended), daemon=True)
    shown.start()
    try:
        return act()
    except MagnetarError:
        raise
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    except Exception as error:
        from magnetar.spark.offload.spark_tasks import cause_of

        raise JobFailed(cause_of(str(error))) from error
    finally:
        ended.set()
        shown.join()


def _show(context: Any, group: str, what: str, ended: threading.Event) -> None:
    if not sys.stderr.isatty():
        print(f"{what} ...", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(what, total=None)
        while not ended.wait(POLL_S):
            done, total = _tasks(context, group)
            progress.update(bar, completed=done, total=total or None)


def _tasks(context: Any, group: str) -> tuple[int, int]:
    """(tasks that are done, tasks) of the group's stages so far."""
    tracker = context.statusTracker()
    done = total = 0
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        for stage_id in () if job is None else job.stageIds:
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                done += stage.numCompletedTasks
                total += stage.numTasks
    return done, total


def run_tasks(session: SparkSession, act: Callable[[Any], T], tasks: Sequence[Any]) -> list[T]:
    """Return the results of `act` in order, with one task per item."""
    if not tasks:
        return []
    results: list[T] = session.sparkContext.parallelize(list(tasks), len(tasks)).map(act).collect()
    return results
