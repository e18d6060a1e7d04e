"""A group of commands whose module is imported when the group is used: `magnetar` itself starts quickly."""

from __future__ import annotations

from importlib import import_module

import click


class LazyGroup(click.Group):
    """Stands for the group called GROUP in a module."""

    def __init__(self, name: str, module: str, help_text: str) -> None:
        super().__init__(name=name, help=help_text)
        self._module = module

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._group().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._group().get_command(ctx, cmd_name)

    def _group(self) -> click.Group:
        group = import_module(self._module).GROUP
        assert isinstance(group, click.Group)
        return group
