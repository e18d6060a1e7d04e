"""The same SQL for Spark and for DuckDB, about offloaded lines of text; answers are plain values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
from pyspark.sql import DataFrame, SparkSession

Rows = list[tuple[object, ...]]

QUERIES: Final[Mapping[str, str]] = {
    "how much": """
        SELECT count(*), count(DISTINCT message_index), min(message_index), max(message_index),
               sum(octet_length(payload)), count(DISTINCT key)
        FROM messages""",
    "lines by suffix": """
        SELECT properties['suffix'] AS suffix, count(*) AS lines, sum(octet_length(payload))
        FROM messages GROUP BY properties['suffix'] ORDER BY lines DESC, suffix LIMIT 20""",
    "files that import most": """
        SELECT key, count(*) AS imports FROM messages
        WHERE contains(CAST(payload AS {text}), 'import ') GROUP BY key
        ORDER BY imports DESC, key LIMIT 20""",
    "lines by year of their file": """
        SELECT year(event_time) AS changed, count(*) FROM messages
        GROUP BY year(event_time) ORDER BY changed""",
    "entries by ledger": """
        SELECT ledger_id, count(DISTINCT entry_id), min(entry_id), max(entry_id), count(*),
               min({micros}(publish_time)), max({micros}(broker_publish_time))
        FROM messages GROUP BY ledger_id ORDER BY ledger_id""",
    "every payload, by its digest": """
        SELECT substring(digest, 1, 2) AS first, count(*), count(DISTINCT digest), min(digest), max(digest)
        FROM (SELECT md5(payload) AS digest FROM messages) digests
        GROUP BY substring(digest, 1, 2) ORDER BY first""",
}
COUNT: Final = "SELECT count(*) FROM messages"
FILTER: Final = """
    SELECT count(*), sum(octet_length(payload)) FROM messages
    WHERE contains(CAST(payload AS {text}), 'import ')"""
_SPARK: Final = {"micros": "unix_micros", "text": "string"}
_DUCKDB: Final = {"micros": "epoch_us", "text": "varchar"}


def spark_session(cores: int, directory: Path) -> SparkSession:
    """Spark on so many cores of this machine, in UTC, without its web page."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("magnetar-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", str(2 * cores))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def spark_answers(session: SparkSession, query: str) -> Rows:
    """Queries of Spark SQL; the table is the temporary view `messages`."""
    return plain([tuple(row) for row in session.sql(query.format(**_SPARK)).collect()])


def as_messages(table: DataFrame) -> None:
    """Let a table be what queries call `messages`."""
    table.createOrReplaceTempView("messages")


def duckdb_over(directory: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB with a view `messages` of every part below a directory: it knows nothing of Magnetar."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    pattern = f"{directory}/**/part-*.parquet".replace("'", "''")
    connection.execute(f"CREATE VIEW messages AS SELECT * FROM read_parquet('{pattern}')")
    return connection


def duckdb_answers(connection: duckdb.DuckDBPyConnection, query: str) -> Rows:
    """Queries of DuckDB's view `messages`."""
    return plain(connection.execute(query.format(**_DUCKDB)).fetchall())


def plain(rows: Sequence[Sequence[Any]]) -> Rows:
    """Engines have different types for sums: what is a whole number is an int."""
    return [tuple(int(value) if isinstance(value, Decimal) else value for value in row) for row in rows]
