"""Type of the function that starts background tasks; their owner awaits them and logs their failures."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

Spawn = Callable[[Coroutine[Any, Any, Any], str], object]
"""Starts a background task under a name; its failures are logged by its owner."""
