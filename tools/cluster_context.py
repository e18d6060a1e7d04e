"""Writes a context of `magnetar context` for a cluster that a tool started, not as the current one."""

from __future__ import annotations

import click
from magnetar.cli import contexts


def write_context(name: str, service_url: str, admin_url: str) -> str:
    """Writes or replaces a context; returns the line to print: the next step, or why there is no context."""
    try:
        contexts.write(name, {"brokerServiceUrl": service_url, "webServiceUrl": admin_url})
    except (OSError, click.ClickException) as error:
        return f"no context was written: {error}"
    return f"magnetar context use {name}   # or --profile {name}"
