"""`magnetar produce` with lines, names and files, against a broker of prepared answers."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest
import uvloop
from click.testing import CliRunner
from magnetar.cli.client import line_reader
from magnetar.cli.client.line_reader import lines_of
from magnetar.cli.main import main

from tests.unit.cli.client.broker_stub import broker_stub, receipt


@pytest.fixture(scope="module", autouse=True)
def signal_pipe() -> None:
    """The pipe that libuv keeps for signals as long as the process lives is open before the first test."""
    uvloop.new_event_loop().close()


async def _collect(*files: Any) -> list[bytes]:
    async with aclosing(lines_of(files, asyncio.Event())) as lines:
        return [line async for line in lines]


@pytest.mark.parametrize(
    ("contents", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a\n\nb"], [b"a", b"", b"b"]),
        ([b"a", b"b\n"], [b"a", b"b"]),
        ([b""], []),
        ([b"x" * 200_000 + b"\ny"], [b"x" * 200_000, b"y"]),
    ],
)
def test_lines_are_those_of_the_files(contents: list[bytes], lines: list[bytes]) -> None:
    assert asyncio.run(_collect(*(io.BytesIO(each) for each in contents))) == lines


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "LINE_BYTES_MAX", 100_000)
    with pytest.raises(Exception, match="a line has more than 100000 bytes"):
        asyncio.run(_collect(io.BytesIO(b"x" * 300_000)))


def test_a_line_is_yielded_before_the_next_one_is_written() -> None:
    """Lines of `tail -f` are sent as they come, and a reader that waits does not hold up the end."""
    may_end = threading.Event()

    class Slow:
        def __init__(self) -> None:
            self.parts: Iterator[bytes] = iter([b"first\nsec"])

        def read1(self, _: int) -> bytes:
            if (part := next(self.parts, b"")) == b"":
                may_end.wait(10)
            return part

    async def scenario() -> list[bytes]:
        stopped = asyncio.Event()
        found = []
        async for line in lines_of([Slow()], stopped):  # type: ignore[list-item]
            found.append(line)
            stopped.set()
        return found

    assert asyncio.run(scenario()) == [b"first"]
    may_end.set()


def test_each_line_of_standard_input_is_a_message() -> None:
    sent = 0

    def count(command: Any) -> bytes:
        nonlocal sent
        sent += 1
        return receipt(command)

    with broker_stub(send=count) as url:
        arguments = ["produce", "t", "-f", "-", "--lines", "--disable-batching", "--url", url]
        done = CliRunner().invoke(main, arguments, input="a\nb\nc")
    assert (done.exit_code, sent) == (0, 3), done.output
    assert "3 messages successfully produced" in done.stderr


@pytest.mark.parametrize("more", [("-m", "x"), ("-f", "-", "-n", "2"), ()])
def test_lines_go_with_files_alone(more: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, ["produce", "t", "--lines", *more])
    assert (done.exit_code, "--lines goes with --files" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        ("produce", "a\tb", "-m", "x"),
        ("consume", "a\tb", "-s", "s"),
        ("perf", "produce", "a\x1b[31m"),
        ("admin", "topics", "create", "a\tb"),
        ("admin", "topics", "create-partitioned-topic", "a\tb", "-p", "1"),
    ],
)
def test_a_topic_with_a_control_character_is_refused(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, "contains the control character" in done.stderr) == (2, True), done.output


@pytest.mark.parametrize("option", ["--tls-trust-cert-path", "--tls-certificate", "--tls-key"])
def test_a_file_that_cannot_be_read_is_refused_also_without_tls(option: str) -> None:
    done = CliRunner().invoke(main, ["produce", "t", "-m", "x", option, "/nonexistent"])
    assert (done.exit_code, "cannot read /nonexistent: No such file" in done.stderr) == (2, True)
