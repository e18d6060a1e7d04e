"""Generates the command-line reference pages from the commands."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Final

import click

_PATH_SHOWN_MAX: Final = 2
"""Maximum words of a command path that the usage line shows in full; deeper paths are in the heading."""

_SHARED_MIN: Final = 2
"""Minimum size of an option set that is described only once when commands share it."""

_FREQUENT: Final = 4
"""Number of commands from which an option stands once above all of them."""


def reference(root: click.Group, name: str) -> str:
    """Every command that help lists, with its arguments and options, in Markdown."""
    commands = list(_commands(root, (name,)))
    frequent = _frequent(commands)
    lines: list[str] = []
    if frequent:
        lines += ["Shared options, which commands below only name:", "", *frequent, ""]
    described: dict[tuple[str, ...], str] = {}
    for path, alike in _alike(commands):
        lines += _section(path, alike, described, frequent)
    return "\n".join(lines) + "\n"


def _frequent(commands: list[tuple[tuple[str, ...], click.Command]]) -> dict[str, str]:
    """Lines of options that many commands have alike, with the first name of each if no other has it."""
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for path, command in commands:
        context = click.Context(command, info_name=path[-1])
        for option in _options(command):
            line = _option(option, context)
            counts[line] += 1
            first[line] = f"`{option.opts[0]}`" + (" (required)" if option.required else "")
    found = {line: first[line] for line, count in counts.items() if count >= _FREQUENT and ": " in line}
    names = Counter(found.values())
    return {line: name for line, name in found.items() if names[name] == 1}


def _alike(
    commands: list[tuple[tuple[str, ...], click.Command]],
) -> Iterator[tuple[tuple[str, ...], list[click.Command]]]:
    """Commands of a group whose help only repeats their names come together where all else is alike."""
    heads: dict[tuple[object, ...], list[click.Command]] = {}
    ordered: list[tuple[tuple[str, ...], list[click.Command]]] = []
    for path, command in commands:
        verb, _, what = (command.name or "").partition("-")
        said = inspect.cleandoc(command.help or "")
        key: tuple[object, ...] = (path,)
        if what and not isinstance(command, click.Group) and said.endswith(f" {what}."):
            context = click.Context(command, info_name=path[-1])
            shown = tuple(_option(each, context) for each in _options(command))
            key = (path[:-1], verb, said.removesuffix(f" {what}."), _arguments(command, context), shown)
        if key in heads:
            heads[key].append(command)
        else:
            heads[key] = [command]
            ordered.append((path, heads[key]))
    return iter(ordered)


def _arguments(command: click.Command, context: click.Context) -> str:
    return " ".join(each.make_metavar(context) for each in command.params if isinstance(each, click.Argument))


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
    path: tuple[str, ...],
    alike: list[click.Command],
    described: dict[tuple[str, ...], str],
    frequent: dict[str, str],
) -> list[str]:
    """Returns the lines of one command, or of several that are alike.

    Options that an earlier command has alike are not repeated.
    """
    command, *others = alike
    context = click.Context(command, info_name=path[-1])
    shown = [option for option in _options(command) if not option.hidden]
    if isinstance(command, click.Group):
        lines = [f"{'#' * min(len(path) + 1, 4)} {' '.join(path)}", "", *_help(command), ""]
    else:
        shown_path = path[-1:] if len(path) > _PATH_SHOWN_MAX else path
        end = " ".join(filter(None, (_arguments(command, context), "[OPTIONS]" if shown else "")))
        names = [" ".join(shown_path), *(each.name or "" for each in others)]
        said = [f"{_help(command)[0].partition(' ')[0]} what the name says."] if others else _help(command)
        lines = [", ".join(f"**`{name}`**" for name in names[:-1]) + ", "] if others else [""]
        lines[0] += f"**`{' '.join(filter(None, (names[-1], end)))}`**"
        lines += ["", *said, ""]
    if shown:
        every = [_option(option, context) for option in shown]
        options = tuple(line for line in every if line not in frequent)
        named = [frequent[line] for line in every if line in frequent]
        earlier = described.setdefault(tuple(every), " ".join(path))
        if len(every) >= _SHARED_MIN and earlier != " ".join(path):
            options, named = (f"Options: those of `{earlier}`.",), []
        lines += [*options, *([f"- Shared: {', '.join(named)}"] if named else []), ""]
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
