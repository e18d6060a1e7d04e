"""The built wheels of the client in an empty environment, and the first example of its page run there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.harness import ROOT, Endpoint
from tools.setup import UV, uv_environment

pytestmark = pytest.mark.full

MEMBERS = ("libs/common", "libs/client")
INSTALLED = {"crc32c", "magnetar-client", "magnetar-common", "protobuf"}
FIRST_EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
NOT_IMPORTED = ("structlog", "grpc", "prometheus_client", "aiohttp", "fastavro", "pydantic", "cryptography")


def test_an_empty_environment_runs_the_first_example(endpoint: Endpoint, tmp_path: Path) -> None:
    environment = {**uv_environment(), "UV_PYTHON": sys.executable}
    wheels, place = tmp_path / "wheels", tmp_path / "environment"
    for member in MEMBERS:
        _run([UV, "build", "--wheel", "--quiet", "--out-dir", wheels, ROOT / member], environment)
    _run([UV, "venv", "--quiet", place], environment)
    python = place / "bin" / "python"
    _run([UV, "pip", "install", "--quiet", "--python", python, *wheels.glob("*.whl")], environment)
    listed = _run([UV, "pip", "list", "--quiet", "--python", python, "--format", "freeze"], environment)
    assert {line.partition("==")[0] for line in listed.splitlines() if "==" in line} == INSTALLED

    example = FIRST_EXAMPLE.search((ROOT / "docs/client.md").read_text(encoding="utf-8"))
    assert example is not None
    program = tmp_path / "example.py"
    program.write_text(example[1].replace("pulsar://localhost:6650", endpoint.service_url))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    assert _run([python, program], clean), "the example prints what it consumed"
    loaded = _run(
        [python, "-c", "import sys; from magnetar.client import Client; print(*sys.modules)"], clean
    )
    assert not set(NOT_IMPORTED) & set(loaded.split())


def _run(command: list[object], environment: dict[str, str]) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
