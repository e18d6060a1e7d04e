"""`python -m bench.consume`: draining a backlog, or consuming while producing; one look at one figure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.loads import Drain, Tail
from bench.target import add_target_arguments, report, target


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_024, help="payload bytes of a message (default 1,024)")
    parser.add_argument("--batch", type=int, default=1, help="messages per entry (default 1, unbatched)")
    parser.add_argument("--entries", type=int, default=200_000, help="entries in all")
    parser.add_argument("--window", type=int, default=1_000, help="with --tail: entries in flight")
    parser.add_argument(
        "--tail",
        choices=("cumulative", "individual"),
        help="consume while producing: Exclusive with cumulative or Shared with individual acknowledgements",
    )
    add_target_arguments(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    options = arguments().parse_args(argv)
    load: Tail | Drain
    if options.tail:
        load = Tail(
            options.size, options.tail, batch=options.batch, window=options.window, entries=options.entries
        )
    else:
        load = Drain(options.size, options.entries, options.batch)
    with target(options) as where:
        print("consume, while producing:" if options.tail else "consume, a backlog:")
        report("consume", load(where).figures)


if __name__ == "__main__":
    main()
