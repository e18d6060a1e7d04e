"""`python -m bench.produce`: durable publishing over one connection, for one look at one figure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.loads import AtRate, Measured, Produce
from bench.target import Target, add_target_arguments, report, target


def measure(where: Target, options: argparse.Namespace) -> Measured:
    """A warm-up, then the measured run."""
    if options.rate:
        return AtRate(options.size, options.rate, options.entries / options.rate, consume=False)(where)
    if options.warmup:
        Produce(options.size, options.batch, options.window, entries=options.warmup)(where)
    return Produce(options.size, options.batch, options.window, entries=options.entries)(where)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100, help="payload bytes of a message (default 100)")
    parser.add_argument("--batch", type=int, default=1, help="messages per entry (default 1, unbatched)")
    parser.add_argument("--entries", type=int, default=1_000_000, help="entries of the measured run")
    parser.add_argument("--warmup", type=int, default=100_000, help="entries before it (with a rate: 1 s)")
    parser.add_argument("--window", type=int, default=1_000, help="entries in flight (default 1,000)")
    parser.add_argument("--rate", type=float, default=0.0, help="unbatched entries a second, on schedule")
    add_target_arguments(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    options = arguments().parse_args(argv)
    with target(options) as where:
        print("produce:")
        report("produce", measure(where, options).figures)


if __name__ == "__main__":
    main()
