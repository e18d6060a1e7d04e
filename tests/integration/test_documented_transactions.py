"""docs/transactions.md can be followed: its first section does what the text says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.clients.programs import PROGRAMS, CannotFetch
from tests.integration.harness import ROOT, Endpoint, magnetar_command

PAGE = (ROOT / "docs/transactions.md").read_text(encoding="utf-8")
SECTION = "Try it"
DOCUMENTED_URL = "pulsar://127.0.0.1:6650"
COMMAND_SECONDS_MAX = 120

SERVER_SETTINGS = {"transactionCoordinatorEnabled": "true"}

pytestmark = pytest.mark.full


def blocks() -> list[tuple[str, str]]:
    """Language and text of each block of the section."""
    (text,) = re.findall(rf"^## {SECTION}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```(java|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(command: list[str], endpoint: Endpoint, text: str = "") -> str:
    """Run a command of the page; returns what it printed."""
    path = f"{Path(magnetar_command()[0]).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        input=text,
        env={**os.environ, "PATH": path, "MAGNETAR_ADMIN_URL": endpoint.http_url},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def java(text: str, directory: Path) -> list[str]:
    """Return what starts a class of the page with the library of the client matrix."""
    try:
        built = PROGRAMS[0].build().command
    except CannotFetch as error:
        pytest.skip(f"the client in Java cannot be built: {error}")
    (name,) = re.findall(r"^public class (\w+)", text, re.MULTILINE)
    file = directory / f"{name}.java"
    file.write_text(text, encoding="utf-8")
    return [*built[:-1], str(file)]


def test_the_first_section_works_as_written(endpoint: Endpoint, tmp_path: Path) -> None:
    (_, starting), (language, program), (_, looking) = blocks()
    assert language == "java"
    assert starting == "magnetar standalone --set transactionCoordinatorEnabled=true\n"
    assert list(SERVER_SETTINGS.items()) == [("transactionCoordinatorEnabled", "true")]
    printed = run(
        java(program.replace(DOCUMENTED_URL, endpoint.service_url), tmp_path), endpoint
    ).splitlines()
    assert [line for line in printed if ": " in line][-2:] == [
        "aborted: null",
        "committed: bill for three apples",
    ]
    assert "prints `aborted: null` and `committed: bill for three apples`" in PAGE
    shown = run(["sh", "-e"], endpoint, looking)
    assert '"ongoingTxnSize": 0' in shown
    assert '"leastSigBits": 1' in shown, "two transactions have begun"
