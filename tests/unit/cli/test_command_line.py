"""How the command ends as a process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WAITING = """
import os, signal

signal.signal(signal.SIGTERM, signal.{sigterm})
os.getpid = lambda: {pid}

import click
from magnetar.cli.command_line import CommandLine

@click.group(cls=CommandLine)
def main(): ...

@main.command()
def wait():
    print("waits", flush=True)
    signal.pause()

main(["wait"])
"""


@pytest.mark.parametrize(
    ("sigterm", "pid", "status"),
    # To the first process of a container the kernel brings no signal whose action is the default one.
    [("SIG_IGN", 1, 128 + signal.SIGTERM), ("SIG_DFL", 7, -signal.SIGTERM)],
    ids=["first of a container", "any other"],
)
def test_sigterm_ends_a_command_that_has_no_use_for_it(sigterm: str, pid: int, status: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITING.format(sigterm=sigterm, pid=pid)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
            process.terminate()
            assert process.wait(30) == status
        finally:
            process.kill()
