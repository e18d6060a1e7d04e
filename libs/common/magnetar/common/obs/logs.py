"""Structured logs: one line an event, key=value on a terminal, JSON otherwise when asked."""

from __future__ import annotations

from typing import Any

import structlog


def get_logger(name: str) -> Any:
    """A logger whose events carry `logger=name`; call it as `log.info("topic loaded", topic=..., ms=...)`."""
    return structlog.get_logger(logger=name)
