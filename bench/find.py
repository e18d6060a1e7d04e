"""`python -m bench.find`: what `magnetar find` reads of offloaded messages, and how long it takes.

Messages of 100 bytes are published in batches to two topics: in one keys are unique and without order, in
the other, a tenth as large, they ascend. Both are offloaded as a job does it, without Spark. Then commands
look for messages by time, key, property, text and id. Each is a process of its own: its start is in the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from magnetar.client import Batching, Client
from magnetar.common.offload.offload_client import OffloadChannel
from magnetar.common.offload.offload_pb2 import Ledger

from bench.cold.server import ledgers, running, wait_until_it_left
from bench.progress import Steps
from bench.table import into_page, lines, markdown
from bench.target import RESULTS, new_topic
from tests.integration.harness import ROOT, magnetar_command, temporary_directory
from tests.integration.small_job import offload
from tests.spark.servers import SparkServer, close_ledgers

MESSAGES: Final = 10_000_000
QUICK_MESSAGES: Final = 100_000
ASCENDING_SHARE: Final = 10
PAYLOAD_BYTES: Final = 100
LEDGER_MEGABYTES: Final = 128
UNCONFIRMED: Final = 50_000
BATCH: Final = Batching(max_messages=1_000, max_bytes=512 << 10, max_delay_s=0.01)
MIB: Final = 1 << 20

TABLE: Final = RESULTS / "find.md"
PAGE: Final = ROOT / "docs" / "find.md"
HEADINGS: Final = ("search", "found", "ledgers", "row groups", "rows", "MiB read", "seconds")


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic whose messages are offloaded."""

    name: str
    messages: int
    middle_ms: int
    """When half of them were published."""


def spread(number: int) -> str:
    """A unique key without order: multiplication by an odd number permutes 64 bits."""
    return f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"


def payload(number: int) -> bytes:
    """JSON of the size that is measured; no two are equal."""
    head = f'{{"order": {number}, "total": {number * 7919 % 100_000}, "note": "{spread(number ^ 0x5555)}'
    return f'{head}{"." * (PAYLOAD_BYTES - len(head) - 2)}"}}'.encode()


async def publish(url: str, name: str, messages: int, *, ascending: bool) -> int:
    """Publishes, and returns the time at which half was sent, in ms since 1970."""
    middle_ms = 0
    async with Client(url) as client:
        producer = await client.create_producer(
            name, batching=BATCH, max_pending_messages=UNCONFIRMED + 1_000
        )
        for number in range(messages):
            if number % UNCONFIRMED == 0:
                await producer.flush()
            elif number % 1_000 == 0:
                await asyncio.sleep(0)
            if number == messages // 2:
                middle_ms = time.time_ns() // 1_000_000
            producer.send_nowait(
                payload(number),
                key=f"order-{number:09d}" if ascending else spread(number),
                properties={"trace": f"{number // 100:x}"},
            )
        await producer.flush()
    return middle_ms


def offload_one(address: str, topic: str, location: str, serialized: bytes) -> None:
    """Offloads one ledger, in a process of its own."""
    with OffloadChannel(address) as channel:
        offload(channel, topic, location, Ledger.FromString(serialized))


def prepared(server: SparkServer, messages: int, directory: Path, steps: Steps, *, ascending: bool) -> Topic:
    """Publishes and offloads a topic, until the log has nothing of it any more."""
    name = new_topic()
    kind = "ascending" if ascending else "unordered"
    steps.begin(f"publishing {messages:,} messages with {kind} keys")
    middle_ms = asyncio.run(publish(server.endpoint.service_url, name, messages, ascending=ascending))
    close_ledgers(server.rest, name)
    location = directory.as_uri()
    with OffloadChannel(server.offload_address) as channel:
        wanted = [each.SerializeToString() for each in channel.want(name, location=location)]
    steps.begin(f"offloading {len(wanted)} ledgers")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=spawn) as pool:
        for done in [
            pool.submit(offload_one, server.offload_address, name, location, each) for each in wanted
        ]:
            done.result()
    wait_until_it_left(server, name)
    assert all(each.offload.left_bookies_ms for each in ledgers(server, name))
    return Topic(name, messages, middle_ms)


def find(server: SparkServer, topic: Topic, *arguments: str) -> tuple[dict[str, Any], float]:
    """The report of a search, and the seconds that the process took."""
    command = [
        *magnetar_command(),
        *("find", topic.name, "--json", "--url", server.endpoint.service_url),
        *("--admin-url", server.endpoint.http_url, *arguments),
    ]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.monotonic() - began
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["report"]
    return report, seconds


def searches(unordered: Topic, ascending: Topic) -> Iterator[tuple[str, Topic, int | None, list[str]]]:
    """(what, topic, matches if they are known, options) of each search."""
    number, of_ascending = unordered.messages * 2 // 3, ascending.messages * 2 // 3
    trace = f"trace={number // 100:x}"
    since, until = str(unordered.middle_ms), str(unordered.middle_ms + 1_000)
    yield "one second, first match", unordered, 1, ["--since", since, "--until", until, "--limit", "1"]
    yield "one second, all", unordered, None, ["--since", since, "--until", until, "--limit", "0"]
    yield "key, unordered", unordered, 1, ["--key", spread(number)]
    yield "key that no message has", unordered, 0, ["--key", spread(number + unordered.messages)]
    yield "key, ascending", ascending, 1, ["--key", f"order-{of_ascending:09d}"]
    yield "property", unordered, 100, ["--property", trace, "--limit", "0"]
    yield (
        "property, in an hour before the middle",
        unordered,
        None,
        [
            *("--property", f"trace={unordered.messages // 300:x}", "--limit", "0"),
            *("--since", str(unordered.middle_ms - 3_600_000), "--until", since),
        ],
    )
    yield "text", unordered, 1, ["--text", f'"order": {number},', "--limit", "0"]
    yield "text and key", unordered, 1, ["--text", f'"order": {number},', "--key", spread(number)]


def row_of(what: str, report: dict[str, Any], seconds: float) -> tuple[object, ...]:
    read = report["objects"]
    return (
        what,
        report["found"],
        f"{read['ledgers']} of {read['ofLedgers']}",
        f"{read['rowGroups']} of {read['ofRowGroups']}",
        read["rows"],
        f"{read['bytes'] / MIB:,.1f} of {read['ofBytes'] / MIB:,.0f}",
        seconds,
    )


def measure(messages: int) -> list[tuple[object, ...]]:
    """A row for each search; each is checked for what it finds."""
    rows = []
    directory = temporary_directory()
    try:
        ledger_megabytes = max(1, min(LEDGER_MEGABYTES, messages * 200 // (4 * MIB)))
        with Steps(14) as steps, running(ledger_megabytes) as server:
            unordered = prepared(server, messages, directory, steps, ascending=False)
            ascending = prepared(server, messages // ASCENDING_SHARE, directory, steps, ascending=True)
            found_id = ""
            for what, topic, expected, options in searches(unordered, ascending):
                steps.begin(what)
                report, seconds = find(server, topic, *options)
                assert expected in (None, report["found"]), (what, report)
                assert report["brokers"]["messages"] == 0, "everything is cold"
                found_id = report["continueFrom"] or found_id
                rows.append(row_of(what, report, seconds))
                print(rows[-1], flush=True)
            steps.begin("id")
            ledger, entry, *_ = found_id.split(":")
            report, seconds = find(server, unordered, "--id", f"{ledger}:{entry}", "--limit", "0")
            rows.append(row_of("id of an entry", report, seconds))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"of 100 bytes (default {MESSAGES:,})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MESSAGES:,} messages")
    parser.add_argument("--docs", action="store_true", help=f"put the table into {PAGE.name} as well")
    options = parser.parse_args(argv)
    messages = QUICK_MESSAGES if options.quick else options.messages
    load = os.getloadavg()[0]
    rows = measure(messages)
    markdown(TABLE, HEADINGS, rows)
    print(TABLE.read_text(encoding="utf-8"), end="")
    if options.docs:
        told = f"On {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {load:.1f} before it:"
        into_page(PAGE, "searches", ["", told, "", *lines(HEADINGS, rows)])


if __name__ == "__main__":
    main()
