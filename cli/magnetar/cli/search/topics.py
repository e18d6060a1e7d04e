"""The group `magnetar topics`, for messages of topics; `magnetar admin topics` administers topics."""

from __future__ import annotations

import click
from magnetar.cli.lazy_group import WholeSentences
from magnetar.cli.search.tail import tail


class Topics(WholeSentences):
    """A group that names `magnetar admin topics` for the commands of that group."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (
            args
            and args[0] not in self.commands
            and not args[0].startswith("-")
            and not ctx.resilient_parsing
        ):
            from magnetar.cli.admin.topics.commands import topics as of_admin

            if args[0] in of_admin.commands:
                ctx.fail(f"No such command {args[0]!r}. Did you mean 'admin topics {args[0]}'?")
        return super().resolve_command(ctx, args)


@click.group(cls=Topics)
def topics() -> None:
    """Follow messages of topics. `magnetar admin topics` administers them."""


topics.add_command(tail)
