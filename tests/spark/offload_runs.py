"""Starts of `python -m magnetar.spark.offload` in tests, and looks at what it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import COMPLETE, Ledger
from magnetar.ledger.cold.layout import MANIFEST_NAME, Manifest
from magnetar.ledger.cold.marker import MARKER_NAME
from magnetar.ledger.cold.objects import ObjectStore, open_store
from magnetar.spark.offload.command import main, run_in
from pyspark.sql import SparkSession

from tests.integration.harness import ROOT
from tests.spark.servers import SHORT_LIVED

RUN_S_MAX: Final = 240.0
LOCAL_CONF: Final = (
    "--conf",
    "spark.sql.shuffle.partitions=2",
    "--conf",
    "spark.driver.memory=512m",
    "--conf",
    f"spark.driver.extraJavaOptions={SHORT_LIVED}",
)


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """What --json printed."""
        return [json.loads(line) for line in self.stdout.splitlines() if line.startswith("{")]


def command(*arguments: str) -> list[str]:
    """As `magnetar offload` starts it."""
    return [sys.executable, "-m", "magnetar.spark.offload", *arguments]


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Of a job: what tests define can be imported, and nothing of the machine's own settings counts."""
    kept = {key: value for key, value in os.environ.items() if not key.upper().startswith("MAGNETAR_")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def offload(*arguments: str, more: Mapping[str, str] | None = None, code: int | None = 0) -> Ran:
    """Run a command to its end; fails unless it ends with `code`."""
    done = subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(more or {}),
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    ran = Ran(done.returncode, done.stdout, done.stderr)
    assert code is None or ran.code == code, f"ended with {ran.code}\n{ran.stdout}\n{ran.stderr[-5_000:]}"
    return ran


def run_in_session(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], address: str, *more: str, code: int = 0
) -> Ran:
    """The job in the session that all tests share: much sooner than in a process of its own."""
    capfd.readouterr()
    found = run_in(spark, ["--service", address, "--json", *more])
    out, err = capfd.readouterr()
    assert found == code, f"ended with {found}\n{out}\n{err[-5_000:]}"
    return Ran(found, out, err)


def told(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Ran:
    """`status` and `sweep`, and command lines that come to nothing, in this process."""
    capfd.readouterr()
    try:
        found = main(arguments)
    except SystemExit as ended:  # of argparse
        found = int(ended.code or 0)
    out, err = capfd.readouterr()
    assert found == code, f"ended with {found}\n{out}\n{err[-5_000:]}"
    return Ran(found, out, err)


def run_arguments(address: str, *more: str, master: str = "local[2]") -> list[str]:
    """Of a job on this machine that prints JSON."""
    return ["run", "--service", address, "--master", master, "--json", *LOCAL_CONF, *more]


def ledgers_of(address: str, topic: str) -> list[Ledger]:
    """A topic's ledgers, as brokers describe them."""
    with OffloadChannel(address) as channel:
        return channel.describe(topic).ledgers


def complete_ledgers(address: str, topic: str) -> list[Ledger]:
    """Those that are offloaded."""
    return [each for each in ledgers_of(address, topic) if each.offload.state == COMPLETE]


def manifest_of(ledger: Ledger) -> Manifest:
    """Of an offloaded ledger."""
    store = open_store(ledger.offload.location)
    return Manifest.from_json(store.read(f"{ledger.offload.path}/{MANIFEST_NAME}"))


def part_files(ledgers: Iterable[Ledger]) -> list[str]:
    """Paths of all parts of ledgers that lie in directories of this machine, in order."""
    return [
        str(Path(ledger.offload.location.removeprefix("file://")) / ledger.offload.path / part.name)
        for ledger in ledgers
        for part in manifest_of(ledger).parts
    ]


def unnamed(store: ObjectStore, ledgers: Sequence[Ledger]) -> set[str]:
    """Objects at a location that belong to no offloaded ledger of these, but for the location's mark."""
    named = {MARKER_NAME}
    for ledger in ledgers:
        if ledger.offload.state == COMPLETE:
            names = [MANIFEST_NAME, *(part.name for part in manifest_of(ledger).parts)]
            named |= {f"{ledger.offload.path}/{name}" for name in names}
    return {each.path for each in store.list()} - named
