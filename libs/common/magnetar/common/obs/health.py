"""Health pages, the same for every service: liveness restarts a process, readiness sends it work.

    /livez    200 `ok` while the process and its event loop live: whoever gets nothing may restart it
    /readyz   200 `ok` while it is registered and takes work; 503 and the reason before, while it drains,
              while it is not registered, and while a broker can store nothing: send it nobody new, and do
              not restart it

Neither asks another service: that metadata or a peer is away is no reason to restart this one. What a broker
says about storage is what its own writes have met (docs/decisions/readiness.md).
"""

from __future__ import annotations

from typing import Final

LIVEZ: Final = "/livez"
READYZ: Final = "/readyz"

PATHS: Final = frozenset({LIVEZ, READYZ})
"""Answered however much else is asked for: a busy process must not look like a dead one."""

OK_TEXT: Final = "ok\n"


def live() -> tuple[int, str]:
    """Status and text of /livez: that this runs is the answer."""
    return 200, OK_TEXT


def ready(not_ready: str | None) -> tuple[int, str]:
    """Status and text of /readyz. `not_ready` says why no work may be sent here; None when it may."""
    return (200, OK_TEXT) if not_ready is None else (503, f"not ready: {not_ready}\n")
