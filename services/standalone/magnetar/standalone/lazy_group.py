"""A group of commands whose module is imported when the group is used: `magnetar` itself starts quickly."""

from __future__ import annotations

from collections.abc import Callable

import click


class LazyGroup(click.Group):
    """Stands for the group that `load` gives."""

    def __init__(self, name: str, load: Callable[[], click.Group], help_text: str) -> None:
        super().__init__(name=name, help=help_text)
        self._load = load

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._load().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._load().get_command(ctx, cmd_name)
