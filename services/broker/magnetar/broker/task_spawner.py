"""How the parts of a broker start a task beside what they do; its owner waits for it and logs its failure."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

Spawn = Callable[[Coroutine[Any, Any, Any], str], object]
"""Starts a background task under a name; its failures are logged by its owner."""
