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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import yaml

from tools.cluster_context import write_context
from tools.deploy_setup import compose_command
from tools.images.build import ensure
from tools.images.docker import Docker, DockerFailed, DockerUnavailable
from tools.images.stand_ins import NoStandIn, provide
from tools.images.targets import REPOSITORY, TARGETS, NotPinned, image_name, version
from tools.images.wheels import NoWheels

ROOT: Final = Path(__file__).resolve().parents[1]
FILE: Final = ROOT / "docker-compose.yml"
OVERRIDE: Final = ROOT / "docker-compose.override.yml"
SECURE_FILE: Final = ROOT / "docker-compose.secure.yml"
DEFAULTS: Final = ROOT / "deploy" / "compose.env.example"
HEALTHY_SECONDS_MAX: Final = 300.0
COMMAND_SECONDS_MAX: Final = 600.0
PROFILES: Final = ("grafana", "spark")
"""Profiles with long-running services."""
COMMANDS: Final = "tools"
"""Profile of the commands that `docker compose run --rm tools` runs and that end by themselves."""
ENDING: Final = ("certs",)
"""Services that make something for the others and end."""
_TAIL_LINES: Final = 40
_LABEL: Final = "com.docker.compose"


class ComposeFailed(Exception):
    """Compose failed, or a container does not become healthy; the message has the end of the output."""


@dataclass(slots=True)
class Compose:
    """One project made of docker-compose.yml."""

    docker: Docker
    program: tuple[str, ...]
    """The compose command line, from `tools.deploy_setup.compose_command()`."""
    name: str = ""
    """Project name, the prefix of containers, networks and volumes. Empty for compose's default, which uses
    .env and docker-compose.override.yml as a manual call does; a named project belongs to a test or
    benchmark, and ignores both files."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables of docker-compose.yml, over those of the environment and of .env."""
    profiles: tuple[str, ...] = ()
    secure: bool = False
    """Whether docker-compose.secure.yml is read over the other files: TLS, tokens and authorization."""
    _chosen_name: str = field(default="", init=False)

    @property
    def command(self) -> list[str]:
        """Common arguments of every call of compose."""
        name = ["--project-name", self.name] if self.name else []
        files = [part for file in self._files() for part in ("--file", str(file))]
        settings = ["--env-file", str(DEFAULTS)] if self.name else []
        chosen = [part for profile in self.profiles for part in ("--profile", profile)]
        return [*self.program, *name, *files, *settings, *chosen]

    def _files(self) -> list[Path]:
        """Files that compose is told to read; empty for its default."""
        if self.secure:
            # Compose leaves an override alone once files are named.
            override = [OVERRIDE] if not self.name and OVERRIDE.exists() else []
            return [FILE, *override, SECURE_FILE]
        return [FILE] if self.name else []

    @property
    def environment(self) -> dict[str, str]:
        """In which compose runs."""
        # Buildkit's and v2's progress for terminals would be nothing but noise in a message.
        return {**os.environ, "COMPOSE_ANSI": "never", **self.settings}

    def run(self, *arguments: str, seconds_max: float = COMMAND_SECONDS_MAX) -> str:
        """Output of `compose arguments`. Raises ComposeFailed."""
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
            try:
                logs = self.ends_of_logs()
            except (ComposeFailed, DockerFailed):
                logs = ""
            raise ComposeFailed(f"{error}\n{logs}".rstrip()) from None

    def down(self, *, volumes: bool = False) -> None:
        """Stop and remove every container; `volumes`: and all data."""
        self.run("down", "--remove-orphans", *(["--volumes"] if volumes else []))

    def containers(self) -> dict[str, str]:
        """The id of each container, by its service; those that do not run too."""
        name = self.name or self._name_of_its_choice()
        if not name:
            return {}
        listed = self.docker.run(
            "ps", "--all", "--no-trunc",
            "--filter", f"label={_LABEL}.project={name}",
            "--filter", f"label={_LABEL}.oneoff=False",
            "--format", f'{{{{.Label "{_LABEL}.service"}}}} {{{{.ID}}}}',
        )  # fmt: skip
        return dict(line.split() for line in listed.splitlines())

    def _name_of_its_choice(self) -> str:
        """Version of the project's containers; empty without any."""
        if not self._chosen_name and (found := self.run("ps", "--all", "--quiet").split()):
            form = f'{{{{index .Config.Labels "{_LABEL}.project"}}}}'
            self._chosen_name = self.docker.run("inspect", "--format", form, found[0])
        return self._chosen_name

    def states(self) -> dict[str, str]:
        """Docker's status of each container, by its service: `running healthy`, `exited 1`."""
        containers = self.containers()
        if not containers:
            return {}
        form = (
            '{{.State.Status}} {{if eq .State.Status "exited"}}{{.State.ExitCode}}'
            "{{else if .State.Health}}{{.State.Health.Status}}{{end}}"
        )
        told = self.docker.run("inspect", "--format", form, *containers.values()).splitlines()
        return dict(zip(containers, told, strict=True))

    def wait_until_healthy(self, seconds_max: float = HEALTHY_SECONDS_MAX) -> None:
        """Return once all containers run, or have ended with success where they are to end, and are healthy.

        Raises ComposeFailed.
        """
        deadline = time.monotonic() + seconds_max
        while True:
            states = self.states()
            left = {name: state for name, state in states.items() if not _is_well(name, state)}
            if states and not left:
                return
            if time.monotonic() > deadline:
                raise ComposeFailed(f"not healthy after {seconds_max:g} s: {left or 'nothing runs'}")
            time.sleep(0.2)

    def ends_of_logs(self, lines: int = _TAIL_LINES) -> str:
        """The last lines of every container that is not well, and its state."""
        ill = {name: state for name, state in self.states().items() if not _is_well(name, state)}
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


def _is_well(service: str, state: str) -> bool:
    return state.strip() in ("running", "running healthy") or (service in ENDING and state == "exited 0")


def have_images(docker: Docker, images: Sequence[str]) -> None:
    """Build those that this tree builds, and see that the others are there, pulled or by a stand-in.

    Raises ComposeFailed, DockerFailed, NoStandIn, NoWheels and NotPinned.
    """
    targets = {image_name(target): target for target in TARGETS}
    ours = [image for image in images if image in targets]
    others = [image for image in images if image not in targets]
    for image in others:
        if image.startswith(f"{REPOSITORY}/"):
            # Not pulled: in the public registry this name may belong to an unrelated account.
            if docker.inspect(image) is None:
                raise ComposeFailed(
                    f"{image} is not here, and this tree builds {version()}: take MAGNETAR_VERSION out of "
                    ".env and the environment, or have MAGNETAR_REGISTRY say where that version is"
                )
            print(f"compose: {image}, as MAGNETAR_VERSION says; this tree is {version()}", flush=True)
    if ours:
        ensure(docker, [targets[image] for image in ours])
    for image in others:
        provide(docker, image)


def arguments() -> argparse.Namespace:
    """Parsed arguments."""
    parser = argparse.ArgumentParser(description="Start or stop the cluster of docker-compose.yml.")
    what = parser.add_subparsers(dest="what", required=True)
    up = what.add_parser("up")
    up.add_argument("--profile", action="append", default=[], help="grafana, spark; repeat it for both")
    up.add_argument("--secure", action="store_true", help="with TLS, tokens and authorization")
    down = what.add_parser("down")
    down.add_argument("--volumes", action="store_true", help="remove the volumes too, and all data")
    return parser.parse_args()


def cluster() -> Compose:
    """Return the user's project on the running daemon. Raises ComposeFailed and DockerUnavailable."""
    docker, program = Docker(), compose_command()
    if program is None:
        raise ComposeFailed(
            "neither docker compose nor docker-compose is there: "
            "install it (on Debian, make deploy-setup as root does)"
        )
    return Compose(docker, tuple(program))


def up(compose: Compose) -> None:
    """Build or pull images, start all services, and print their addresses."""
    # The commands of `tools` are run by hand later: compose would pull an image that is not built here.
    have_images(compose.docker, replace(compose, profiles=(*compose.profiles, COMMANDS)).images())
    print("compose: starting, each stage when the one before is healthy", flush=True)
    began = time.monotonic()
    compose.up()
    seconds = time.monotonic() - began
    print(f"compose: all {len(compose.containers())} containers are healthy after {seconds:.0f} s")
    doors = {
        "clients": ("pulsar", "discovery", "6650"),
        "admin": ("http", "discovery", "8080"),
        "console": ("http", "console", "8090"),
        "Prometheus": ("http", "prometheus", "9090"),
    }
    if compose.secure:
        doors["clients"] = ("pulsar+ssl", "discovery", "6651")
        doors["admin"] = ("https", "discovery", "8443")
    if "grafana" in compose.profiles:
        doors["Grafana"] = ("http", "grafana", "3000")
    urls = {
        what: f"{scheme}://{compose.run('port', service, port).strip()}"
        for what, (scheme, service, port) in doors.items()
    }
    for what, url in urls.items():
        print(f"  {what + ':':<12}{url}")
    if not compose.secure:  # With security on, a context needs a token and an authority of the user.
        print(f"  {'context:':<12}{write_context('compose', urls['clients'], urls['admin'])}")
    print("docs/compose.md says more; make down stops all of it")


def main() -> None:
    asked = arguments()
    try:
        compose = cluster()
        if asked.what == "up":
            compose.profiles = tuple(asked.profile)
            compose.secure = asked.secure
            up(compose)
        else:
            compose.profiles = PROFILES
            compose.secure = True  # its containers and volumes too; without them there is nothing to do
            compose.down(volumes=asked.volumes)
            print(f"compose: stopped; {'all data is deleted' if asked.volumes else 'data stays'}")
    except (ComposeFailed, DockerFailed, DockerUnavailable, NoStandIn, NotPinned, NoWheels) as error:
        sys.exit(f"compose: {error}")
    except KeyboardInterrupt:
        sys.exit("compose: interrupted; make down stops what was started")


if __name__ == "__main__":
    main()
