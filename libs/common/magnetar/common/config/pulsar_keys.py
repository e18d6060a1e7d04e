"""Keys of Apache Pulsar's configuration files, and those that are never ignored."""

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
"""Pulsar hands keys with these prefixes on to libraries and plug-ins, whatever follows."""


@dataclass(frozen=True, slots=True)
class RefusedSwitch:
    """A key that turns on what must not be ignored. `purpose` says what it would make Pulsar do."""

    key: str
    condition: str
    purpose: str

    def is_on(self, text: str) -> bool:
        """Whether this value turns it on."""
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
    """Every key of Pulsar's broker, standalone and proxy, of brokers of other releases, and of BookKeeper's
    bookie.
    """
    return frozenset(row[0] for name in ("pulsar_keys.tsv", "other_release_keys.tsv") for row in _rows(name))


def is_pulsar_key(key: str) -> bool:
    """Whether Pulsar knows the key."""
    return key in pulsar_keys() or key.startswith(PASSED_ON_PREFIXES)


@cache
def refused_switches() -> dict[str, RefusedSwitch]:
    """The keys that turn on what must not be ignored, by key."""
    return {row[0]: RefusedSwitch(*row) for row in _rows("refused_switches.tsv")}


def _rows(name: str) -> list[list[str]]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
