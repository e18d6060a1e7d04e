"""The group `magnetar`: imports a command when it is used, and ends as a shell expects it."""

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
"""The exit code after Ctrl-C, as of a shell."""


class CommandLine(WholeSentences):
    """A group with commands of its own and commands that are imported when they are used."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loaders: dict[str, Callable[[], click.Command]] = {}

    def lazily(self, load: Callable[[], click.Command]) -> Callable[[], click.Command]:
        """Add the command that `load` imports; the function has its name, with _ for -."""
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

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command; Ctrl-C during completion in a shell leaves no traceback."""
        _heed_sigterm()
        try:
            return super().main(*args, **kwargs)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)

    def invoke(self, ctx: click.Context) -> Any:
        """Ctrl-C wherever it comes ends with 130; output that cannot be written is one line, and so
        is what is not installed."""
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
        except UnicodeEncodeError as error:  # Of an argument: names are texts. Contents are sent as they are.
            raise click.UsageError(f"{error.object!r} is not valid UTF-8") from error
        except OSError as error:
            if error.errno not in _CANNOT_WRITE:
                raise
            _drop_output()
            raise click.ClickException(f"the output cannot be written: {error.strerror}") from error


def _heed_sigterm() -> None:
    """Have SIGTERM end this process also where it is the first one of a container.

    Others it ends unless they handle it; to that one the kernel does not bring it then. Services handle it
    once they are loaded, jobs and commands never.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def _drop_output() -> None:
    """Discards buffered output, which would fail again when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
