"""`python -m bench.spark_proof`: real text, published, offloaded, asked by two engines, consumed back.

The lines of the files of installed packages, of Python's library and of /usr/share/doc are published by the
client from PyPI, each with its file as key and properties. `magnetar offload run` writes them as Parquet, the
server's log lets go of them, Spark SQL and DuckDB are asked the same, and the client from PyPI reads all of
them from the server, which has them from nowhere but the objects. Ends with an error at the first difference.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pulsar
from magnetar.spark import read_topic

from bench.cold import queries
from bench.cold.server import offload, peak_memory, publish, running, wait_until_it_left
from bench.cold.text import texts
from bench.progress import Steps
from bench.table import into_page, lines, markdown
from bench.target import RESULTS, report
from tests.integration.harness import ROOT, temporary_directory
from tests.spark.servers import SparkServer, close_ledgers, pulsar_client

MESSAGES: Final = 5_000_000
QUICK_MESSAGES: Final = 50_000
TOPIC: Final = "persistent://public/default/lines-of-installed-packages"
RECEIVE_MS_MAX: Final = 60_000
TABLE: Final = RESULTS / "spark-proof.md"
PAGE: Final = ROOT / "docs" / "spark.md"


class Different(AssertionError):
    """Raised when the result differs from the input, or two engines disagree."""


def prove(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a run; raises Different."""
    directory = temporary_directory()
    objects = directory / "cold"
    figures: dict[str, Any] = {}
    steps = Steps(5 + len(queries.QUERIES))
    try:
        with steps, running(options.ledger_megabytes) as server:
            steps.begin(f"publish {options.messages:,} lines")
            published = publish(server, TOPIC, itertools.islice(texts(), options.messages))
            figures |= {
                "messages": published.messages,
                "payload MB": published.payload_bytes / 1e6,
                "published messages/s": published.messages / published.seconds,
            }
            steps.begin("offload")
            moved = offload(server, TOPIC, objects.as_uri(), f"local[{options.cores}]")
            figures |= {
                "ledgers offloaded": moved.ledgers,
                "offload s": moved.seconds,
                "log bytes a message": moved.log_bytes / published.messages,
                "Parquet bytes a message": moved.object_bytes / published.messages,
            }
            steps.begin("wait until the log has let go")
            figures["let go of within s"] = wait_until_it_left(server, TOPIC)
            figures |= ask_both(steps, server, objects, directory, published.messages, options.cores)
            steps.begin("consume all of it from objects")
            close_ledgers(server.rest, TOPIC)  # nothing of it is in a cache
            with peak_memory(server.pid) as peak:
                figures["consumed back messages/s"] = consume_back(server, published.messages)
            figures["server, peak MiB meanwhile"] = peak[0] / 2**20
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def ask_both(
    steps: Steps, server: SparkServer, objects: Path, directory: Path, messages: int, cores: int
) -> dict[str, Any]:
    """Every query to Spark SQL over the topic and to DuckDB over the files; raises Different."""
    figures: dict[str, Any] = {}
    steps.begin("start Spark")
    session = queries.spark_session(cores, directory)
    connection = queries.duckdb_over(objects)
    try:
        options = {"offload.address": server.offload_address, "topic": TOPIC}
        queries.as_messages(read_topic(session, options))
        for name, query in queries.QUERIES.items():
            steps.begin(name)
            by_spark, spark_s = timed(queries.spark_answers, session, query)
            by_duckdb, duckdb_s = timed(queries.duckdb_answers, connection, query)
            if by_spark != by_duckdb:
                raise Different(f"{name}: Spark says {by_spark[:5]}, DuckDB {by_duckdb[:5]}")
            figures |= {f"Spark SQL s: {name}": spark_s, f"DuckDB s: {name}": duckdb_s}
        counted = queries.spark_answers(session, queries.COUNT)
        if counted != [(messages,)]:
            raise Different(f"{messages} messages were published, {counted} are in the table")
    finally:
        connection.close()
        session.stop()
    return figures


def timed(ask: Any, engine: Any, query: str) -> tuple[queries.Rows, float]:
    began = time.monotonic()
    return ask(engine, query), time.monotonic() - began


def consume_back(server: SparkServer, messages: int) -> float:
    """Read the topic from its first message on and compare each with its file; messages a second.

    Raises:
        Different: a message is not the one that was published at its place.
    """
    began = time.monotonic()
    with pulsar_client(server.endpoint) as client:
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, receiver_queue_size=10_000)
        before: tuple[int, int, int] | None = None
        for number, text in enumerate(itertools.islice(texts(), messages)):
            message = reader.read_next(RECEIVE_MS_MAX)
            if (
                message.data() != text.payload
                or message.partition_key() != text.key
                or message.event_timestamp() != text.changed_ms
                or message.properties() != text.properties
            ):
                raise Different(f"message {number} is {message.data()!r:.200}, published was {text!r:.400}")
            found = message.message_id()
            place = (found.ledger_id(), found.entry_id(), found.batch_index())
            if before is not None and place <= before:
                raise Different(f"message {number} is at {place}, after {before}")
            before = place
        if reader.has_message_available():
            raise Different(f"there is more than the {messages} messages that were published")
        reader.close()
    return messages / (time.monotonic() - began)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, help=f"lines (default {MESSAGES:,})")
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK_MESSAGES:,} lines")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="for Spark (default: all)")
    parser.add_argument("--ledger-megabytes", type=int, default=64, help="of each ledger (default 64)")
    parser.add_argument("--table", type=Path, default=TABLE, help="where a Markdown table of it is written")
    parser.add_argument("--docs", action="store_true", help=f"put the table into {PAGE.name} as well")
    options = parser.parse_args(argv)
    if options.messages is None:
        options.messages = QUICK_MESSAGES if options.quick else MESSAGES
    if options.quick:
        options.ledger_megabytes = 1
    load = os.getloadavg()[0]
    print(
        f"{options.messages:,} lines of text, {os.cpu_count()} cores, load before it {load:.1f}:", flush=True
    )
    figures = prove(options)
    report("spark-proof", {"load before": load, **figures})
    headings, rows = ["figure", "value"], [[name, value] for name, value in figures.items()]
    markdown(options.table, headings, rows)
    if options.docs:
        when = time.strftime("%Y-%m-%d", time.gmtime())
        how = f"On {when}, {os.cpu_count()} cores, with a load of {load:.1f} of other things before it:"
        into_page(PAGE, "proof", [how, "", *lines(headings, rows)])
    print("same answers from both engines, every message byte for byte as it was published")
    print(f"as a table: {options.table}")


if __name__ == "__main__":
    main()
