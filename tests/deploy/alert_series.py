"""Series that are made up for alerts, in promtool's notation: a sample a minute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CLUSTER: Final = {"cluster": "one"}
LONG: Final = 2_000
"""Minutes for which a series stays as it is: longer than any alert waits."""


def steady(value: float) -> str:
    """Always this."""
    return f"{value:g}+0x{LONG}"


def turns(before: float, after: float, at_min: int = 10) -> str:
    """One value, and from that minute on another one."""
    return f"{before:g}+0x{at_min - 1} {after:g}+0x{LONG}"


def rises(by: float, from_min: int = 10) -> str:
    """A counter at 0 that begins to rise by so much a minute."""
    return f"0+0x{from_min - 1} {by:g}+{by:g}x{LONG}"


def appears(value: float, at_min: int = 10) -> str:
    """A series that is not there before."""
    return f"_x{at_min} {value:g}+0x{LONG}"


def ends(value: float, at_min: int = 10) -> str:
    """A series whose target is not scraped any more, which Prometheus marks at once."""
    return f"{value:g}+0x{at_min - 1} stale"


def of(job: str, instance: str = "") -> dict[str, str]:
    """The labels of a process's series."""
    return {**CLUSTER, "instance": instance or f"{job}-1", "job": job}


def name(metric: str, labels: Mapping[str, str], **more: str) -> str:
    """A series as PromQL writes it."""
    inside = ",".join(f'{key}="{value}"' for key, value in {**labels, **more}.items())
    return f"{metric}{{{inside}}}"


def restarted(at_min: int, lasts_min: int, before: float = 1, after: float = 1) -> str:
    """A series of a process that is away from that minute on for so many."""
    missing = f" _x{lasts_min - 1}" if lasts_min > 1 else ""
    return f"{ends(before, at_min)}{missing} {after:g}+0x{LONG}"


def away(at_min: int, lasts_min: int) -> str:
    """The same as `up` shows it."""
    return f"1+0x{at_min - 1} 0+0x{lasts_min - 1} 1+0x{LONG}"


BROKER: Final = of("broker")
BOOKIE: Final = of("bookie")
DISCOVERY: Final = of("discovery")
ETCD: Final = of("etcd")
TOPIC: Final = {"namespace": "public/default", "topic": "persistent://public/default/t"}
SUBSCRIPTION: Final = {**TOPIC, "subscription": "s"}
