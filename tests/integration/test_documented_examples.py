"""Tests of the examples in README.md and docs/quickstart.md."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.integration.harness import ROOT, Endpoint

DOCUMENTED_URL = "pulsar://127.0.0.1:6650"


def run_example(code: str, endpoint: Endpoint) -> str:
    """Runs Python code in a process of its own and returns its standard output."""
    code = code.replace(DOCUMENTED_URL, endpoint.service_url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_message_of_the_readme_takes_under_ten_lines_and_arrives(endpoint: Endpoint) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"python - <<'EOF'\n(.*?)EOF\n", readme, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) < 10
    assert DOCUMENTED_URL in code
    assert "b'hello'" in run_example(code, endpoint).splitlines()


def test_the_quickstart_can_be_followed_from_top_to_bottom(endpoint: Endpoint) -> None:
    quickstart = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"```python\n(.*?)```", quickstart, re.DOTALL))
    output = run_example(code + "client.close()\n", endpoint)
    assert [f"order {number}" for number in range(10)] == [
        line for line in output.splitlines() if re.fullmatch(r"order \d", line)
    ]
    assert "b'order 9'" in output
