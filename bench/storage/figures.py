"""Which figures there are, in the order of the report, and what is asked of them."""

from __future__ import annotations

from typing import Final

from bench.figures import Figure
from bench.storage.appends import AppendLoad

KIND_LOCAL: Final = "local log"
KIND_BOOKIES: Final = "three bookies"
KIND_BOOKKEEPER: Final = "three bookies of Apache BookKeeper"

ONE_IN_FLIGHT: Final = "one run in flight, three bookies"
READ_LOCAL: Final = "catch-up read, local log"
READ_BOOKIE: Final = "catch-up read, a bookie over gRPC"
RESTART: Final = "restart of a bookie over 10 GB"
MEMORY: Final = "a bookie with 50 GB, 100,000 ledgers"


def loads(seconds: float) -> dict[str, AppendLoad]:
    """Throughput, by the name that the report uses. Windows: 2 MB of small entries in flight, 4 MB of large
    ones, and of single entries as many as brokers keep for a busy topic."""
    return {
        "100 B in runs of 100": AppendLoad(size=100, batch=100, window=200, seconds=seconds),
        "1 KiB in runs of 100": AppendLoad(size=1_024, batch=100, window=40, seconds=seconds),
        "100 B, single entries": AppendLoad(size=100, batch=1, window=2_000, seconds=seconds),
        "1 KiB, single entries": AppendLoad(size=1_024, batch=1, window=2_000, seconds=seconds),
    }


def value(key: str, unit: str = "", *, least: float | None = None, most: float | None = None) -> Figure:
    """A figure that is judged by itself."""
    better = "higher" if most is None else "lower"
    return Figure(key, unit, better, least if most is None else most, of="value")  # type: ignore[arg-type]


_THROUGHPUT: Final = ("entries/s", "MB/s", "p50 ms", "p99 ms")


def _appends(load: str) -> dict[str, list[Figure]]:
    least = 60.0 if load == "100 B in runs of 100" else None
    return {
        f"{load}: {KIND_LOCAL}": [*map(value, (*_THROUGHPUT, "entries/CPU s"))],
        f"{load}: {KIND_BOOKIES}": [
            *map(value, (*_THROUGHPUT, "entries/CPU s of one bookie")),
            value("of the local log's entries/CPU s", "%", least=least),
            value("client CPU", "us/entry"),
        ],
        f"{load}: {KIND_BOOKKEEPER}": [
            *map(value, (*_THROUGHPUT, "entries/CPU s of one bookie")),
            value("client CPU", "us/entry"),
        ],
    }


FIGURES: Final[dict[str, list[Figure]]] = {
    **{group: figures for load in loads(0) for group, figures in _appends(load).items()},
    f"{ONE_IN_FLIGHT}, 1 entry": [
        value("p50 ms", most=1.2),
        value("p99 ms", most=5.0),
        value("client CPU", "us/entry"),
    ],
    f"{ONE_IN_FLIGHT}, 100 entries": [
        value("p50 ms"),
        value("p99 ms"),
        value("client CPU", "us/entry"),
    ],
    READ_LOCAL: [value("MB/s", least=500.0), value("process us/MB")],
    READ_BOOKIE: [value("MB/s", least=300.0), value("process us/MB"), value("bookie us/MB")],
    RESTART: [value("seconds", "s", most=2.0)],
    MEMORY: [
        value("after the start", "MiB anonymous", most=256.0),
        value("after reads", "MiB anonymous", most=256.0),
        value("reads"),
    ],
}
