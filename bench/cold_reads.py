"""`python -m bench.cold_reads`: how fast clients read back what has left for Parquet.

Text of installed packages in pieces of 1 KiB is published in batches, offloaded (by this process, as a job of
Spark does it) and let go of by the log. Then readers of the client from PyPI, each a process, go through the
whole topic at once; and the same is read inside one process without clients and server, which is what the
broker's part alone can do.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pulsar
from magnetar.broker.cold.cold_ledgers import ColdLedgers
from magnetar.common.runtime.blocking import ThreadPool
from magnetar.common.runtime.clock import SystemClock
from magnetar.ledger.cold.cold_reader import ColdLedger

from bench.cold.server import ledgers, publish, running, wait_until_it_left
from bench.cold.text import texts
from bench.progress import Steps
from bench.table import markdown
from bench.target import RESULTS, new_topic
from tests.integration.harness import temporary_directory
from tests.integration.small_job import offload_all
from tests.spark.servers import RECEIVE_MS_MAX, SparkServer

PIECE_BYTES: Final = 1_024
READERS: Final = (1, 2, 4)
READ_BYTES: Final = 5 << 20
"""The limit of one read of a subscription: dispatcherMaxReadSizeBytes."""
CACHE_BYTES: Final = 64 << 20
READERS_END_S: Final = 600
TABLE: Final = RESULTS / "cold_reads.md"


def read_with_client(url: str, topic: str, messages: int) -> float:
    """Seconds that a reader of the client from PyPI takes for so many messages from the first one on."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
    reader.read_next(RECEIVE_MS_MAX)
    began = time.perf_counter()
    for _ in range(messages - 1):
        reader.read_next(RECEIVE_MS_MAX)
    seconds = time.perf_counter() - began
    client.close()
    return seconds


def clients(server: SparkServer, topic: str, messages: int, readers: int) -> tuple[float, float]:
    """(messages a second of the slowest of so many readers at once, CPU seconds of the server a million)."""
    pid = server.pid
    before = _cpu_seconds(pid)
    command = [
        *(sys.executable, "-m", "bench.cold_reads"),
        *("--read", server.endpoint.service_url, topic, str(messages)),
    ]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(readers)]
    try:
        told = [float(each.communicate(timeout=READERS_END_S)[0]) for each in started]
    finally:
        for each in started:
            each.kill()
    return messages / max(told), (_cpu_seconds(pid) - before) / (readers * messages) * 1e6


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def inside(cold_ledgers: Sequence[ColdLedger], readers: int) -> float:
    """Messages a second of the slowest of so many readers in this process."""
    pool = ThreadPool(2, "cold")
    cold = ColdLedgers(lambda _: pool, SystemClock(), cache_bytes=CACHE_BYTES)

    async def read() -> float:
        began, messages = time.perf_counter(), 0
        for ledger in cold_ledgers:
            at = 0
            while at <= ledger.last_entry_id:
                runs = await cold.read(ledger, at, ledger.last_entry_id, READ_BYTES)
                messages += sum(run.messages for run in runs)
                at = runs[-1].last_entry_id + 1
        return messages / (time.perf_counter() - began)

    try:
        return min(await asyncio.gather(*(read() for _ in range(readers))))
    finally:
        await cold.close()
        pool.close()


def measure(messages: int, readers: Sequence[int]) -> list[tuple[str, float, float, float]]:
    """(readers, messages a second of each by clients, inside, server CPU a million), by numbers of them."""
    rows = []
    directory = temporary_directory()
    try:
        with Steps(2 + len(readers)) as steps, running() as server:
            topic = new_topic()
            steps.begin(f"publishing {messages:,} messages")
            publish(server, topic, itertools.islice(texts(PIECE_BYTES), messages))
            steps.begin("offloading")
            cold_ledgers = offload_all(server.offload_address, topic, directory.as_uri())
            wait_until_it_left(server, topic)
            assert all(each.offload.left_bookies_ms for each in ledgers(server, topic))
            for count in readers:
                steps.begin(f"{count} reading")
                by_clients, cpu = clients(server, topic, messages, count)
                rows.append((str(count), by_clients, asyncio.run(inside(cold_ledgers, count)), cpu))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000, help="of 1 KiB (default 500,000)")
    parser.add_argument("--quick", action="store_true", help="20,000 messages, one and two readers")
    parser.add_argument("--read", nargs=3, metavar=("URL", "TOPIC", "MESSAGES"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.read:
        url, topic, messages = options.read
        print(read_with_client(url, topic, int(messages)))
        return
    rows = measure(20_000 if options.quick else options.messages, READERS[:2] if options.quick else READERS)
    headings = (
        "readers at once",
        "messages/s each, clients",
        "messages/s each, inside one process",
        "server CPU s per million",
    )
    markdown(TABLE, headings, rows)
    print(TABLE.read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
