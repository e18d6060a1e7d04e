"""The figures of `bench.scale` as tables, shown and put into docs/scale.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from bench.scale.results import costs_now
from bench.table import into_page, lines
from tests.integration.harness import ROOT

PAGE: Final = ROOT / "docs" / "scale.md"

Found = Mapping[str, Any]


def scenarios(found: Found) -> list[str]:
    """Returns the load of each scenario on etcd and the leader, and how long bundles waited."""
    rows = [
        [
            f"{each['scenario']}: {each['note']}" if each["note"] else each["scenario"],
            f"{each['size']['brokers']:,} / {each['size']['bundles']:,}",
            each["seconds"],
            each["longest_wait_s"],
            each["traffic"]["writes"],
            each["writes_peak"],
            each["traffic"]["written_bytes"] / 1e6,
            each["traffic"]["read_bytes"] / 1e6,
            each["traffic"]["events"],
            each["traffic"]["event_bytes"] / 1e6,
            each["etcd_cpu_s"],
            each["leader_busy_s"],
            each["traffic"]["unanswered"],
            len(each["wrong"]),
        ]
        for each in sorted(found["outcomes"], key=lambda one: (_ORDER.index(one["scenario"]), _size(one)))
    ]
    headings = [
        "scenario",
        "brokers / bundles",
        "s until all is served",
        "longest wait s",
        "writes",
        "writes/s at most",
        "MB written",
        "MB read",
        "changes sent to watches",
        "MB sent",
        "CPU s of etcd",
        "CPU s of the leader",
        "requests that etcd had no time for",
        "bundles not served by exactly one broker",
    ]
    return lines(headings, rows)


_ORDER: Final = ("cold start", "nothing happens", "a rack is lost", "rolling upgrade", "skewed load")


def _size(outcome: Found) -> tuple[int, int, bool]:
    return outcome["size"]["brokers"], outcome["size"]["bundles"], outcome["size"]["shared"]


def leader(found: Found) -> list[str]:
    """Returns the CPU of the leader's functions by size."""
    names = {
        "choose_none_ms": "choice of an owner, no broker has reported, ms",
        "choose_half_ms": "the same, half of them have, ms",
        "choose_ms": "the same, all have, ms",
        "owner_change_us": "one changed owner, µs",
        "report_ms": "one load report of 100 bundles, ms",
        "compare_ms": "comparison of all loads, each minute, ms",
        "split_ms": "check for bundles to split, each broker its own, ms",
    }
    sizes = found["leader"]
    headings = ["CPU of the leader", *(f"{each['brokers']:,} brokers" for each in sizes)]
    return lines(headings, [[text, *(float(each[key]) for each in sizes)] for key, text in names.items()])


def costs(found: Found) -> list[str]:
    """Returns the costs of single steps."""
    etcd, all_costs = found["etcd"], asdict(costs_now())
    rows = [
        ["a write, etcd", all_costs["etcd_write_s"] * 1e6],
        ["a read of a key, etcd", all_costs["etcd_read_s"] * 1e6],
        ["a key of a listing, etcd", all_costs["etcd_key_s"] * 1e6],
        ["a change sent to one watch, etcd", all_costs["etcd_event_s"] * 1e6],
        ["the same, one of 100 of a transaction, etcd", all_costs["etcd_joined_event_s"] * 1e6],
        ["a changed owner received and applied, each broker", all_costs["event_s"] * 1e6],
        ["the same, one of 100 of a transaction, each broker", all_costs["joined_event_s"] * 1e6],
        ["a key of a listing received and applied, each broker", all_costs["key_s"] * 1e6],
        ["a call, each side", all_costs["call_s"] * 1e6],
        ["a new connection with its Hello, each side", all_costs["connect_s"] * 1e6],
    ]
    held = f"etcd's file grows by {etcd['db_bytes_a_key']:.0f} bytes for the key of a bundle's owner."
    return [*lines(["CPU", "µs"], rows), "", held]


def topics(found: Found) -> list[str]:
    """Returns the metadata of a topic."""
    one = found["topics"]
    rows: list[Sequence[object]] = [
        [f"`{family}`", counted, octets] for family, (counted, octets) in one["by_family"].items()
    ]
    rows.append(["all", one["keys"], one["octets"]])
    return [
        *lines(["keys of a topic", "keys", "bytes of keys and values"], rows),
        "",
        f"Making, subscribing to and publishing to a topic takes {one['writes_made']:.1f} transactions of "
        "etcd that write; those that wait are joined.",
    ]


PARTS: Final[Mapping[str, tuple[str, Callable[[Found], list[str]]]]] = {
    "scenarios": ("outcomes", scenarios),
    "leader": ("leader", leader),
    "costs": ("etcd", costs),
    "topics": ("topics", topics),
}
"""The generated parts of the page: what each needs, and what makes it."""


def show(found: Found) -> None:
    """Prints every table of which there are figures."""
    for needed, table in PARTS.values():
        if needed in found:
            print("\n".join(["", *table(found)]))


def write(found: Found) -> None:
    """Puts every table of which there are figures into the page."""
    for part, (needed, table) in PARTS.items():
        if needed in found:
            into_page(PAGE, part, table(found))
