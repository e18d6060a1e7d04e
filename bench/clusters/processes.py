"""Processes of a measured cluster, of either kind: what can be done with each, and one that runs Java."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from tests.integration.harness import Endpoint, spawn

START_SECONDS_MAX: Final = 180.0
STOP_SECONDS_MAX: Final = 60.0
LOG_TAIL_CHARACTERS: Final = 3_000


class Process(Protocol):
    """A process that can be ended and started again on the same ports and data."""

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def running(self) -> bool: ...

    def launch(self) -> None: ...

    def wait_until_healthy(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def log_tail(self) -> str: ...


class JavaProcess:
    """One JVM with a directory of its own, in which its logs stay until the cluster is removed."""

    def __init__(
        self, directory: Path, name: str, command: Sequence[str], is_ready: Callable[[], bool]
    ) -> None:
        self.name = name
        self.directory = directory
        self._command = command
        self._is_ready = is_ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process and wait for nothing."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "console.log").open("ab") as log:
            self._process = spawn(self._command, log, self.directory)

    def wait_until_healthy(self) -> None:
        """Raises RuntimeError with the end of the logs when it does not get ready."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._is_ready():
            if not self.running:
                raise RuntimeError(f"{self.name} ended while it started\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self.name} was not ready within {START_SECONDS_MAX:g} s\n{self.log_tail()}"
                )
            time.sleep(0.1)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for a process that takes too long."""
        if self._process is None or not self.running:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL; a process that is not running stays so."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log_tail(self) -> str:
        """The end of each of its logs."""
        return "\n".join(
            f"--- end of {log}\n{log.read_text(errors='replace')[-LOG_TAIL_CHARACTERS:]}"
            for log in sorted(self.directory.glob("*.log"))
        )


class JavaBroker(JavaProcess):
    """A JVM that is a broker."""

    def __init__(self, directory: Path, name: str, command: Sequence[str], endpoint: Endpoint) -> None:
        super().__init__(
            directory, name, command, lambda: answers(f"{endpoint.http_url}/admin/v2/brokers/ready")
        )
        self.endpoint = endpoint


def listens(port: int) -> bool:
    """Whether a connection to a port on loopback is accepted."""
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def answers(url: str) -> bool:
    """Whether a page is there."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
