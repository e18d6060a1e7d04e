"""Hints of the command line: similar commands, and options at the end of the line."""

from __future__ import annotations

import json

import click
import pytest
from click.testing import CliRunner
from magnetar.cli.admin.admin_group import ANYWHERE
from magnetar.cli.admin.command import admin
from magnetar.cli.main import main

from tests.unit.cli.admin.test_http_client import Broker, broker

__all__ = ["broker"]


@pytest.mark.parametrize(
    ("given", "suggested"),
    [
        ("prodce", "produce"),
        ("namespaces", "admin namespaces"),
        ("standalon", "standalone"),
        ("admin topcs", "topics"),
    ],
)
def test_an_unknown_command_has_a_suggestion(given: str, suggested: str) -> None:
    done = CliRunner().invoke(main, given.split())
    assert (done.exit_code, f"Did you mean '{suggested}'?" in done.stderr) == (2, True), done.stderr


def test_a_word_that_is_like_no_command_has_none() -> None:
    assert CliRunner().invoke(main, ["xyzzy"]).stderr.splitlines()[-1] == "Error: No such command 'xyzzy'."


@pytest.mark.parametrize(
    "arguments",
    [
        ["tenants", "list", "--output", "json", "--admin-url", "URL"],
        ["tenants", "list", "--output=json", "--admin-url=URL"],
        ["tenants", "--admin-url", "URL", "list", "--json", "--request-timeout", "5"],
        ["--admin-url", "http://127.0.0.1:1", "tenants", "list", "--json", "--admin-url", "URL"],
    ],
)
def test_the_options_of_admin_may_stand_anywhere_and_the_last_counts(
    broker: Broker, arguments: list[str]
) -> None:
    broker.answers["GET", "/admin/v2/tenants"] = 200, ["a"], {}
    done = CliRunner().invoke(main, ["admin", *(word.replace("URL", broker.url) for word in arguments)])
    assert json.loads(done.stdout) == ["a"], done.stderr


def test_an_option_at_the_end_without_its_value_is_a_usage_error(broker: Broker) -> None:
    done = CliRunner().invoke(main, ["admin", "tenants", "list", "--admin-url"])
    assert done.exit_code == 2


def test_no_command_of_admin_has_an_option_that_is_accepted_anywhere() -> None:
    def options(group: click.Group, context: click.Context) -> set[str]:
        found: set[str] = set()
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if isinstance(command, click.Group):
                found |= options(command, context)
            found |= {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
        return found

    assert not options(admin, click.Context(admin)) & {*ANYWHERE, "--json"}
