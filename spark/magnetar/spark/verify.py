"""`magnetar spark verify`: checks that Parquet has every message of a topic.

Of every offloaded ledger the objects are read whole: their bytes against the manifest, the manifest against
the metadata, and each message against the entries on bookies, while these are there. What left the bookies
has its objects alone, and is checked as far as these tell.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

if (
    __name__ == "__main__"
    and sys.path
    and Path(sys.path[0] or ".").resolve() == Path(__file__).resolve().parent
):
    del sys.path[0]  # spark-submit adds this directory, whose modules would hide others.

from magnetar.common.errors import ConfigError, MagnetarError
from magnetar.common.offload.offload_pb2 import Ledger
from magnetar.ledger.cold.layout import Manifest
from magnetar.spark.jobs.job_run import (
    CREDENTIALS,
    DONE,
    FAILED,
    add_common,
    exit_code_of,
    run_tasks,
    session_of,
    topics_of,
    with_progress,
)
from magnetar.spark.jobs.parquet_comparison import CompareTask, Comparison, compare_part, gone_meanwhile
from magnetar.spark.ledgers.ledger_source import ServiceAddress, hot_source
from magnetar.spark.ledgers.service_channel import open_channel
from magnetar.spark.offload.options import service_of
from magnetar.spark.source.cold_parts import read_manifests
from magnetar.spark.source.reading_plan import cold_ledger

TOLD_ALL_MAX: Final = 100
"""Maximum differences that are listed; all are counted."""


@dataclass(slots=True)
class Verified:
    """Findings of a run."""

    ledgers: int = 0
    """Compared with their entries."""
    objects_only: int = 0
    """Left the bookies: compared with their manifest."""
    not_offloaded: int = 0
    gone: int = 0
    """Objects whose ledger was trimmed, or left the bookies, while it was compared."""
    parts: int = 0
    messages: int = 0
    entries: int = 0
    differences: int = 0
    told: list[str] = field(default_factory=list)

    def differ(self, what: str, count: int = 1) -> None:
        self.differences += count
        if len(self.told) < TOLD_ALL_MAX:
            self.told.append(what)

    def add(self, found: Comparison) -> None:
        """Add the findings of a task."""
        self.parts += 1
        self.gone += found.gone
        self.messages += found.messages
        self.entries += found.entries
        self.differences += found.differences - len(found.told)
        for each in found.told:
            self.differ(each)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="magnetar spark verify",
        description="Compare topics with their offloaded ledgers, message by message, with Spark. Exit "
        "codes: 0 equal, 1 differences, 2 the command line is wrong, 3 no broker.",
        epilog=CREDENTIALS,
    )
    add_common(made)
    made.add_argument(
        "--ledger", action="append", type=int, default=[], metavar="ID", help="only this ledger; repeat it"
    )
    return made


def main(arguments: Sequence[str]) -> int:
    """Run it; returns the exit code."""
    given = parser().parse_args(arguments)
    return exit_code_of(lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    found = Verified()
    tasks: list[CompareTask] = []
    missing = set(given.ledger)
    service = service_of(given)
    with open_channel(service) as channel:
        for topic in topics_of(given):
            ledgers = [
                each
                for each in channel.describe(topic).ledgers
                if not given.ledger or each.ledger_id in given.ledger
            ]
            missing.difference_update(each.ledger_id for each in ledgers)
            tasks += plan(ledgers, service, found)
    if missing:
        raise ConfigError(
            f"--ledger {min(missing)} not found in the topics; magnetar offload status lists existing ledgers"
        )
    if tasks:
        with session_of("magnetar spark verify", given) as session:
            compared = with_progress(
                session, f"comparing {len(tasks):,} objects", lambda: run_tasks(session, compare_part, tasks)
            )
        for each in compared:
            found.add(each)
    show(found, as_json=given.json)
    return FAILED if found.differences else DONE


def plan(ledgers: Sequence[Ledger], service: ServiceAddress, found: Verified) -> list[CompareTask]:
    """A task for each object of the ledgers of a topic; counts ledgers, and what is wrong with manifests."""
    tasks: list[CompareTask] = []
    offloaded = [(ledger, cold) for ledger in ledgers if (cold := cold_ledger(ledger)) is not None]
    found.not_offloaded += len(ledgers) - len(offloaded)
    manifests = read_manifests([cold for _, cold in offloaded])
    for (ledger, _), manifest in zip(offloaded, manifests, strict=True):
        state = ledger.offload
        where = f"{ledger.topic}, ledger {ledger.ledger_id}"
        if state.left_bookies_ms:
            source = None
            found.objects_only += 1
        else:
            source = hot_source(service, ledger.topic, ledger)
            found.ledgers += 1
        if isinstance(manifest, MagnetarError):
            if gone_meanwhile(service, ledger.topic, ledger.ledger_id, state.path, manifest):
                found.gone += 1
                continue
            found.differ(f"{where}: manifest: {type(manifest).__name__}: {manifest}")
            continue
        if isinstance(manifest, Exception):
            raise manifest
        for difference in manifest_differences(manifest, ledger):
            found.differ(f"{where}: manifest: {difference}")
        tasks += [
            CompareTask(
                ledger.topic,
                ledger.ledger_id,
                state.location,
                state.path,
                part,
                manifest.exact,
                source,
                service,
            )
            for part in manifest.parts
        ]
    return tasks


def manifest_differences(manifest: Manifest, ledger: Ledger) -> list[str]:
    """Describe in words where a manifest differs from the ledger's metadata; empty: nowhere."""
    expected = {
        "topic": ledger.topic,
        "creation_id": ledger.creation_id,
        "ledger_id": ledger.ledger_id,
        "ledger_key": ledger.ledger_key,
        "attempt": ledger.offload.attempt,
        "last_entry_id": ledger.last_entry_id,
        "entries": ledger.last_entry_id + 1,
        "rows": ledger.offload.rows,
        "raw_entries": ledger.offload.raw_entries,
    }
    return [
        f"{name} is {getattr(manifest, name)!r}, the metadata says {value!r}"
        for name, value in expected.items()
        if getattr(manifest, name) != value
    ]


def show(found: Verified, *, as_json: bool) -> None:
    """The result: a line, with a line for each difference on stderr, or JSON."""
    if as_json:
        print(json.dumps(asdict(found)))
        return
    for each in found.told:
        print(each, file=sys.stderr)
    if found.differences > len(found.told):
        print(f"... and {found.differences - len(found.told):,} more differences", file=sys.stderr)
    only = f", {found.objects_only:,} that left bookies with their manifests" if found.objects_only else ""
    print(
        f"{found.ledgers:,} offloaded ledgers compared with their entries{only}: {found.messages:,} messages "
        f"of {found.entries:,} entries in {found.parts:,} objects, "
        f"{found.differences:,} difference{'s' if found.differences != 1 else ''}; "
        f"{found.not_offloaded:,} ledgers are not offloaded"
        + (f"; {found.gone:,} objects were trimmed, or left bookies, meanwhile" if found.gone else "")
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
