"""Structured logs: one line per event, key=value on a terminal, JSON otherwise.

    log = get_logger(__name__)
    log.info("topic loaded", topic=name, ms=elapsed)

Library code only gets loggers; a process calls `configure` once at its start. Messages that third-party
libraries log through the standard library have the same form. Lines logged while a request is served carry
its id (`request_ids`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import structlog
from magnetar.common.obs import request_ids
from structlog.typing import Processor, WrappedLogger

LogFormat = Literal["auto", "console", "json"]

LEVELS: Final = ("debug", "info", "warning", "error", "critical")

# structlog's parameter names leave no room for an initial value named 'logger'.
_NAME_KEY: Final = "logger_name"


def get_logger(name: str) -> Any:
    """A logger whose events carry `logger=name`; call it as `log.info("topic loaded", topic=..., ms=...)`."""
    return structlog.get_logger(**{_NAME_KEY: name})


def configure(
    format: LogFormat = "auto",
    level: str = "info",
    stream: TextIO | None = None,
    *,
    fields: Mapping[str, object] | None = None,
) -> None:
    """Set up logging for the process; `stream` is standard error unless given. `fields` are in every event.

    'auto' is 'console' (key=value, colored) on a terminal and 'json' elsewhere; 'console' elsewhere has no
    colors. Events below `level` cost one comparison. May be called again; the last call holds.
    """
    if level not in LEVELS:
        raise ValueError(f"unknown log level {level!r}; it is one of {', '.join(LEVELS)}")
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    if format == "auto":
        format = "console" if terminal else "json"
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [structlog.processors.add_log_level, _timestamp, _rename_logger, _request_id]
    if fields:
        shared.append(_adding(fields))
    rendering: list[Processor] = [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(default=str),
    ]
    if format == "console":
        plain = structlog.dev.plain_traceback
        rendering = [
            structlog.dev.ConsoleRenderer(colors=terminal, pad_event_to=0, exception_formatter=plain)
        ]
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(target)
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_stdlib_name, *shared], processors=[remove_meta, *rendering]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))


def _adding(fields: Mapping[str, object]) -> Processor:
    def add(
        _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        for name, value in fields.items():
            event.setdefault(name, value)
        return event

    return add


def _timestamp(
    _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    now = datetime.now(UTC)
    event["timestamp"] = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z"
    return event


def _rename_logger(
    _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    event["logger"] = event.pop(_NAME_KEY, None)
    return event


def _request_id(
    _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    request_id = request_ids.current()
    if request_id is not None:
        event.setdefault("request_id", request_id)
    return event


def _stdlib_name(
    _logger: WrappedLogger, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    event[_NAME_KEY] = event["_record"].name
    return event
