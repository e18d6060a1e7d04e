"""The groups of `magnetar admin` say of each command what it does."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from magnetar.cli.lazy_group import LazyGroup
from magnetar.cli.main import main


@pytest.mark.parametrize(
    "group", ["", "admin", "admin tenants", "admin namespaces", "admin topics", "admin bookies", "perf"]
)
def test_the_help_of_a_group_cuts_no_sentence(group: str) -> None:
    result = CliRunner().invoke(main, [*group.split(), "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    commands = result.output.partition("Commands:")[2]
    assert commands
    assert not [line for line in commands.splitlines() if line.endswith("...")]


def test_commands_of_the_part_that_is_there_first_do_without_the_rest() -> None:
    def quick() -> click.Group:
        return click.Group(commands=[click.Command("list", callback=lambda: click.echo("listed"))])

    def everything() -> click.Group:
        group = quick()
        group.add_command(click.Command("rare", callback=lambda: click.echo("loaded")))
        loads.append(1)
        return group

    loads: list[int] = []
    group = LazyGroup("things", everything, "Things.", first=quick)
    assert (CliRunner().invoke(group, ["list"]).output, loads) == ("listed\n", [])
    assert (CliRunner().invoke(group, ["rare"]).output, bool(loads)) == ("loaded\n", True)
    assert "Did you mean 'rare'" in CliRunner().invoke(group, ["rar"]).output
    assert "list" in CliRunner().invoke(group, ["--help"]).output
