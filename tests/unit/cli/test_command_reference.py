"""docs/cli.md is written from commands: what help shows of them, no more and no less."""

from __future__ import annotations

import click
from magnetar.cli.command_reference import reference
from magnetar.cli.main import main


@click.group()
def tool() -> None:
    """A tool."""


@tool.command()
@click.argument("what")
@click.option("--times", "-n", type=int, default=3, show_default=True, help="So often.")
@click.option("--name", multiple=True, required=True)
@click.option("--old", is_flag=True, hidden=True)
def act(what: str, times: int, name: tuple[str, ...], old: bool) -> None:
    """Do it
    all.

    \b
    tool act x
    """


@tool.command(hidden=True)
def before() -> None:
    """An old name."""


def test_a_page_has_commands_arguments_options_and_examples() -> None:
    assert reference(tool, "tool") == (
        "## tool\n\nA tool.\n\n"
        "**`tool act WHAT [OPTIONS]`**\n\nDo it all.\n\n```\ntool act x\n```\n\n"
        "- `--times`, `-n` INTEGER: So often. (default `3`)\n"
        "- `--name` TEXT (required; repeatable)\n\n"
    )


def test_every_option_of_ours_says_what_it_does() -> None:
    silent, command = [], ""
    for line in reference(main, "magnetar").splitlines():
        if line.startswith("**`"):
            command = line
        if line.startswith("- `--") and ": " not in line:
            silent.append(f"{command} {line}")
    assert silent == []
