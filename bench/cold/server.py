"""A standalone whose topics have ledgers of a size to be offloaded, and what is done to it from outside."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pulsar
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import Ledger

from bench.cold.text import Text
from tests.integration.harness import eventually, magnetar_command, temporary_directory
from tests.spark.servers import SparkServer, close_ledgers, pulsar_client

LOOK_SECONDS: Final = 0.2
LEAVES_SECONDS_MAX: Final = 300.0
JOB_SECONDS_MAX: Final = 3_600.0
BATCH_MESSAGES: Final = 1_000
LEDGER_MEGABYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Published:
    """The content published to a topic."""

    messages: int
    payload_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Offloaded:
    """Cost and result of an offload."""

    seconds: float
    cpu_seconds: float
    """Total of the job's processes, Java and Python."""
    object_bytes: int
    log_bytes: int
    ledgers: int


@contextmanager
def running(ledger_megabytes: int = LEDGER_MEGABYTES) -> Iterator[SparkServer]:
    """A fresh standalone with default settings, but for the size of ledgers; nothing of it is left.

    What is offloaded leaves it as soon as it was looked at once more.
    """
    directory = temporary_directory()
    server = SparkServer(
        directory,
        {
            "managedLedgerMaxSizePerLedgerMbytes": str(ledger_megabytes),
            "managedLedgerOffloadDeletionLagMs": "0",
            "magnetarOffloadRefreshIntervalSeconds": "1",
        },
    )
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def publish(server: SparkServer, topic: str, texts: Iterable[Text]) -> Published:
    """Publish in order by the client from PyPI, in batches, and close the topic's ledger."""
    failed: list[pulsar.Result] = []
    count = payload_bytes = 0

    def sent(result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    following = iter(texts)
    texts = itertools.chain([next(following)], following)  # finding all files is not part of it
    began = time.monotonic()
    with pulsar_client(server.endpoint) as client:
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_messages=BATCH_MESSAGES,
            batching_max_allowed_size_in_bytes=512 * 1_024,
            batching_max_publish_delay_ms=10,
            max_pending_messages=20 * BATCH_MESSAGES,
            block_if_queue_full=True,
        )
        for text in texts:
            producer.send_async(
                text.payload,
                sent,
                partition_key=text.key,
                properties=text.properties,
                event_timestamp=text.changed_ms,
            )
            count += 1
            payload_bytes += len(text.payload)
        producer.flush()
        producer.close()
    seconds = time.monotonic() - began
    assert not failed, f"{len(failed)} were not published: {failed[:3]}"
    close_ledgers(server.rest, topic)
    return Published(count, payload_bytes, seconds)


def offload(server: SparkServer, topic: str, location: str, master: str) -> Offloaded:
    """Have `magnetar offload run` write every closed ledger of a topic below a local directory, a URI."""
    before = _log_bytes(server, topic)
    command = [
        *magnetar_command(),
        *("offload", "run", "--service", server.offload_address, "--topic", topic),
        *("--want", "--location", location, "--master", master),
    ]
    began = time.monotonic()
    with tempfile.TemporaryFile() as told:
        job = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=told,
            env=job_environment(),
            start_new_session=True,
        )
        cpu = _cpu_until_it_ends(job)
        seconds = time.monotonic() - began
        told.seek(0)
        assert job.returncode == 0, f"the job ended with {job.returncode}:\n{told.read().decode()}"
    parts = list(Path(urlsplit(location).path).rglob("part-*.parquet"))
    return Offloaded(
        seconds,
        cpu,
        sum(part.stat().st_size for part in parts),
        before,
        len({part.parent for part in parts}),
    )


def job_environment() -> dict[str, str]:
    """Java and Python of the job listen on loopback alone."""
    return {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONHASHSEED": "0"}


def _cpu_until_it_ends(job: subprocess.Popen[bytes]) -> float:
    """Return the CPU seconds of all processes of the job's session: Java is not a child whose usage is
    reported.

    Raises TimeoutError, with everything of the session killed.
    """
    spent: dict[int, float] = {}
    deadline = time.monotonic() + JOB_SECONDS_MAX
    while job.poll() is None:
        if time.monotonic() > deadline:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            raise TimeoutError(f"not offloaded within {JOB_SECONDS_MAX:g} s")
        for path in Path("/proc").glob("[0-9]*"):
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == job.pid:
                spent[int(path.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        time.sleep(LOOK_SECONDS)
    return sum(spent.values())


def ledgers(server: SparkServer, topic: str) -> list[Ledger]:
    """The topic's ledgers that have entries, as the server tells jobs of them."""
    with OffloadChannel(server.offload_address) as channel:
        return [ledger for ledger in channel.describe(topic).ledgers if ledger.entries]


def _log_bytes(server: SparkServer, topic: str) -> int:
    return sum(ledger.byte_length for ledger in ledgers(server, topic))


def wait_until_it_left(server: SparkServer, topic: str) -> float:
    """Until the log has none of the topic's closed ledgers any more; returns the seconds that took.

    The topic is loaded for it, by a reader: its owner lets go.
    """
    began = time.monotonic()

    def left() -> bool:
        return all(ledger.offload.left_bookies_ms for ledger in ledgers(server, topic))

    with pulsar_client(server.endpoint) as client:
        client.create_reader(topic, pulsar.MessageId.latest)
        eventually(left, f"everything of {topic} was let go of by the log", LEAVES_SECONDS_MAX)
    return time.monotonic() - began


@contextmanager
def peak_memory(pid: int) -> Iterator[list[int]]:
    """The highest resident memory of a process meanwhile, in bytes, in a list of one."""
    peak, over = [0], threading.Event()
    page = os.sysconf("SC_PAGE_SIZE")

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            peak[0] = max(peak[0], int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()
