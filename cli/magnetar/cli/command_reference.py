"""Generates the command-line reference pages from the commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

import click

_PATH_SHOWN_MAX: Final = 2
"""Maximum words of a command path that the usage line shows in full; deeper paths are in the heading."""

_SHARED_MIN: Final = 2
"""Minimum size of an option set that is described only once when commands share it."""


def reference(root: click.Group, name: str) -> str:
    """Return every visible command with its arguments and options, in Markdown."""
    lines: list[str] = []
    described: dict[tuple[str, ...], str] = {}
    for path, command in _commands(root, (name,)):
        lines += _section(path, command, described)
    return "\n".join(lines) + "\n"


def _commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        found = {name: command.get_command(context, name) for name in command.list_commands(context)}
        shown = [(name, each) for name, each in found.items() if each is not None and not each.hidden]
        # Groups last, so that each command follows the heading of its own group.
        for name, each in sorted(shown, key=lambda pair: isinstance(pair[1], click.Group)):
            yield from _commands(each, (*path, name))


def _section(
    path: tuple[str, ...], command: click.Command, described: dict[tuple[str, ...], str]
) -> list[str]:
    """Returns the lines of one command; options equal to an earlier command's are not repeated."""
    context = click.Context(command, info_name=path[-1])
    shown = [option for option in _options(command) if not option.hidden]
    if isinstance(command, click.Group):
        lines = [f"{'#' * min(len(path) + 1, 4)} {' '.join(path)}", "", *_help(command), ""]
    else:
        arguments = [
            each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)
        ]
        shown_path = path[-1:] if len(path) > _PATH_SHOWN_MAX else path
        usage = " ".join((*shown_path, *arguments)) + (" [OPTIONS]" if shown else "")
        lines = [f"**`{usage}`**", "", *_help(command), ""]
    if shown:
        options = tuple(_option(option, context) for option in shown)
        earlier = described.setdefault(options, " ".join(path))
        if len(options) >= _SHARED_MIN and earlier != " ".join(path):
            options = (f"Options: those of `{earlier}`.",)
        lines += [*options, ""]
    return lines


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


def _help(command: click.Command) -> list[str]:
    """Return help text as Markdown; text after a backspace is an example and stays unchanged."""
    parts = inspect.cleandoc(command.help or "").split("\n\n")
    lines: list[str] = []
    for part in parts:
        if part.startswith("\b\n"):
            lines += ["```", *part.split("\n")[1:], "```", ""]
        else:
            lines += [" ".join(part.split("\n")), ""]
    return lines[:-1]


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    text = f"- {names}{value}: {option.help or ''}".rstrip(": ")
    notes = ["required"] if option.required else []
    if option.multiple:
        notes.append("repeatable")
    if option.show_default and option.default is not None and not option.is_flag:
        default = option.default
        shown = ", ".join(map(str, default)) if isinstance(default, tuple | list) else str(default)
        notes.append(f"default `{shown}`")
    return f"{text} ({'; '.join(notes)})" if notes else text
