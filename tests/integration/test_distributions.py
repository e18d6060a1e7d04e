"""`make dist`: the wheels in an empty environment are the whole command, with its servers."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.harness import ROOT
from tools.setup import UV, members, uv_environment

pytestmark = pytest.mark.full


def test_the_wheels_install_into_an_empty_environment(tmp_path: Path) -> None:
    environment = {**uv_environment(), "UV_PYTHON": sys.executable}
    wheels, place = tmp_path / "wheels", tmp_path / "environment"
    told = _run([sys.executable, "-m", "tools.dist", "--directory", wheels], environment)
    assert len(list(wheels.glob("*.whl"))) == len(members())
    _run([UV, "venv", "--quiet", place], environment)
    python = place / "bin" / "python"
    pip, install, *what = shlex.split(told.splitlines()[-1])
    assert (pip, install) == ("pip", "install")
    _run([UV, "pip", "install", "--quiet", "--python", python, *what], environment)

    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MAGNETAR"))}
    magnetar = place / "bin" / "magnetar"
    assert "magnetar, version" in _run([magnetar, "--version"], clean)
    for service in ("standalone", "broker", "bookie", "console", "discovery"):
        assert "\tdefault" in _run([magnetar, service, "--print-config"], clean), service
    loaded = _run([python, "-c", "import magnetar.broker.broker as one; print(one.__file__)"], clean)
    assert loaded.startswith(str(place)), "nothing comes from the clone"
    assert "Usage: magnetar admin" in _run([magnetar, "admin", "--help"], clean)


def _run(command: list[object], environment: dict[str, str]) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=environment,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
