"""Commands that do the same as a page: the command line takes them, whatever names and payloads are."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any
from urllib.parse import urlencode

import click
import pytest
from magnetar.cli.main import main
from magnetar.console.pages import commands

from tests.unit.console.pages.test_changes import CHANGES, TOPIC, orders
from tests.unit.console.stage import HOSTILE, Browser, FakeAdmin, on_stage

NAMES = ["audit", HOSTILE, "-f", "--force", "a b", "$(reboot)", "`id`", "'", "x\ny"]


def parsed(command: str) -> tuple[list[str], dict[str, Any]]:
    """The names of the command and its options, as click understands them."""
    program, *words = shlex.split(command)
    assert program == "magnetar"
    found: click.Command = main
    context = click.Context(found)
    names = []
    while isinstance(found, click.Group):
        names.append(words.pop(0))
        inner = found.get_command(context, names[-1])
        assert inner is not None, names
        found = inner
    return names, found.make_context(names[-1], words, parent=context).params


@pytest.mark.parametrize("name", NAMES)
def test_names_of_subscriptions_are_names_whatever_they_look_like(name: str) -> None:
    names, options = parsed(commands.subscription_command("skip", TOPIC, name, "--count=4"))
    assert (names, options["subscription"], options["count"]) == (["admin", "topics", "skip"], name, 4)


@pytest.mark.parametrize("fields", [each[0] for each in CHANGES], ids=[each[0]["kind"] for each in CHANGES])
def test_each_change_has_its_command(fields: dict[str, str]) -> None:
    async def body(admin: FakeAdmin, browser: Browser) -> None:
        page = (await browser.get(f"/change?{urlencode(fields)}")).text
        command = page.partition('<pre tabindex="0">')[2].partition("</pre>")[0]
        names, options = parsed(command)
        assert names[:2] == ["admin", "topics"]
        assert TOPIC in (options.get("topic"), options.get("topic_name"), *map(str, options.values()))
        if "name" in fields:
            assert options["subscription"] == fields["name"]

    on_stage(body, orders())


def test_messages_are_read_by_commands() -> None:
    for command, names in (
        (commands.browse_command(TOPIC, "earliest", 25, position=None, time_ms=0), ["consume"]),
        (
            commands.browse_command(TOPIC, "time", 25, position=None, time_ms=1_700_000_000_000),
            ["admin", "topics", "get-message-id"],
        ),
        (
            commands.browse_command(TOPIC, "id", 25, position=(12, 3), time_ms=0),
            ["admin", "topics", "get-message-by-id"],
        ),
        (
            commands.browse_command(TOPIC, "latest", 25, position=None, time_ms=0),
            ["admin", "topics", "examine-messages"],
        ),
    ):
        assert parsed(command)[0] == names


@pytest.mark.parametrize("payload", [b"plain", HOSTILE.encode(), b"", b"-n %s \\n'\n", b"\xff\x00"])
def test_a_shell_gives_the_command_the_payload_byte_for_byte(payload: bytes) -> None:
    command = commands.produce_command(TOPIC, payload, "k", {"color": "red; reboot", HOSTILE: HOSTILE})
    before, _, after = command.rpartition(" | ")
    names, options = parsed(after)
    assert (names, options["key"]) == (["produce"], "k")
    assert options["properties"] == ("color=red; reboot", f"{HOSTILE}={HOSTILE}")
    if not before.startswith("echo"):  # which needs xxd
        assert subprocess.run(["sh", "-c", before], capture_output=True, check=True).stdout == payload
    else:
        assert bytes.fromhex(before.split()[1]) == payload


def test_what_no_command_can_publish_has_none() -> None:
    assert commands.produce_command(TOPIC, b"x", "", {"a": "b,c"}) == ""
    assert commands.produce_command(TOPIC, b"x" * 10_000, "", {}) == ""
