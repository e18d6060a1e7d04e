"""docs/spark.md can be followed from top to bottom: its commands and its Python do what the text says."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.harness import ROOT, magnetar_command
from tests.spark.servers import SparkServer, pulsar_client, read_all

PAGE = (ROOT / "docs/spark.md").read_text(encoding="utf-8")
FOLLOWED = (
    "In five minutes",
    "Ask the files",
    "Topics as tables",
    "Streams",
    "Writing to topics",
    "Typed values",
    "Jobs",
)
JOB_SECONDS_MAX = 600


def blocks(section: str) -> list[tuple[str, str]]:
    """Language and text of each block under a heading."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```(python|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """Of a block for a shell, comments left out."""
    return [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines() if line]


class Reader:
    """Somebody who does what the page says, at another server's ports and below another directory."""

    def __init__(self, server: SparkServer, directory: Path) -> None:
        self._server = server
        self._directory = directory
        self._names: dict[str, Any] = {}

    def follow(self, section: str) -> str:
        """Do all of a section; returns what was printed."""
        printed = []
        for language, text in blocks(section):
            if language == "python":
                printed.append(self._run_python(text))
            else:
                printed += [self._run(command) for command in commands(text) if command[1] != "standalone"]
        return "".join(printed)

    def _here(self, text: str) -> str:
        endpoint = self._server.endpoint
        for documented, here in (
            ("pulsar://127.0.0.1:6650", endpoint.service_url),
            ("127.0.0.1:6750", self._server.offload_address),
            ("/tmp/", f"{self._directory}/"),
        ):
            text = text.replace(documented, here)
        return text

    def _run_python(self, text: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(self._here(text), "docs/spark.md", "exec"), self._names)
        return out.getvalue()

    def _run(self, command: list[str]) -> str:
        assert command[0] == "magnetar", command
        done = subprocess.run(
            [*magnetar_command(), *map(self._here, command[1:])],
            capture_output=True,
            text=True,
            timeout=JOB_SECONDS_MAX,
            check=False,
            env={
                **os.environ,
                "MAGNETAR_ADMIN_URL": self._server.endpoint.http_url,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout


@pytest.fixture
def followed(
    new_server: Callable[..., SparkServer], spark: SparkSession, tmp_path: Path
) -> Iterator[tuple[Reader, SparkServer]]:
    """A reader of the page, and the server that its first command starts."""
    (first, *_) = commands(blocks("In five minutes")[0][1])
    settings = dict(each.split("=") for each in first if "=" in each)
    server = new_server(settings)
    yield Reader(server, tmp_path), server
    for query in spark.streams.active:
        query.stop()


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_page_can_be_followed_from_top_to_bottom(followed: tuple[Reader, SparkServer]) -> None:
    reader, server = followed
    printed = {section: reader.follow(section) for section in FOLLOWED}
    first = printed["In five minutes"]
    assert "offloaded" in first
    assert "Paris" in first
    assert "50000 orders" in first
    assert "100 customers" in printed["Ask the files"]
    assert "customer-" in printed["Topics as tables"]
    assert "50000" in printed["Streams"]
    assert re.findall(r"\| *(\w+)\| *(\w+)\|", printed["Typed values"])[1:] == [
        ("cart", "Oslo"),
        ("home", "NULL"),
    ]
    with pulsar_client(server.endpoint) as client:
        orders = read_all(client, "orders", 50_000)
        totals = read_all(client, "totals", 1_000)
    assert orders[0].data() == b'{"order": 0, "cents": 0}'
    assert orders[-1].data().startswith(b'{"order": 49999,')
    assert {message.properties()["from"] for message in totals} == {"spark"}
    assert sorted(int(re.findall(rb"\d+", message.data())[0]) for message in totals) == list(range(1_000))
