"""The group `magnetar`: imports commands on first use, and exits with the codes shells expect."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

import click
from magnetar.cli.lazy_group import WholeSentences
from magnetar.cli.missing_packages import MissingCommand, not_installed

_CANNOT_WRITE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C (128 + SIGINT)."""


class CommandLine(WholeSentences):
    """A group with direct commands and commands that are imported on first use."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loaders: dict[str, Callable[[], click.Command]] = {}

    def lazily(self, load: Callable[[], click.Command]) -> Callable[[], click.Command]:
        """Add the command that `load` imports; it has the function's name, with - for _."""
        self._loaders[load.__name__.replace("_", "-")] = load
        return load

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._loaders})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        load = self._loaders.get(cmd_name)
        if load is None:
            return super().get_command(ctx, cmd_name)
        try:
            return load()
        except ModuleNotFoundError as error:
            why = not_installed(error)
            if why is None:
                raise
            return MissingCommand(cmd_name, why)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest similar commands, also those that are not imported yet, and groups of `magnetar admin`."""
        given, known = args[0], self.list_commands(ctx)
        if given not in known and not given.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            admin = self.get_command(ctx, "admin") if "admin" in known else None
            if isinstance(admin, click.Group) and given in admin.list_commands(ctx):
                ctx.fail(f"No such command {given!r}. Did you mean 'admin {given}'?")
            if similar := get_close_matches(given, known, n=1):
                ctx.fail(f"No such command {given!r}. Did you mean {similar[0]!r}?")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command; Ctrl-C during shell completion prints no traceback."""
        _heed_sigterm()
        try:
            return super().main(*args, **kwargs)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)

    def invoke(self, ctx: click.Context) -> Any:
        """Exit with 130 on Ctrl-C. Report write errors of the output and missing packages as one line
        each."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except KeyboardInterrupt:
            click.echo("\nInterrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except ModuleNotFoundError as error:
            why = not_installed(error)
            if why is None:
                raise
            raise why from error
        except (
            UnicodeEncodeError
        ) as error:  # An argument is not valid UTF-8: names must be text; contents are sent as raw bytes.
            raise click.UsageError(f"{error.object!r} is not valid UTF-8") from error
        except OSError as error:
            if error.errno not in _CANNOT_WRITE:
                raise
            _drop_output()
            raise click.ClickException(f"cannot write the output: {error.strerror}") from error


def _heed_sigterm() -> None:
    """Make SIGTERM end this process also when it is PID 1 of a container.

    The kernel does not deliver SIGTERM to PID 1 without a handler. Services install their own handler after
    loading; jobs and commands do not.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def _drop_output() -> None:
    """Discards buffered output; flushing it at exit would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
