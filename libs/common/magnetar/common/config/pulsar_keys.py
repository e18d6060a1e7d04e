"""What Apache Pulsar's own configuration files may contain: its keys, and which of them mean security."""

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
class SecuritySwitch:
    """A key that turns security on. `purpose` says what it would make Pulsar do."""

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
    """Every key of Pulsar's broker, standalone and proxy and of BookKeeper's bookie."""
    return frozenset(row[0] for row in _rows("pulsar_keys.tsv"))


def is_pulsar_key(key: str) -> bool:
    """Whether Pulsar knows the key."""
    return key in pulsar_keys() or key.startswith(PASSED_ON_PREFIXES)


@cache
def security_switches() -> dict[str, SecuritySwitch]:
    """The keys that turn security on, by key."""
    return {row[0]: SecuritySwitch(*row) for row in _rows("security_switches.tsv")}


def _rows(name: str) -> list[list[str]]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
