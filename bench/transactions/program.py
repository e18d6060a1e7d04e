"""The Java program that runs transactions (bench/java/TransactionLoad.java), and what its answers mean."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from typing import Final

from bench.jars import jars_directory
from bench.java_client import HEAP, SOURCES, client_jars_name
from bench.target import Target

RATE: Final = "transactions/s"
CPU: Final = "server CPU, ms a transaction"
COMMIT_P50: Final = "commit p50, ms"
COMMIT_P99: Final = "commit p99, ms"
WHOLE_P50: Final = "whole p50, ms"
WHOLE_P99: Final = "whole p99, ms"
MESSAGES: Final = "messages/s"
MESSAGE_CPU: Final = "server CPU, s a million"


def cycle_figures(words: Sequence[str], cpu_s: float) -> dict[str, float]:
    """Figures of consume-transform-publish. Raises ValueError when no transaction ended in time."""
    count, seconds, commit_p50, commit_p99, whole_p50, whole_p99 = map(float, words)
    if not count:
        raise ValueError("no transaction ended while it was counted; measure for longer")
    return {
        RATE: count / seconds,
        COMMIT_P50: commit_p50 / 1e3,
        COMMIT_P99: commit_p99 / 1e3,
        WHOLE_P50: whole_p50 / 1e3,
        WHOLE_P99: whole_p99 / 1e3,
        CPU: cpu_s / count * 1e3,
    }


def publish_figures(words: Sequence[str], cpu_s: float) -> dict[str, float]:
    """Figures of publishing, inside of transactions or outside."""
    messages, seconds = map(float, words)
    return {MESSAGES: messages / seconds, MESSAGE_CPU: cpu_s / messages * 1e6}


class Program:
    """One running program, connected to one broker; its JVM stays warm between loads."""

    def __init__(self, target: Target, process: subprocess.Popen[str]) -> None:
        self._target = target
        self._process = process

    def run(self, *words: object) -> tuple[list[str], float]:
        """Run a load: words of its answer, and the broker's CPU seconds while it counted.

        Raises RuntimeError with what the program printed when it fails.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        before = after = self._target.cpu_seconds()
        while answer := self._process.stdout.readline().split():
            match answer[0]:
                case "began":
                    before = self._target.cpu_seconds()
                case "over":
                    after = self._target.cpu_seconds()
                case "ended":
                    return answer[1:], after - before
        assert self._process.stderr is not None
        self._process.wait()
        why = self._process.stderr.read().strip()
        raise RuntimeError(f"the Java client failed in '{' '.join(map(str, words))}': {why[:2_000]}")


@contextlib.contextmanager
def program(target: Target) -> Iterator[Program]:
    """Start the program; needs the jars of `java_client.client_jars`. It has ended on return."""
    command = ["java", HEAP, "-cp", f"{jars_directory(client_jars_name())}/*"]
    command += [str(SOURCES / "TransactionLoad.java"), target.service_url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Program(target, process)
        finally:
            process.kill()
