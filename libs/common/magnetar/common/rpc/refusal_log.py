"""Bounded log of failed gRPC calls, which clients can cause at will."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc
from magnetar.common.obs.log_limit import LogLimit

CHARS_MAX: Final = 1000
"""Maximum characters of a method name or reason in a log line: clients influence both."""


class RefusalLog:
    """Logs each internal failure, and other failures at one line per second and status, with a count."""

    __slots__ = ("_limits", "_log")

    def __init__(self, log: Any) -> None:
        self._log = log
        self._limits: dict[grpc.StatusCode, LogLimit] = {}

    def note(self, context: Any, method: str, status: grpc.StatusCode, error: Exception) -> None:
        """Records that this call ended with `status` because of `error`."""
        if status is grpc.StatusCode.INTERNAL:
            self._log.error("call failed", method=method, peer=context.peer(), exc_info=error)
            return
        times = self._limits.setdefault(status, LogLimit()).note(asyncio.get_running_loop().time())
        if times:
            self._log.warning(
                "call refused",
                method=method[:CHARS_MAX],
                peer=context.peer(),
                status=status.name,
                reason=str(error)[:CHARS_MAX],
                times=times,
            )
