"""`python -m bench.consume`: draining a backlog through one Exclusive consumer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.connection import Connection
from bench.frames import SendTemplate
from bench.generator import consume, produce
from bench.target import Target, add_target_arguments, new_topic, report, target


def measure(where: Target, options: argparse.Namespace) -> dict[str, float | int | str]:
    """Publish the backlog, then take it all, acknowledging cumulatively."""
    template = SendTemplate(options.size, options.batch)
    topic = new_topic()
    keeper = Connection(where.service_url)
    keeper.subscribe(topic, "bench")
    keeper.close()
    producer = Connection(where.service_url)
    producer.open_producer(topic)
    produce(producer.socket, template, options.entries, window=1_000)
    consumer = Connection(where.service_url)
    consumer.subscribe(topic, "bench")
    cpu_before = where.cpu_seconds()
    run = consume(consumer.socket, template, options.entries)
    cpu = where.cpu_seconds() - cpu_before
    messages = run.entries * template.messages
    return {
        "broker": options.against or "magnetar standalone",
        "payload bytes": options.size,
        "messages per entry": options.batch,
        "entries": run.entries,
        "entries/s": run.entries / run.seconds,
        "messages/s": messages / run.seconds,
        "MB/s": run.entries * template.payload_bytes / run.seconds / 1e6,
        "server CPU s per million messages": cpu / messages * 1e6,
        "server RSS MB": where.rss_bytes() / 1e6,
    }


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_024, help="payload bytes of a message (default 1,024)")
    parser.add_argument("--batch", type=int, default=1, help="messages per entry (default 1, unbatched)")
    parser.add_argument("--entries", type=int, default=200_000, help="entries of the backlog")
    add_target_arguments(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    options = arguments().parse_args(argv)
    with target(options) as where:
        print("consume (drain a backlog):")
        report("consume", measure(where, options))


if __name__ == "__main__":
    main()
