"""A group of commands whose module is imported when the group is used: `magnetar` itself starts quickly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

_SENTENCE_MAX: Final = 1_000


class LazyGroup(click.Group):
    """Stands for the group that `load` gives."""

    def __init__(self, name: str, load: Callable[[], click.Group], help_text: str) -> None:
        super().__init__(name=name, help=help_text)
        self._load = load

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._load().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._load().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with its whole sentence: click leaves of it what fits beside the longest name."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, each.get_short_help_str(_SENTENCE_MAX))
                    for name, each in commands
                    if each is not None
                ]
            )
