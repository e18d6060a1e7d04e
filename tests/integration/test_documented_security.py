"""docs/security.md can be followed: commands and Python of its first section do what the text says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from magnetar.testing.free_ports import free_ports

from tests.integration.harness import ROOT, StandaloneServer, magnetar_command

PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")
SECTION = "First token in five minutes"
COMMAND_SECONDS_MAX = 120


def blocks() -> list[tuple[str, str]]:
    """Language and text of each block of the section."""
    (text,) = re.findall(rf"^## {SECTION}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```(python|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class SecuredStandalone(StandaloneServer):
    """The documented `magnetar standalone --config`, with free ports in the place of the documented ones."""

    def __init__(self, directory: Path, config: Path) -> None:
        super().__init__(directory)
        self.settings = {"magnetarControlPort": "-1"}
        self.arguments = ["standalone", "--config", str(config), "--data-dir", str(directory / "data")]

    def _healthy(self) -> bool:
        return self.log_path.exists() and b"magnetar ready in" in self.log_path.read_bytes()


def run(command: list[str], directory: Path, text: str = "") -> str:
    """Run a program of the page; returns what it printed. Its failure fails the test."""
    path = f"{Path(magnetar_command()[0]).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        input=text,
        cwd=directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture
def ports() -> dict[str, str]:
    """Free ports by the documented ones."""
    return dict(zip(("6651", "8443"), map(str, free_ports(2)), strict=True))


def test_the_first_section_works_as_written(tmp_path: Path, ports: dict[str, str]) -> None:
    def here(text: str) -> str:
        for documented, free in ports.items():
            text = text.replace(documented, free)
        return text

    (_, making), (_, using), (language, program) = blocks()
    assert language == "python"
    make_certificates, start = making.strip().splitlines()
    run(["sh", "-ec", make_certificates], tmp_path)
    for name in ("standalone.conf", "admin.conf", "client.conf"):
        file = tmp_path / "certs" / name
        file.write_text(here(file.read_text()))
    assert start.startswith("magnetar standalone --config certs/standalone.conf")
    server = SecuredStandalone(tmp_path, tmp_path / "certs" / "standalone.conf")
    server.start()
    try:
        assert "successfully produced" in run(["sh", "-ec", here(using)], tmp_path)
        run([sys.executable, "-"], tmp_path, here(program))
        audited = server.log_path.read_text()
        assert '"event": "permissions changed"' in audited
        refused = here(using.splitlines()[-1]).replace("greetings", "persistent://public/other/greetings")
        with pytest.raises(AssertionError, match="AuthorizationError"):
            run(["sh", "-ec", refused], tmp_path)
    finally:
        server.kill()
