"""Implementation of the commands. Exit codes: 0 done, 1 something failed, 2 the command line is wrong, 3 no
broker answers, 130 stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_errors import OffloadUnreachable
from magnetar.spark.ledgers.service_channel import open_channel
from magnetar.spark.offload.options import parse, service_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DONE: Final = 0
FAILED: Final = 1
WRONG: Final = 2
NO_BROKER: Final = 3
STOPPED: Final = 130

STEP_DEADLINE_S: Final = 20.0
"""Timeout of one step's call, which is repeated until patience ends."""

STORE_PATIENCE_S: Final = 20.0
"""Seconds for which the driver retries its own writes and reads, beyond the store library's retries."""

ASK_DEADLINE_S: Final = 6.0
"""Timeout of the first calls, in seconds, so that an unavailable broker is reported soon."""


def main(arguments: Sequence[str]) -> int:
    """Run a command; returns its exit code. Errors become one line."""
    given = parse(arguments)
    try:
        act = {"run": _run, "status": _status, "sweep": _sweep}[given.command]
        return act(given)
    except OffloadUnreachable as error:
        hint = "start a broker, or set --service to its magnetarControlPort"
        print(f"Error: {error}; {hint}", file=sys.stderr)
        return NO_BROKER
    except (ConfigError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return WRONG
    except MagnetarError as error:
        print(f"Error: {type(error).__name__}: {error}", file=sys.stderr)
        return FAILED


def run_in(session: SparkSession, arguments: Sequence[str]) -> int:
    """Run the command `run` in a session owned by the caller, for notebooks and tests. Raises its errors."""
    return _run(parse(["run", *arguments]), session)


def _run(given: argparse.Namespace, session: SparkSession | None = None) -> int:
    before = message_id(given.before)
    service = service_of(given)
    conf = settings(given.conf)
    stop = Event()
    with (
        _stopped_by_signals(stop),
        open_channel(service) as channel,
        open_channel(service, deadline_s=STEP_DEADLINE_S) as steps,
        open_channel(service, deadline_s=ASK_DEADLINE_S) as asking,
    ):
        asking.deletions("none")  # a cheap call first, to fail soon when no broker answers
        topics = _topics(channel, given)
        if given.want:
            location = as_uri(given.location)
            for topic in topics:
                channel.want(
                    topic, before=before, location=location, exact=given.exact or None, again=given.again
                )
        if session is not None:
            return _run_job(given, channel, steps, topics, session, stop)
        from magnetar.spark.offload.session import open_session  # it imports Spark, which takes seconds

        print("starting Spark", file=sys.stderr, flush=True)
        session = open_session("magnetar offload", given.master, conf)
        try:
            with _stopped_by_signals(stop):  # Spark has put its own handler of Ctrl-C
                return _run_job(given, channel, steps, topics, session, stop)
        finally:
            session.stop()


@contextmanager
def _stopped_by_signals(stop: Event) -> Iterator[None]:
    """Set `stop` on Ctrl-C and SIGTERM: running attempts are abandoned cleanly."""
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_job(
    given: argparse.Namespace,
    channel: OffloadChannel,
    steps: OffloadChannel,
    topics: list[str],
    session: SparkSession,
    stop: Event,
) -> int:
    # Spark and Arrow take seconds to import: `status` and `sweep` do without.
    from magnetar.ledger.cold.objects import open_store
    from magnetar.spark.offload.heartbeats import Heartbeats
    from magnetar.spark.offload.job import Job, run_rounds
    from magnetar.spark.offload.ledger_offload import Offloader
    from magnetar.spark.offload.outcomes import Result
    from magnetar.spark.offload.progress import closing_line, make_watcher
    from magnetar.spark.offload.retries import Patience
    from magnetar.spark.offload.spark_tasks import SparkTasks

    tasks = SparkTasks(session.sparkContext, given.ledgers_at_once)
    heartbeats = Heartbeats(steps, given.heartbeat)
    watcher = make_watcher(as_json=given.json)
    offloader = Offloader(
        service=steps,
        address=service_of(given),
        tasks=tasks,
        open_store=open_store,
        heartbeats=heartbeats,
        watcher=watcher,
        patience=Patience(for_s=given.patience, stop=stop),
        store_patience=Patience(for_s=STORE_PATIENCE_S, stop=stop),
        new_attempt=lambda: secrets.token_bytes(16),
        wall_ms=lambda: time.time_ns() // 1_000_000,
        release=release(),
        part_bytes=int(given.part_mb * 2**20),
    )
    job = Job(
        channel,
        offloader,
        topics=topics,
        ledgers_at_once=given.ledgers_at_once,
        ledgers_max=given.ledgers_max,
        stop=stop,
    )

    def report(error: MagnetarError) -> None:
        print(f"this round ended early: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    heartbeats.start()
    try:
        run_rounds(job, every_s=given.every, stop=stop, report=report)
    finally:
        heartbeats.close()
        watcher.close()
        tasks.close()
    print(closing_line(job.totals, stopped=stop.is_set()), file=sys.stderr)
    if stop.is_set() and given.every is None:
        return STOPPED
    bad = job.totals.outcomes[Result.FAILED] + job.totals.outcomes[Result.UNSETTLED]
    return FAILED if bad and given.every is None else DONE


def _status(given: argparse.Namespace) -> int:
    from magnetar.spark.offload.status import described, show

    service = service_of(given)
    with open_channel(service, deadline_s=ASK_DEADLINE_S) as asking, open_channel(service) as channel:
        asking.deletions("none")
        show(described(channel, _topics(channel, given)), as_json=given.json)
    return DONE


def _sweep(given: argparse.Namespace) -> int:
    from magnetar.ledger.cold.objects import open_store
    from magnetar.spark.offload.progress import megabytes
    from magnetar.spark.offload.sweep import SweepRefused, sweep_location

    code = DONE
    with open_channel(service_of(given)) as channel:
        for location in map(as_uri, given.location):
            try:
                swept = sweep_location(
                    channel,
                    open_store(location),
                    location,
                    now_ms=time.time_ns() // 1_000_000,
                    grace_ms=int(given.grace_hours * 3_600_000),
                    dry_run=given.dry_run,
                    force=given.force,
                    report=lambda line: print(line, file=sys.stderr, flush=True),
                )
            except SweepRefused as error:
                print(f"Error: {error}", file=sys.stderr)
                code = FAILED
                continue
            if given.json:
                print(
                    json.dumps(
                        {
                            "location": location,
                            "deletions": swept.deletions,
                            "directories": swept.directories,
                            "objects": swept.objects,
                            "bytes": swept.byte_length,
                            "waiting": swept.waiting,
                            "failed": swept.failed,
                        }
                    )
                )
            else:
                would = "would be " if given.dry_run else ""
                print(
                    f"{location}: {swept.deletions} deleted ledgers and {swept.directories} "
                    "unreferenced attempts "
                    f"({swept.objects} objects, {megabytes(swept.byte_length)}) {would}swept; "
                    f"{swept.waiting} younger attempts kept"
                )
            for reason in swept.failed:
                print(f"Error: {reason}", file=sys.stderr)
                code = FAILED
    return code


def _topics(channel: OffloadChannel, given: argparse.Namespace) -> list[str]:
    """Return full topic names, with the partitions of partitioned topics; empty without --topic."""
    found: list[str] = []
    if given.topic:
        found += channel.topics(given.topic)
    if given.topic_pattern:
        found += channel.topics((), given.topic_pattern)
        if not found:
            raise ConfigError(f"no topic matches {given.topic_pattern!r}")
    return list(dict.fromkeys(found))


def message_id(text: str) -> tuple[int, int]:
    """LEDGER:ENTRY; (0, 0) for nothing. Raises ConfigError."""
    if not text:
        return 0, 0
    ledger, _, entry = text.partition(":")
    if not (ledger.isdecimal() and (entry.isdecimal() or not entry)):
        raise ConfigError(f"--before {text!r} is not a message id: write LEDGER:ENTRY")
    return int(ledger), int(entry or 0)


def settings(given: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE as a dictionary. Raises ConfigError."""
    found = {}
    for each in given:
        key, separator, value = each.partition("=")
        if not separator or not key:
            raise ConfigError(f"--conf {each!r}: write KEY=VALUE")
        found[key] = value
    return found


def as_uri(location: str) -> str:
    """A directory of this machine as a URI; everything else as it is."""
    if not location or "://" in location:
        return location
    return Path(os.path.abspath(location)).as_uri()


def release() -> str:
    """Return the version of Magnetar."""
    try:
        return version("magnetar-spark")
    except PackageNotFoundError:
        return "unknown"
