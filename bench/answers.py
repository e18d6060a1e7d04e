"""Records the fields of Apache Pulsar's responses: `python -m bench.answers`.

Starts Apache Pulsar (Maven fetches it once), sends it the exchanges of tests/integration/raw/exchanges.py and
writes the golden table with which Magnetar's answers are compared. With `--service-url` and `--http-url` a
broker that runs already is asked, and `--output` names another file: that of Magnetar, to look at.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from tests.integration.harness import ROOT, Endpoint
from tests.integration.raw.answer_shapes import Row, rows, write_table
from tests.integration.raw.exchange import Exchange
from tests.integration.raw.exchanges import EXCHANGES

GOLDEN: Final = ROOT / "tests" / "golden" / "answers"
TABLE: Final = GOLDEN / "apache-pulsar-4.0.7.tsv"
QUIET_SECONDS: Final = 0.5
"""Timeout of a response, in seconds; a cold broker is slow."""
DIFFERENCES: Final = GOLDEN / "differences.tsv"


def record(endpoint: Endpoint) -> list[Row]:
    """The rows of all exchanges with the broker at `endpoint`."""
    table: list[Row] = []
    for number, (name, run) in enumerate(EXCHANGES.items(), 1):
        if sys.stderr.isatty():
            print(f"\r{number}/{len(EXCHANGES)} {name:<80}", end="", file=sys.stderr, flush=True)
        exchange = Exchange(endpoint, QUIET_SECONDS)
        try:
            run(exchange)
        finally:
            exchange.close()
        table += rows(name, exchange.frames)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.answers", description=__doc__)
    parser.add_argument("--service-url", help="A broker that runs already: pulsar://host:port.")
    parser.add_argument("--http-url", help="Its HTTP: http://host:port.")
    parser.add_argument("--output", type=Path, default=TABLE, help="Output file of the table.")
    options = parser.parse_args()
    if options.service_url:
        write_table(options.output, record(Endpoint(options.service_url, options.http_url)))
        return
    from bench.brokers import ApachePulsar, apache_pulsar_jars, first_acknowledgement

    jars = apache_pulsar_jars(lambda line: print(line, file=sys.stderr))
    if isinstance(jars, str):
        sys.exit(f"no Apache Pulsar to record: {jars}")
    broker = ApachePulsar(jars)
    try:
        first_acknowledgement(broker)
        write_table(options.output, record(broker.endpoint))
    finally:
        broker.stop()


if __name__ == "__main__":
    main()
