"""A command group whose module is imported on first use, so that `magnetar` starts quickly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import click

_SENTENCE_MAX: Final = 1_000


class WholeSentences(click.Group):
    """A group whose help shows the full first sentence of each command; click would truncate it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, each.get_short_help_str(_SENTENCE_MAX))
                    for name, each in commands
                    if each is not None and not each.hidden
                ]
            )


class LazyGroup(WholeSentences):
    """A group that `load` imports on first use.

    `first` imports a small part of the group quickly; its commands do not need the rest.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], click.Group],
        help_text: str,
        *,
        first: Callable[[], click.Group] | None = None,
    ) -> None:
        super().__init__(name=name, help=help_text)
        self._load = load
        self._first = first

    def _group_with(self, name: str) -> click.Group:
        if self._first is not None:
            group = self._first()
            if name in group.commands:
                return group
        return self._load()

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._load().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._group_with(cmd_name).get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return self._group_with(args[0] if args else "").resolve_command(
            ctx, args
        )  # The loaded group suggests similar commands.
