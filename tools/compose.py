"""docker-compose.yml as a running cluster: `make up` and `make down`, and what tests and benchmarks start.

Works with docker-compose 1.29 and with Compose v2, so it uses no more of either than both have; which
containers there are, and whether they are healthy, is asked of Docker by the labels that both give.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from tools.deploy_setup import compose_command, docker_program
from tools.docker_daemon import DockerDaemon
from tools.docker_keeper import answers
from tools.images.build import ensure
from tools.images.docker import Docker, DockerFailed
from tools.images.stand_ins import NoStandIn, provide
from tools.images.targets import NotPinned
from tools.images.wheels import NoWheels

ROOT: Final = Path(__file__).resolve().parents[1]
FILE: Final = ROOT / "docker-compose.yml"
HEALTHY_SECONDS_MAX: Final = 300.0
COMMAND_SECONDS_MAX: Final = 600.0
_TAIL_LINES: Final = 40
_LABEL: Final = "com.docker.compose"


class ComposeFailed(Exception):
    """Compose said no, or a container does not become healthy; the message has the end of what was said."""


@dataclass(slots=True)
class Compose:
    """One project made of docker-compose.yml."""

    docker: Docker
    program: tuple[str, ...]
    """How compose is called: `tools.deploy_setup.compose_command()`."""
    name: str = ""
    """The project, with which containers, networks and volumes begin; empty for compose's own choice."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables of docker-compose.yml, over those of the environment and of .env."""
    profiles: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """What every call of compose begins with."""
        named = ["--project-name", self.name] if self.name else []
        chosen = [part for profile in self.profiles for part in ("--profile", profile)]
        return [*self.program, *named, "--file", str(FILE), *chosen]

    @property
    def environment(self) -> dict[str, str]:
        """In which compose runs."""
        # Buildkit's and v2's progress for terminals would be nothing but noise in a message.
        return {**self.docker.daemon.environment, "COMPOSE_ANSI": "never", **self.settings}

    def run(self, *arguments: str, seconds_max: float = COMMAND_SECONDS_MAX) -> str:
        """What `compose arguments` prints. Raises ComposeFailed."""
        try:
            done = subprocess.run(
                [*self.command, *arguments],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, env=self.environment,
                timeout=seconds_max, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ComposeFailed(f"compose {arguments[0]} took longer than {seconds_max:g} s") from None
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip().splitlines()[-_TAIL_LINES:]
            raise ComposeFailed("\n".join([f"compose {' '.join(arguments)}:", *said]))
        return done.stdout

    def up(self, *services: str) -> None:
        """Start what does not run, in order, and wait until everything is healthy. Raises ComposeFailed."""
        try:
            self.run("up", "--detach", *services)
            self.wait_until_healthy()
        except ComposeFailed as error:
            raise ComposeFailed(f"{error}\n{self.ends_of_logs()}") from None

    def down(self, *, volumes: bool = False) -> None:
        """Stop and remove every container; `volumes`: and all data."""
        self.run("down", "--remove-orphans", *(["--volumes"] if volumes else []))

    def containers(self) -> dict[str, str]:
        """The id of each container, by its service; those that do not run too."""
        mine = f"project={self.name}" if self.name else f"project.working_dir={ROOT}"
        listed = self.docker.run(
            "ps", "--all", "--no-trunc",
            "--filter", f"label={_LABEL}.{mine}", "--filter", f"label={_LABEL}.oneoff=False",
            "--format", f'{{{{.Label "{_LABEL}.service"}}}} {{{{.ID}}}}',
        )  # fmt: skip
        return dict(line.split() for line in listed.splitlines())

    def states(self) -> dict[str, str]:
        """What Docker says of each container, by its service: `running healthy`, `exited `."""
        containers = self.containers()
        if not containers:
            return {}
        form = "{{.State.Status}} {{if .State.Health}}{{.State.Health.Status}}{{end}}"
        told = self.docker.run("inspect", "--format", form, *containers.values()).splitlines()
        return dict(zip(containers, told, strict=True))

    def wait_until_healthy(self, seconds_max: float = HEALTHY_SECONDS_MAX) -> None:
        """Return once all containers run, and those with a health check are healthy. Raises ComposeFailed."""
        deadline = time.monotonic() + seconds_max
        while True:
            states = self.states()
            left = {name: state for name, state in states.items() if not _is_well(state)}
            if states and not left:
                return
            if time.monotonic() > deadline:
                raise ComposeFailed(f"not healthy after {seconds_max:g} s: {left or 'nothing runs'}")
            time.sleep(0.2)

    def ends_of_logs(self, lines: int = _TAIL_LINES) -> str:
        """The last lines of every container that is not well, and its state."""
        ill = {name: state for name, state in self.states().items() if not _is_well(state)}
        told = [f"{name}: {state}" for name, state in ill.items()]
        if ill:
            told.append(self.run("logs", "--no-color", "--tail", str(lines), *ill))
        return "\n".join(told)

    def images(self) -> list[str]:
        """Names and tags of the images of the services that would be started."""
        services = yaml.safe_load(self.run("config"))["services"].values()
        # 1.29 shows every service, v2 those of the chosen profiles.
        chosen = (each for each in services if set(each.get("profiles", ())) <= set(self.profiles))
        return sorted({str(each["image"]) for each in chosen})


def _is_well(state: str) -> bool:
    return state.strip() in ("running", "running healthy")


def have_images(docker: Docker, images: Iterable[str], ours: Iterable[str]) -> None:
    """Build those of Magnetar named by `ours`, and see that the others are there, pulled or by a stand-in.

    Raises DockerFailed, NoStandIn, NoWheels and NotPinned.
    """
    ensure(docker, ours)
    for image in images:
        if not image.startswith("magnetar/"):
            provide(docker, image)


def main() -> None:
    parser = argparse.ArgumentParser(description="Start or stop the cluster of docker-compose.yml.")
    parser.add_argument("what", choices=["up", "down"])
    parser.add_argument("--profile", action="append", default=[], help="grafana, spark; repeat it for both")
    parser.add_argument("--volumes", action="store_true", help="down: remove the volumes too, and all data")
    asked = parser.parse_args()
    program, docker_cli = compose_command(), docker_program()
    if docker_cli is None or program is None:
        missing = (
            "there is no docker"
            if docker_cli is None
            else "neither docker compose nor docker-compose is there"
        )
        sys.exit(f"compose: {missing}: install it (on Debian, make deploy-setup as root does)")
    if not answers(docker_cli, ""):
        where = os.environ.get("DOCKER_HOST") or "its usual place"
        sys.exit(f"compose: no Docker daemon answers at {where}: start it, or name another in DOCKER_HOST")
    docker = Docker(DockerDaemon(os.environ.get("DOCKER_HOST", ""), ours=False))
    compose = Compose(docker, tuple(program), profiles=tuple(asked.profile))
    try:
        if asked.what == "down":
            compose.profiles = ("grafana", "spark")
            compose.down(volumes=asked.volumes)
            return
        ours = ["bookie", "broker", "discovery", *(["spark"] if "spark" in asked.profile else [])]
        have_images(docker, compose.images(), ours)
        began = time.monotonic()
        compose.up()
    except (ComposeFailed, DockerFailed, NoStandIn, NotPinned, NoWheels) as error:
        sys.exit(f"compose: {error}")
    print(f"compose: all healthy after {time.monotonic() - began:.0f} s")
    print(compose.run("ps"))
    doors = {
        "clients": ("pulsar", "discovery", "6650"),
        "admin": ("http", "discovery", "8080"),
        "Prometheus": ("http", "prometheus", "9090"),
    }
    for what, (scheme, service, port) in doors.items():
        print(f"{what + ':':<12}{scheme}://{compose.run('port', service, port).strip()}")
    print("docs/compose.md says more; make down stops all of it")


if __name__ == "__main__":
    main()
