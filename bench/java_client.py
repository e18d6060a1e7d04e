"""Publishing with Apache Pulsar's own Java client, as applications do: bench/java/ClientLoad.java."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.jars import fetch_jars, jars_directory, version_in
from bench.loads import Measured
from bench.target import Target, new_topic

SOURCES: Final = Path(__file__).parent / "java"
HEAP: Final = "-Xmx1g"


def client_version() -> str:
    """The version of the client that publishes."""
    return version_in(SOURCES / "pom.xml")


def client_jars(say: Callable[[str], None]) -> Path | str:
    """Where the client's jars are, fetched by Maven when they were not; or why there are none."""
    what = f"Apache Pulsar's Java client {client_version()} (48 MB)"
    return fetch_jars(client_jars_name(), SOURCES / "pom.xml", what, say)


def client_jars_name() -> str:
    """Name of the directory with the jars of the client."""
    return f"java-client-{client_version()}"


@dataclass(frozen=True, slots=True)
class JavaProduce:
    """Publish to a fresh topic without subscription, `window` in flight; the JVM is warm when it counts."""

    size: int
    batching: bool
    seconds: float
    warm_up_seconds: float
    window: int = 1_000

    def __call__(self, target: Target) -> Measured:
        """Needs the jars that `client_jars` fetches. Raises RuntimeError when the program fails."""
        arguments = (target.service_url, new_topic(), self.size, self.window, str(self.batching).lower())
        command = [
            "java",
            HEAP,
            "-cp",
            f"{jars_directory(client_jars_name())}/*",
            str(SOURCES / "ClientLoad.java"),
        ]
        command += [*map(str, arguments), str(self.warm_up_seconds), str(self.seconds)]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout is not None
            assert program.stderr is not None
            program.stdout.readline()
            cpu_before = target.cpu_seconds()
            ended = program.stdout.readline().split()
            cpu = target.cpu_seconds() - cpu_before
            errors = program.stderr.read()
        if program.returncode != 0 or len(ended) != 5:
            raise RuntimeError(f"the Java client ended with {program.returncode}: {errors.strip()[-500:]}")
        messages, seconds, p50_us, p99_us = map(float, ended[1:])
        figures = {
            "entries": messages,
            "messages/s": messages / seconds,
            "ack p50": p50_us / 1e3,
            "ack p99": p99_us / 1e3,
            "server CPU per million": cpu / messages * 1e6,
        }
        return Measured(figures, {})
