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


def command(name: str, help_text: str, option: str) -> click.Command:
    return click.Command(name, help=help_text, params=[click.Option([option], help="A limit.")])


def test_commands_that_differ_only_in_a_name_that_their_help_repeats_come_together() -> None:
    group = click.Group("tool", help="A tool.")
    for each in ("get-ttl", "get-size"):
        group.add_command(command(each, f"Show {each.removeprefix('get-')}.", "--max"))
    group.add_command(command("get-all", "Show them.", "--min"))
    text = reference(group, "tool")
    assert "**`tool get-size`**, **`get-ttl [OPTIONS]`**\n\nShow what the name says.\n\n- `--max`" in text
    assert "**`tool get-all [OPTIONS]`**\n\nShow them.\n\n- `--min`" in text


def test_an_option_of_many_commands_is_described_once_and_only_named_in_each() -> None:
    group = click.Group("tool", help="A tool.")
    for each in ("a", "b", "c", "d"):
        group.add_command(command(each, f"Do {each}.", "--max"))
    text = reference(group, "tool")
    assert text.count("A limit.") == 1
    assert text.count("- Shared: `--max`") == 4


def test_every_option_of_ours_says_what_it_does() -> None:
    silent, command = [], ""
    for line in reference(main, "magnetar").splitlines():
        if line.startswith("**`"):
            command = line
        if line.startswith("- `--") and ": " not in line:
            silent.append(f"{command} {line}")
    assert silent == []
