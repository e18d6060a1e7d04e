"""Imports structlog without the package that it would otherwise load for tracebacks."""

from __future__ import annotations

import sys


def load_structlog_without_rich() -> None:
    """Import structlog as if rich were not there; before anything else imports it."""
    # structlog imports rich when it finds it, for tracebacks that we do not draw: 0.15 s and 5 MB at each
    # start. Rich stays importable for what does use it.
    hidden = sys.modules.get("rich")
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        if hidden is None:
            del sys.modules["rich"]
        else:
            sys.modules["rich"] = hidden
