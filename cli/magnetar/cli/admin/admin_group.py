"""The group `magnetar admin`: accepts its own options anywhere and explains Pulsar commands that are not
supported.
"""

from __future__ import annotations

from typing import Final

import click
from magnetar.cli.lazy_group import WholeSentences

AS_JSON: Final = "magnetar.as_json"
"""The key in the context's meta that is set when --json is given."""

ANYWHERE: Final = frozenset({"--admin-url", "--output", "--request-timeout"})
"""Options with a value that are accepted anywhere on the line, as --json is. No command below has one of
their names.
"""

NOT_HERE: Final = {
    "functions": "functions are not part of Magnetar: run them with a stream processor",
    "functions-worker": "functions are not part of Magnetar: run them with a stream processor",
    "sources": "connectors are not part of Magnetar: run them with Kafka Connect or a job of your own",
    "source": "connectors are not part of Magnetar: run them with Kafka Connect or a job of your own",
    "sinks": "connectors are not part of Magnetar: run them with Kafka Connect or a job of your own",
    "sink": "connectors are not part of Magnetar: run them with Kafka Connect or a job of your own",
    "packages": "packages belong to functions, which are not part of Magnetar",
    "proxy-stats": "there is no separate proxy: connect to brokers",
    "resourcegroups": "this version has no resource groups; limit rates with `namespaces set-publish-rate`",
    "documents": "docs/cli.md lists all commands",
}
"""Groups of pulsar-admin that are not supported, and the reason."""


class AdminGroup(WholeSentences):
    """Accepts the options of `ANYWHERE` after the command as well: scripts and people append them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        first: list[str] = []
        kept: list[str] = []
        words = iter(args[:end])
        for word in words:
            if word == "--json":
                ctx.meta[AS_JSON] = True
            elif word in ANYWHERE and (value := next(words, None)) is not None:
                first += [word, value]
            elif word.partition("=")[0] in ANYWHERE and "=" in word:
                first.append(word)
            else:
                kept.append(word)
        return super().parse_args(ctx, first + kept + args[end:])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in NOT_HERE:
            ctx.fail(f"No {args[0]!r}: {NOT_HERE[args[0]]}.")
        return super().resolve_command(ctx, args)
