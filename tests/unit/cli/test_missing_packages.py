"""A command that is not installed says what to install, and leaves the others and the help as they are."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from magnetar.cli.command_line import CommandLine
from magnetar.cli.missing_packages import not_installed


@click.group(cls=CommandLine)
def command() -> None:
    """A part of what there is."""


@command.command()
def bookie() -> None:
    """Serve."""
    click.echo("serves")


@command.command()
def broker() -> None:
    """Serve more."""
    raise ModuleNotFoundError("No module named 'magnetar.broker'", name="magnetar.broker.broker")


@command.lazily
def admin() -> click.Command:
    raise ModuleNotFoundError("No module named 'rich'", name="rich.table")


def test_a_command_whose_modules_are_missing_says_which_and_what_brings_them() -> None:
    for name, missing in (("admin", "rich"), ("broker", "magnetar.broker")):
        done = CliRunner().invoke(command, [name, "--any", "thing"] if name == "admin" else [name])
        assert done.exit_code == 1
        assert f"{missing} is not installed here: run `make setup` in a clone" in done.output


def test_it_is_not_in_the_help_and_the_others_work() -> None:
    said = CliRunner().invoke(command, ["--help"])
    assert said.exit_code == 0
    assert "bookie" in said.output
    assert "admin" not in said.output
    assert CliRunner().invoke(command, ["bookie"]).output == "serves\n"


def test_a_module_that_always_has_to_be_there_is_an_error_of_ours() -> None:
    assert not_installed(ModuleNotFoundError(name="magnetar.common.wire")) is None
    assert not_installed(ModuleNotFoundError(name="uvloop")) is None

    @click.group(cls=CommandLine)
    def broken() -> None: ...

    @broken.lazily
    def admin() -> click.Command:
        raise ModuleNotFoundError("No module named 'nothing'", name="nothing")

    with pytest.raises(ModuleNotFoundError, match="nothing"):
        CliRunner().invoke(broken, ["admin"], catch_exceptions=False)
