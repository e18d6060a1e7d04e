"""Interface between each long-running command and its process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Address:
    """One line of the ready message: where something can be reached or is kept."""

    label: str
    text: str
    note: str = ""


class Service(Protocol):
    """Starts, serves until it is closed, and is used once."""

    @property
    def shutdown_timeout_ms(self) -> int:
        """How long `close` may take before the process ends anyway."""
        ...

    @property
    def addresses(self) -> Sequence[Address]:
        """Where it is reached, once it has started."""
        ...

    async def start(self) -> None:
        """Return once it serves. Raises MagnetarError or OSError; then nothing is left open."""
        ...

    async def close(self) -> None:
        """Stop in good order; idempotent."""
        ...


class ServiceConfig(Protocol):
    """The settings of a service."""

    def warnings(self) -> list[str]:
        """Warnings about valid settings that may be unintended."""
        ...
