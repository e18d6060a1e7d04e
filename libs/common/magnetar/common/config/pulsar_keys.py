"""Keys of Apache Pulsar's configuration files, and the switches that must not be ignored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

PASSED_ON_PREFIXES: Final = (
    "bookkeeper_",
    "brokerClient_",
    "dbStorage_",
    "gcsManagedLedgerOffload",
    "openID",
    "s3ManagedLedgerOffload",
)
"""Prefixes of keys that Pulsar passes on to libraries and plug-ins."""


@dataclass(frozen=True, slots=True)
class RefusedSwitch:
    """A switch that must not be ignored when it is on. `purpose` is the feature it enables in Pulsar."""

    key: str
    condition: str
    purpose: str

    def is_on(self, text: str) -> bool:
        """Returns whether this value turns the switch on."""
        return _CONDITIONS[self.condition](text.strip())


def _names_a_plugin(text: str) -> bool:
    return bool(text) and "disabled" not in text.lower()


_CONDITIONS: Final[dict[str, Callable[[str], bool]]] = {
    "true": lambda text: text.lower() == "true",
    "set": bool,
    "set-not-disabled": _names_a_plugin,
    "tls-url": lambda text: "+ssl:" in text or "https:" in text,
}


@cache
def pulsar_keys() -> frozenset[str]:
    """Returns the keys of Pulsar's broker, standalone and proxy in all known releases, and of BookKeeper's
    bookie.
    """
    return frozenset(row[0] for name in ("pulsar_keys.tsv", "other_release_keys.tsv") for row in _rows(name))


def is_pulsar_key(key: str) -> bool:
    """Returns whether Pulsar has the key."""
    return key in pulsar_keys() or key.startswith(PASSED_ON_PREFIXES)


@cache
def refused_switches() -> dict[str, RefusedSwitch]:
    """Returns the switches that must not be ignored, by key."""
    return {row[0]: RefusedSwitch(*row) for row in _rows("refused_switches.tsv")}


def _rows(name: str) -> list[list[str]]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
