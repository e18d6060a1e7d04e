"""Errors for commands whose packages are not installed: an image contains only one service."""

from __future__ import annotations

from typing import Final

import click

_EXTRAS: Final = {
    "magnetar.bookie": "bookie",
    "magnetar.broker": "broker",
    "magnetar.client": "all",
    "magnetar.console": "console",
    "magnetar.discovery": "discovery",
    "magnetar.ledger": "all",
    "aiohttp": "all",
    "cryptography": "all",
    "jinja2": "console",
    "jwt": "all",
    "rich": "all",
    "textual": "all",
}
"""Extra of this distribution that installs an optional package, by package."""


class NotInstalled(click.ClickException):
    """A required package is not installed."""


def not_installed(error: ModuleNotFoundError) -> NotInstalled | None:
    """Return the error for a missing module; None for a module of the base installation."""
    parts = (error.name or "").split(".")
    for name in (parts[0], ".".join(parts[:2])):
        if name in _EXTRAS:
            return NotInstalled(
                f"{name} is not installed here: run `make setup` in a clone, install "
                f"magnetar-cli[{_EXTRAS[name]}] from wheels (`make dist`), or use the image "
                "magnetar/tools"
            )
    return None


class MissingCommand(click.Command):
    """A placeholder for a command with missing packages: hidden in help, an error when called."""

    def __init__(self, name: str, why: NotInstalled) -> None:
        super().__init__(name, hidden=True, add_help_option=False)
        self.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}
        self._why = why

    def invoke(self, ctx: click.Context) -> None:
        """Raise NotInstalled."""
        raise self._why
