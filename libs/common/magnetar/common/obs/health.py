"""Health pages of every service: liveness decides about restarts, readiness about new work.

    /livez    200 `ok` while the process and its event loop run: restart it if there is no answer
    /readyz   200 `ok` while it is registered and accepts work; 503 and the reason while it starts, drains,
              is not registered, or (a broker) cannot store: send it no new clients, and do
              not restart it

Neither depends on another service: unavailable metadata or a peer is no reason to restart this process. A
broker's storage state comes from its own writes (docs/decisions/readiness.md).
"""

from __future__ import annotations

from typing import Final

LIVEZ: Final = "/livez"
READYZ: Final = "/readyz"

PATHS: Final = frozenset({LIVEZ, READYZ})
"""Paths that bypass request limits: a busy process must not look dead."""

OK_TEXT: Final = "ok\n"


def live() -> tuple[int, str]:
    """Returns status and text of /livez; any answer proves liveness."""
    return 200, OK_TEXT


def ready(not_ready: str | None) -> tuple[int, str]:
    """Returns status and text of /readyz. `not_ready` is the reason to send no work here; None when ready."""
    return (200, OK_TEXT) if not_ready is None else (503, f"not ready: {not_ready}\n")
