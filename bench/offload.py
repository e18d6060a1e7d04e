"""`python -m bench.offload`: what it costs to offload a topic, and what its Parquet costs to ask.

Text of installed packages in pieces of 1 KiB is published to a topic for each size, the largest one twice, so
that it can be offloaded on one core and on several. The cost of one more gigabyte is the difference of the
sizes: starting Java and Spark is not in it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.cold import queries
from bench.cold.server import offload, publish, running
from bench.cold.text import texts
from bench.progress import Steps
from bench.table import into_page, lines, markdown
from bench.target import RESULTS, new_topic, report
from tests.integration.harness import ROOT, temporary_directory
from tests.spark.servers import SparkServer

PIECE_BYTES: Final = 1_024
GIGABYTES: Final = (0.2, 2.0)
QUICK_GIGABYTES: Final = (0.01, 0.04)
TABLE: Final = RESULTS / "offload.md"
PAGE: Final = ROOT / "docs" / "spark.md"


def measure(gigabytes: float, cores: int, server: SparkServer, directory: Path) -> dict[str, float]:
    """Publish so much, offload it, ask both engines for a count and for what a filter leaves."""
    topic = new_topic()
    objects = directory / topic.rpartition("/")[2]
    count = int(gigabytes * 1e9) // PIECE_BYTES
    published = publish(server, topic, itertools.islice(texts(PIECE_BYTES), count))
    moved = offload(server, topic, objects.as_uri(), f"local[{cores}]")
    figures = {
        "messages": published.messages,
        "payload MB": published.payload_bytes / 1e6,
        "published messages/s": published.messages / published.seconds,
        "offload s": moved.seconds,
        "offload MB/s": published.payload_bytes / 1e6 / moved.seconds,
        "offload CPU s": moved.cpu_seconds,
        "log bytes a message": moved.log_bytes / published.messages,
        "Parquet bytes a message": moved.object_bytes / published.messages,
    }
    figures |= asked(objects, directory, published.messages, cores)
    shutil.rmtree(objects)
    return figures


def asked(objects: Path, directory: Path, messages: int, cores: int) -> dict[str, float]:
    """Seconds of a count and of a filter over all payloads, each the second time: engines are warm then."""
    session = queries.spark_session(cores, directory)
    connection = queries.duckdb_over(objects)
    try:
        queries.as_messages(session.read.parquet(str(objects)))
        figures = {}
        for name, query in (("count", queries.COUNT), ("filter", queries.FILTER)):
            by_spark, figures[f"Spark {name} s"] = second(partial(queries.spark_answers, session, query))
            by_duckdb, figures[f"DuckDB {name} s"] = second(
                partial(queries.duckdb_answers, connection, query)
            )
            assert by_spark == by_duckdb, (query, by_spark, by_duckdb)
            if query == queries.COUNT:
                assert by_spark == [(messages,)], (by_spark, messages)
        figures["Spark filter messages/s"] = messages / figures["Spark filter s"]
    finally:
        connection.close()
        session.stop()
    return figures


def second(ask: Callable[[], queries.Rows]) -> tuple[queries.Rows, float]:
    """An answer, and the seconds it took when it was asked for again."""
    ask()
    began = time.monotonic()
    return ask(), time.monotonic() - began


def growth(small: dict[str, float], large: dict[str, float]) -> dict[str, float]:
    """The cost of the difference of two sizes."""
    more = large["payload MB"] - small["payload MB"]
    taken = max(large["offload s"] - small["offload s"], 1e-9)
    cpu = max(large["offload CPU s"] - small["offload CPU s"], 1e-9)
    return {
        "one more GB: offload s": taken / more * 1e3,
        "one more GB: offload MB/s": more / taken,
        "one more GB: offload MB/s of CPU": more / cpu,
        "times the payload": large["payload MB"] / small["payload MB"],
        "times the offload s": large["offload s"] / small["offload s"],
        "times the Spark filter s": large["Spark filter s"] / small["Spark filter s"],
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gigabytes", type=float, nargs=2, help=f"small and large (default {GIGABYTES})")
    parser.add_argument("--quick", action="store_true", help=f"sizes of {QUICK_GIGABYTES}")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="for Spark (default: all)")
    parser.add_argument("--table", type=Path, default=TABLE, help="where a Markdown table of it is written")
    parser.add_argument("--docs", action="store_true", help=f"put the table into {PAGE.name} as well")
    options = parser.parse_args(argv)
    small, large = options.gigabytes or (QUICK_GIGABYTES if options.quick else GIGABYTES)
    load = os.getloadavg()[0]
    print(f"offload, {os.cpu_count()} cores, load before it {load:.1f}:", flush=True)
    wanted = [(small, 1), (large, 1), *([(large, options.cores)] if options.cores > 1 else [])]
    columns: list[dict[str, float]] = []
    directory = temporary_directory()
    try:
        with Steps(len(wanted)) as steps, running(2 if options.quick else 64) as server:
            for gigabytes, cores in wanted:
                steps.begin(f"{gigabytes:g} GB on {cores} core{'s' * (cores > 1)}")
                columns.append(measure(gigabytes, cores, server, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    write(options, wanted, columns, growth(columns[0], columns[1]), load)


def write(
    options: argparse.Namespace,
    wanted: Sequence[tuple[float, int]],
    columns: Sequence[dict[str, float]],
    more: dict[str, float],
    load: float,
) -> None:
    headings = [
        "figure",
        *(f"{gigabytes:g} GB, {cores} core{'s' * (cores > 1)}" for gigabytes, cores in wanted),
    ]
    rows: list[list[Any]] = [[name, *(column[name] for column in columns)] for name in columns[0]]
    rows += [[name, "", value, *([""] * (len(columns) - 2))] for name, value in more.items()]
    markdown(options.table, headings, rows)
    if options.docs:
        when = time.strftime("%Y-%m-%d", time.gmtime())
        how = f"On {when}, {os.cpu_count()} cores, with a load of {load:.1f} of other things before it:"
        into_page(PAGE, "costs", [how, "", *lines(headings, rows)])
    flat = {
        f"{heading}: {name}": column[name]
        for heading, column in zip(headings[1:], columns, strict=True)
        for name in column
    }
    report("offload", {"load before": load, **flat, **more})
    print(f"as a table: {options.table}")


if __name__ == "__main__":
    main()
