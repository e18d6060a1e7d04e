"""Containers of a test: started as a careful operator would, and gone when the test is."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from tools.images.docker import Docker, DockerFailed

HEALTHY_SECONDS_MAX: Final = 120.0
CAREFUL: Final = (
    *("--read-only", "--tmpfs", "/tmp:size=64m,mode=1777"),
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
)
"""A root that cannot be written, and no right that can be taken away."""


@dataclass(frozen=True, slots=True)
class Container:
    """One that was started; it has its name on its network."""

    docker: Docker
    name: str

    def state(self) -> dict[str, Any]:
        """As `docker inspect` says it: Running, ExitCode, Health."""
        found = json.loads(self.docker.run("inspect", "--format", "{{json .State}}", self.name))
        assert isinstance(found, dict)
        return found

    def wait_healthy(self) -> float:
        """Wait until the image's own check says so; returns the seconds that took. Fails with the log."""
        began = time.monotonic()
        while True:
            state = self.state()
            if state.get("Health", {}).get("Status") == "healthy":
                return time.monotonic() - began
            waited = time.monotonic() - began
            if not state["Running"] or waited > HEALTHY_SECONDS_MAX:
                checks = [each["Output"] for each in state.get("Health", {}).get("Log") or ()][-3:]
                raise AssertionError(
                    f"{self.name} is not healthy after {waited:.0f} s: {checks}\n{self.logs()}"
                )
            time.sleep(0.2)

    def execute(self, *command: str) -> str:
        """What a command prints in it. Raises DockerFailed."""
        return self.docker.run("exec", self.name, *command)

    def logs(self) -> str:
        """The end of what it printed, on either stream."""
        try:
            return self.docker.run("logs", "--tail", "40", self.name, merged=True)
        except DockerFailed as error:
            return str(error)

    def stop(self, seconds: int) -> tuple[int, float]:
        """SIGTERM, and SIGKILL after so long; returns the exit code, and the seconds until the end."""
        began = time.monotonic()
        self.docker.run("stop", "-t", str(seconds), self.name)
        return int(self.state()["ExitCode"]), time.monotonic() - began


class Containers:
    """A network, and containers on it."""

    def __init__(self, docker: Docker, network: str) -> None:
        self.docker = docker
        self.network = network
        self._started: list[str] = []

    def start(
        self,
        image: str,
        name: str,
        *command: str,
        environment: Mapping[str, str] | None = None,
        volume: str | None = None,
    ) -> Container:
        """Start one in the background, by whatever name others on the network shall know it by.

        `volume` is a directory that it may write, which goes with it.
        """
        variables = [
            part for key, value in (environment or {}).items() for part in ("--env", f"{key}={value}")
        ]
        whole = f"{self.network}-{name}"
        self._started.append(whole)
        self.docker.run(
            "run", "--detach", "--name", whole, "--network", self.network, "--network-alias", name,
            "--hostname", name, *CAREFUL,
            *(("--volume", volume) if volume else ()), *variables, image, *command,
        )  # fmt: skip
        return Container(self.docker, whole)

    def run(self, image: str, *command: str, environment: Mapping[str, str] | None = None) -> str:
        """What one prints that ends by itself. Raises DockerFailed."""
        variables = [
            part for key, value in (environment or {}).items() for part in ("--env", f"{key}={value}")
        ]
        return self.docker.run(
            "run", "--rm", "--network", self.network, *CAREFUL, *variables, image, *command, merged=True
        )

    def remove(self) -> None:
        """End and remove all of it, with anonymous volumes."""
        for name in reversed(self._started):
            with contextlib.suppress(DockerFailed):
                self.docker.run("rm", "--force", "--volumes", name)
        self.docker.run("network", "rm", self.network)


@contextlib.contextmanager
def containers(docker: Docker) -> Iterator[Containers]:
    """A network of their own for containers of a test."""
    network = f"magnetar-test-{uuid4().hex[:8]}"
    docker.run("network", "create", network)
    found = Containers(docker, network)
    try:
        yield found
    finally:
        found.remove()
