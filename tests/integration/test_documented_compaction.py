"""docs/compaction.md can be followed: its first section does what the text says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.integration.harness import ROOT, Endpoint, magnetar_command

PAGE = (ROOT / "docs/compaction.md").read_text(encoding="utf-8")
SECTION = "Try it"
DOCUMENTED_URL = "pulsar://127.0.0.1:6650"
COMMAND_SECONDS_MAX = 120


def blocks() -> list[tuple[str, str]]:
    """Language and text of each block of the section."""
    (text,) = re.findall(rf"^## {SECTION}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```(python|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(language: str, text: str, endpoint: Endpoint) -> str:
    """Run a block of the page; returns what it printed."""
    command = [sys.executable, "-"] if language == "python" else ["sh", "-e"]
    path = f"{Path(magnetar_command()[0]).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        input=text.replace(DOCUMENTED_URL, endpoint.service_url),
        env={**os.environ, "PATH": path, "MAGNETAR_ADMIN_URL": endpoint.http_url},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_first_section_works_as_written(endpoint: Endpoint) -> None:
    publishing, compacting, reading = blocks()
    run(*publishing, endpoint)
    assert "SUCCESS" in run(*compacting, endpoint)
    printed = run(*reading, endpoint).splitlines()
    assert [line for line in printed if not line.startswith("20")] == ["pear 2.20", "apple 1.15"]
    assert "`pear 2.20` and `apple 1.15`" in PAGE
