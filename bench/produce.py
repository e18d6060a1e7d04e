"""`python -m bench.produce`: durable publishing over one connection."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.connection import Connection
from bench.frames import SendTemplate
from bench.generator import percentile, produce
from bench.target import Target, add_target_arguments, new_topic, report, target


def measure(where: Target, options: argparse.Namespace) -> dict[str, float | int | str]:
    """A warm-up on the same topic, then the measured run."""
    template = SendTemplate(options.size, options.batch)
    topic = new_topic()
    for entries in (min(options.warmup, options.entries), options.entries):
        if not entries:
            continue
        connection = Connection(where.service_url)
        connection.open_producer(topic)
        cpu_before = where.cpu_seconds()
        run = produce(connection.socket, template, entries, window=options.window, rate=options.rate)
        cpu = where.cpu_seconds() - cpu_before
    messages = run.entries * template.messages
    return {
        "broker": options.against or "magnetar standalone",
        "payload bytes": options.size,
        "messages per entry": options.batch,
        "in flight": options.window,
        "rate asked for": options.rate,
        "entries": run.entries,
        "entries/s": run.entries / run.seconds,
        "messages/s": messages / run.seconds,
        "MB/s": run.entries * template.payload_bytes / run.seconds / 1e6,
        "ack p50 ms": percentile(run.latencies_ms, 0.5),
        "ack p99 ms": percentile(run.latencies_ms, 0.99),
        "generator lag p50 ms": percentile(run.lags_ms, 0.5),
        "generator lag p99 ms": percentile(run.lags_ms, 0.99),
        "server CPU s per million messages": cpu / messages * 1e6,
        "server RSS MB": where.rss_bytes() / 1e6,
    }


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100, help="payload bytes of a message (default 100)")
    parser.add_argument("--batch", type=int, default=1, help="messages per entry (default 1, unbatched)")
    parser.add_argument("--entries", type=int, default=1_000_000, help="entries of the measured run")
    parser.add_argument("--warmup", type=int, default=100_000, help="entries before it")
    parser.add_argument("--window", type=int, default=1_000, help="entries in flight (default 1,000)")
    parser.add_argument("--rate", type=float, default=0.0, help="entries a second instead of full speed")
    add_target_arguments(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    options = arguments().parse_args(argv)
    with target(options) as where:
        print("produce:")
        report("produce", measure(where, options))


if __name__ == "__main__":
    main()
