"""Configuration of the audit log."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.common.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """Where audit events go."""

    file: str = setting(
        "",
        "File to which audit events are appended, one JSON object a line; empty: they go to the log.",
        key="magnetarAuditLogFile",
    )
