"""Interface between each long-running command and its process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Address:
    """One line of the ready message: an address or a directory."""

    label: str
    text: str
    note: str = ""


class Service(Protocol):
    """A service that starts once, serves, and closes."""

    @property
    def shutdown_timeout_ms(self) -> int:
        """Timeout of `close`, after which the process exits anyway."""
        ...

    @property
    def addresses(self) -> Sequence[Address]:
        """Return the service's addresses, after the start."""
        ...

    async def start(self) -> None:
        """Start; returns when the service is ready. Raises MagnetarError or OSError, with nothing left
        open.
        """
        ...

    async def close(self) -> None:
        """Stop gracefully. Idempotent."""
        ...


class ServiceConfig(Protocol):
    """The settings of a service."""

    def warnings(self) -> list[str]:
        """Return warnings about valid settings that may be unintended."""
        ...
