"""`python -m bench.schema_producers`: what a schema costs where producers are created, beside Apache Pulsar.

Producers are created on new topics without a schema, on new topics with an Avro schema of 20 fields, and once
more on the latter, where the schema is known: all requests at once on one connection, and one at a time. The
brokers run one after the other, each alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from bench.brokers import (
    APACHE_PULSAR,
    MAGNETAR,
    ApachePulsar,
    Broker,
    Magnetar,
    apache_pulsar_jars,
    first_acknowledgement,
)
from bench.compaction import table
from bench.connection import Connection
from bench.figures import percentile
from bench.progress import Steps
from bench.table import lines, markdown
from bench.target import RESULTS, new_topic, report

TOPICS: Final = 1_000
LONE_SHARE: Final = 5
"""One at a time, this part of the topics."""
FIELDS: Final = 20
SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": f"field_{number}", "type": ["null", "string"]} for number in range(FIELDS)],
    }
).encode()
KINDS: Final = (
    ("without a schema", b"", False),
    ("with a new schema", SCHEMA, False),
    ("with a known schema", SCHEMA, True),
)
"""Name, schema, and whether the topics are those of the kind before."""
TABLE: Final = RESULTS / "schema_producers.md"


def measure(broker: Broker, count: int, steps: Steps) -> dict[str, float]:
    """Start a broker, and create producers of each kind."""
    name = APACHE_PULSAR if isinstance(broker, ApachePulsar) else MAGNETAR
    found: dict[str, float] = {}
    try:
        steps.begin(f"{name}: starting")
        first_acknowledgement(broker)
        target = broker.target
        _lone(
            target.service_url, [new_topic() for _ in range(count // LONE_SHARE)], SCHEMA
        )  # code paths are warm
        steps.begin(f"{name}: {count:,} producers at once, of each kind")
        topics: list[str] = []
        for kind, schema, again in KINDS:
            topics = topics if again else [new_topic() for _ in range(count)]
            with closing(Connection(target.service_url)) as connection:
                cpu, began = target.cpu_seconds(), time.perf_counter()
                connection.open_producers(topics, 1, avro_schema=schema)
                found[f"{kind}, producers/s"] = count / (time.perf_counter() - began)
                found[f"{kind}, CPU ms a producer"] = (target.cpu_seconds() - cpu) / count * 1000
        steps.begin(f"{name}: one at a time, of each kind")
        for kind, schema, again in KINDS:
            topics = topics if again else [new_topic() for _ in range(count // LONE_SHARE)]
            taken_ms = _lone(target.service_url, topics, schema)
            found[f"{kind}, one at a time, p50 ms"] = percentile(taken_ms, 0.5)
            found[f"{kind}, one at a time, p99 ms"] = percentile(taken_ms, 0.99)
    finally:
        broker.stop()
    return found


def _lone(service_url: str, topics: Sequence[str], schema: bytes) -> list[float]:
    """Milliseconds of each look-up and producer, one after the other."""
    taken_ms = []
    with closing(Connection(service_url)) as connection:
        for number, topic in enumerate(topics, 1):
            began = time.perf_counter()
            connection.open_producers([topic], number, avro_schema=schema)
            taken_ms.append((time.perf_counter() - began) * 1000)
    return taken_ms


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.schema_producers", description=__doc__)
    parser.add_argument("--topics", type=int, default=TOPICS, help=f"of each kind (default {TOPICS:,})")
    parser.add_argument("--only", choices=("magnetar", "apache"), help="measure one of the two")
    options = parser.parse_args(argv)
    brokers: dict[str, Callable[[], Broker]] = {}
    if options.only != "apache":
        brokers[MAGNETAR] = Magnetar
    if options.only != "magnetar":
        jars = apache_pulsar_jars(print)
        if isinstance(jars, str):
            parser.error(f"Apache Pulsar cannot be measured: {jars}; give --only magnetar")
        brokers[APACHE_PULSAR] = lambda: ApachePulsar(jars)
    with Steps(3 * len(brokers)) as steps:
        found = {name: measure(make(), options.topics, steps) for name, make in brokers.items()}
    for name, figures in found.items():
        report("schema_producers", {"broker": name, "topics": options.topics, **figures})
    headings, rows = table(found)
    markdown(TABLE, headings, rows)
    print("\n".join(lines(headings, rows)))


if __name__ == "__main__":
    main()
