"""Imports structlog without rich, which it would load for tracebacks."""

from __future__ import annotations

import sys


def load_structlog_without_rich() -> None:
    """Import structlog as if rich were not installed. Call before any other import of structlog."""
    # structlog imports rich for tracebacks that are not used here, which costs 0.15 s and 5 MB per start.
    # Rich stays importable for other modules.
    hidden = sys.modules.get("rich")
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        if hidden is None:
            del sys.modules["rich"]
        else:
            sys.modules["rich"] = hidden
