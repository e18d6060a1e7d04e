"""Tests of the examples in docs/schemas.md."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

from tests.integration.harness import ROOT, Endpoint, magnetar_command
from tests.integration.test_documented_examples import run_example

PAGE = (ROOT / "docs/schemas.md").read_text(encoding="utf-8")


def test_the_examples_of_the_page_are_taken_and_refused_as_it_says(endpoint: Endpoint) -> None:
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    output = run_example(code, endpoint)
    assert "refused" in output.splitlines()
    (message,) = re.findall(r"```\n(strategy .*?)```", PAGE, re.DOTALL)
    assert " ".join(message.split()) in " ".join(output.split())
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for command in commands.splitlines():
        done = subprocess.run(
            [*magnetar_command(), *shlex.split(command)[1:]],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "MAGNETAR_ADMIN_URL": endpoint.http_url},
        )
        assert done.returncode == 0, (command, done.stderr)
