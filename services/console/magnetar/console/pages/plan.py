"""A change that was planned and not made yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from magnetar.console.admin_api import NOTHING


@dataclass(frozen=True, slots=True)
class Plan:
    """A change that was not made yet."""

    title: str
    """The change as a sentence."""
    button: str
    means: list[str]
    """Its consequences, with figures of now."""
    method: str
    path: str
    back: str
    """The page that is shown afterwards, and when the visitor does not want it."""
    body: Any = NOTHING
    query: dict[str, object] = field(default_factory=dict)
    is_final: bool = True
    """Whether it loses something that nothing brings back."""
    command: str = ""
    """The `magnetar` command that does the same; empty if there is none."""
