"""The command line of the job, and that `magnetar offload` has the same."""

from __future__ import annotations

import argparse

import click
import pytest
from magnetar.cli.jobs.offload import offload
from magnetar.cli.jobs.options import arguments_of
from magnetar.common.errors import ConfigError
from magnetar.spark.offload import command
from magnetar.spark.offload.options import parse, parser

NOT_PASSED_ON = {"run": {"--deploy-mode"}}
"""spark-submit's own."""


def options_of(name: str) -> set[str]:
    """Of a command of the job."""
    (commands,) = [each for each in parser()._actions if isinstance(each, argparse._SubParsersAction)]
    return {
        option
        for action in commands.choices[name]._actions
        for option in action.option_strings
        if option not in ("-h", "--help")
    }


@pytest.mark.parametrize("name", ["run", "status", "sweep"])
def test_the_command_of_magnetar_and_the_job_have_the_same_options(name: str) -> None:
    given = offload.commands[name]
    options = {each for option in given.params if isinstance(option, click.Option) for each in option.opts}
    assert options - NOT_PASSED_ON.get(name, set()) == options_of(name)


@pytest.mark.parametrize("name", ["run", "status", "sweep"])
def test_defaults_are_the_same(name: str) -> None:
    needed = {"status": ["--topic", "t"], "sweep": ["--location", "file:///x"], "run": []}[name]
    theirs = vars(parse([name, *needed]))
    with offload.commands[name].make_context(name, list(needed)) as context:
        ours = {key: value for key, value in context.params.items() if key in theirs}
    passed = vars(
        parse([name, *arguments_of({k: v for k, v in ours.items() if k not in ("master", "conf")})])
    )
    assert passed == theirs


@pytest.mark.parametrize(
    ("text", "found"), [("", (0, 0)), ("5", (5, 0)), ("5:7", (5, 7)), ("x", None), ("1:y", None), (":", None)]
)
def test_message_ids(text: str, found: tuple[int, int] | None) -> None:
    if found is None:
        with pytest.raises(ConfigError, match="LEDGER:ENTRY"):
            command.message_id(text)
    else:
        assert command.message_id(text) == found


def test_settings_of_spark() -> None:
    assert command.settings(["a=b", "c=d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        command.settings(["a"])


def test_a_directory_is_a_uri(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert command.as_uri("cold") == f"file://{tmp_path}/cold"
    assert command.as_uri("s3://bucket/x") == "s3://bucket/x"
    assert command.as_uri("") == ""
