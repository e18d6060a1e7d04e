"""Docker's command line, as far as images need it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tools.deploy_setup import docker_program

PULL_SECONDS_MAX: Final = 600.0
"""For the largest one on a slow line; Docker itself says within a minute that it reaches no registry."""

_ANSWER_SECONDS_MAX: Final = 20.0
_TAIL_LINES: Final = 25


class DockerFailed(Exception):
    """A command of Docker failed; the message is what it printed last."""


class DockerUnavailable(Exception):
    """There is no Docker program, or no daemon answers; the message says which."""


class Docker:
    """The daemon that Docker's own programs use: the one of DOCKER_HOST or of the current context."""

    def __init__(self) -> None:
        """Find the program and ask the daemon. Raises DockerUnavailable."""
        program = docker_program()
        if program is None:
            raise DockerUnavailable("there is no docker program on the PATH")
        self._program = str(program)
        try:
            self.run("version", "--format", "{{.Server.Version}}", timeout=_ANSWER_SECONDS_MAX)
        except DockerFailed:
            where = os.environ.get("DOCKER_HOST") or "its usual place"
            raise DockerUnavailable(
                f"no Docker daemon answers at {where}: start it, or name another in DOCKER_HOST"
            ) from None

    def run(self, *arguments: str, merged: bool = False, timeout: float | None = None) -> str:
        """Output of `docker arguments`; `merged`: with standard error. Raises DockerFailed."""
        try:
            done = subprocess.run(
                [self._program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if merged else subprocess.PIPE,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DockerFailed(f"docker {arguments[0]} took longer than {timeout:g} s") from None
        if done.returncode != 0:
            said = (
                (done.stdout + (done.stderr or b""))
                .decode(errors="replace")
                .strip()
                .splitlines()[-_TAIL_LINES:]
            )
            raise DockerFailed("\n".join([f"docker {' '.join(arguments[:2])}:", *said]))
        return done.stdout.decode(errors="replace").strip()

    def inspect(self, image: str) -> dict[str, Any] | None:
        """Facts about an image; None when it is missing."""
        try:
            (found,) = json.loads(self.run("image", "inspect", image))
        except DockerFailed:
            return None
        assert isinstance(found, dict)
        return found

    def label(self, image: str, label: str) -> str | None:
        """A label of an image; None when there is no such label or no such image."""
        found = self.inspect(image)
        value = None if found is None else (found["Config"].get("Labels") or {}).get(label)
        return None if value is None else str(value)

    def size(self, image: str) -> int:
        """Bytes of an image with everything below it. Raises DockerFailed."""
        return int(self.run("image", "inspect", "--format", "{{.Size}}", image))

    def architecture(self) -> str:
        """Architecture of the daemon, in Docker's terms: amd64, arm64."""
        return self.run("version", "--format", "{{.Server.Arch}}")

    def pull(self, image: str) -> None:
        """Have an image of a registry. Raises DockerFailed."""
        self.run("pull", "--quiet", image, timeout=PULL_SECONDS_MAX)

    def build(self, directory: Path, *, tag: str, arguments: Sequence[str] = ()) -> None:
        """Build what is in a directory, from images that are there. Raises DockerFailed."""
        self.run("build", "--quiet", "--tag", tag, *arguments, str(directory))

    def save(self, image: str, file: Path) -> None:
        """Write an image with its name to an archive, as `docker save` does. Raises DockerFailed."""
        self.run("save", "--output", str(file), image)
