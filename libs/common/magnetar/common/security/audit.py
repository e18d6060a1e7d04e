"""The audit log: one JSON object a line for each event that concerns who may do what, and who did what.

Events go to logger `magnetar.audit`: to a file of their own where the configuration names one, otherwise to
the process's log. Neither payloads nor credentials are ever part of an event; it is on those who call `audit`
to pass none. The number of events of one kind in a second is bounded; the next line says how many were left
out.
"""

from __future__ import annotations

import json
import logging
import os
import time
from datetime import UTC, datetime
from typing import Any, Final

from magnetar.common.obs import request_ids
from magnetar.common.obs.logs import get_logger
from magnetar.common.obs.metrics import REGISTRY
from magnetar.common.security.principal import Principal
from prometheus_client import Counter

LOGGER: Final = "magnetar.audit"

EVENTS_PER_SECOND_MAX: Final = 200
"""Lines of one kind of event in a second."""

TEXT_CHARS_MAX: Final = 2_048
"""Characters of one text in an event; clients choose some of them."""

LEFT_OUT: Final = Counter(
    "magnetar_audit_events_left_out_total",
    "Audit events that were counted and not written, because too many of their kind came in one second.",
    ["event"],
    registry=REGISTRY,
)

_log = get_logger(LOGGER)


class _Bound:
    """How many lines of one kind of event this second has had."""

    __slots__ = ("left_out", "lines", "second")

    def __init__(self) -> None:
        self.second = -1
        self.lines = 0
        self.left_out = 0

    def due(self, now: float) -> int | None:
        """Return how many events were left out before this one; None when this one is left out, too."""
        second = int(now)
        if second != self.second:
            self.second, self.lines = second, 0
        if self.lines >= EVENTS_PER_SECOND_MAX:
            self.left_out += 1
            return None
        self.lines += 1
        told, self.left_out = self.left_out, 0
        return told


_bounds: dict[str, _Bound] = {}


def open_audit_file(path: str) -> None:
    """Write events to this file from now on, made with mode 0600; it may be moved away at any time.

    An empty path: to the process's log. Raises OSError when the file cannot be written.
    """
    logger = logging.getLogger(LOGGER)
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = True
    if not path:
        return
    from logging.handlers import WatchedFileHandler  # only few processes have such a file

    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    file_handler = WatchedFileHandler(path, encoding="utf-8")
    file_handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(file_handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)


def audit(
    event: str,
    *,
    principal: Principal | None,
    resource: str = "",
    action: str = "",
    outcome: str = "",
    status: int | None = None,
    **more: Any,
) -> None:
    """Write an event. `more` with the value None is left out.

    `principal` is None where authentication is off: then nothing is written, as request logs say it all.
    """
    if principal is None:
        return
    fields = {
        "principal": principal.role,
        "original_principal": principal.original,
        "auth_method": principal.method,
        "address": principal.address or None,
        "resource": resource or None,
        "action": action or None,
        "outcome": outcome or None,
        "status": status,
        **more,
    }
    _write(event, {key: value for key, value in fields.items() if value is not None or key == "principal"})


def audit_process(event: str, **fields: Any) -> None:
    """Write an event of the process itself, such as a reloaded key, into the audit file.

    Without such a file nothing is written: the log has a line of its own for each of these events.
    """
    if logging.getLogger(LOGGER).handlers:
        _write(event, fields)


def _write(event: str, fields: dict[str, Any]) -> None:
    bound = _bounds.get(event)
    if bound is None:
        bound = _bounds[event] = _Bound()
    left_out = bound.due(time.monotonic())
    if left_out is None:
        LEFT_OUT.labels(event).inc()
        return
    said = {key: _bounded(value) for key, value in fields.items()}
    if left_out:
        said["left_out"] = left_out
    logger = logging.getLogger(LOGGER)
    if not logger.handlers:
        _log.info(event, **said)
        return
    request_id = request_ids.current()
    line = {
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "event": event,
        **({} if request_id is None else {"request_id": request_id}),
        **said,
    }
    logger.info(json.dumps(line, ensure_ascii=False, default=str))


def _bounded(value: Any) -> Any:
    return value[:TEXT_CHARS_MAX] if isinstance(value, str) else value
