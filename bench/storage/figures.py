"""Which figures there are, in the order of the report, and what is asked of them."""

from __future__ import annotations

from typing import Final

from bench.figures import Figure
from bench.storage.appends import AppendLoad

KIND_LOCAL: Final = "local log"
KIND_BOOKIES: Final = "three bookies"

ONE_IN_FLIGHT: Final = "100 B, one in flight"
ONE_ENTRY: Final = "1 entry a run"
READ_LOCAL: Final = "catch-up read, local log"
READ_BOOKIE: Final = "catch-up read, a bookie over gRPC"
READ_RUNS: Final = (100, 10)
"""Entries of 1 KiB a run: a record each in the log."""
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


def one_in_flight(seconds: float) -> dict[str, AppendLoad]:
    """Each append waits for the one before."""
    return {
        ONE_ENTRY: AppendLoad(size=100, batch=1, window=1, seconds=seconds),
        "100 entries a run": AppendLoad(size=100, batch=100, window=1, seconds=seconds),
    }


def read_group(store: str, run_entries: int) -> str:
    """The name of a catch-up read in the report."""
    return f"{store}, runs of {run_entries}"


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
    }


FIGURES: Final[dict[str, list[Figure]]] = {
    **{group: figures for load in loads(0) for group, figures in _appends(load).items()},
    f"{ONE_IN_FLIGHT}, {ONE_ENTRY}: {KIND_BOOKIES}": [
        value("p50 ms", most=1.2),
        value("p99 ms", most=5.0),
        value("client CPU", "us/entry"),
    ],
    f"{ONE_IN_FLIGHT}, 100 entries a run: {KIND_BOOKIES}": [
        value("p50 ms"),
        value("p99 ms"),
        value("client CPU", "us/entry"),
    ],
    **{
        read_group(READ_LOCAL, run_entries): [value("MB/s", least=500.0), value("process us/MB")]
        for run_entries in READ_RUNS
    },
    **{
        read_group(READ_BOOKIE, run_entries): [
            value("MB/s", least=300.0),
            value("process us/MB"),
            value("bookie us/MB"),
        ]
        for run_entries in READ_RUNS
    },
    RESTART: [value("seconds", "s", most=2.0)],
    MEMORY: [
        value("after the start", "MiB anonymous", most=256.0),
        value("after reads", "MiB anonymous", most=256.0),
        value("reads"),
    ],
}
