"""Programs that tests of images, compose, chart and dashboards need beside .venv: `make deploy-setup`.

Docker, docker-compose, Prometheus and debootstrap are packages of Debian and Ubuntu, installed by apt-get
where this is such a machine and root asks; nothing that they bring is started. helm and the reader of
Compose v2 are Go programs, built, pinned, into the cache. What cannot be had here is said, with what it
is for: a tier of tests that does not run is never mistaken for one that passed. What hangs is given up, and
SIGTERM ends all of it. Each `..._program` gives the program, or None.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tools.bounded import run, uninterrupted

KUBERNETES_MINOR: Final = 34
"""Minor version of Kubernetes that `helm template` and `helm lint` take for granted; 1.20 unless it is linked
in.
"""

CACHE_VARIABLE: Final = "MAGNETAR_CACHE_DIR"
INSTALL_SECONDS_MAX: Final = 900.0
"""For all that apt-get is asked; a mirror that does not answer it gives up much earlier."""
MODULE_SECONDS_MAX: Final = 120.0
"""To fetch one small module: without a network that says so, and not the build, which may take longer."""
BUILD_SECONDS_MAX: Final = 1200.0
"""On two cores that lint at the same time, the first build takes a third of it."""
_ASK_SECONDS_MAX: Final = 60.0
_POLICY: Final = Path("/usr/sbin/policy-rc.d")
_NOTHING_STARTS: Final = "#!/bin/sh\nexit 101\n"


class Package(NamedTuple):
    """A package of Debian, the program that shows it is there, and what cannot be done without it."""

    name: str
    program: str
    without: str


class GoProgram(NamedTuple):
    """A program of a Go module, pinned, and what cannot be done without it."""

    name: str
    """The name used here."""
    module: str
    version: str
    package: str
    """The directory of the module that has it; its last part is what Go calls the program."""
    without: str
    linked: tuple[str, ...] = ()
    """Variables that the linker sets."""

    @property
    def directory(self) -> Path:
        """Version of the cache; another version is built beside it."""
        return cache_directory() / f"{self.name}-{self.version}"

    @property
    def built(self) -> Path | None:
        """The program, where it has been built."""
        file = self.directory / Path(self.package).name
        return file if file.exists() else None


HELM: Final = GoProgram(
    "helm", "helm.sh/helm/v3", "v3.19.2", "cmd/helm", "the chart is neither linted nor rendered",
    tuple(
        f"helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
        for package in ("chartutil", "lint/rules")
        for part, number in (("Major", 1), ("Minor", KUBERNETES_MINOR))
    ),
)  # fmt: skip
COMPOSE_GO: Final = GoProgram(
    "compose-go", "github.com/compose-spec/compose-go/v2", "v2.9.0", "cmd",
    "docker-compose.yml is not read as Compose v2 does",
)  # fmt: skip
"""By which Compose v2 reads files; this is the version of Compose 2.40."""

PACKAGES: Final = (
    Package("docker.io", "dockerd", "images are not built, and no container runs"),
    Package("iptables", "iptables", "a Docker daemon that CI starts cannot publish ports"),
    Package("docker-compose", "docker-compose", "docker-compose.yml is not tried"),
    Package("debootstrap", "debootstrap", "there is no stand-in for a base image that cannot be pulled"),
    Package("etcd-server", "etcd", "there is no stand-in for etcd's image"),
    Package("etcd-client", "etcdctl", "there is no stand-in for etcd's image"),
    Package("chromium", "chromium", "the console is not tried in a browser"),
    Package("prometheus", "prometheus", "queries and alerts are not tried on a Prometheus"),
)


def cache_directory() -> Path:
    """Where what is built for tests stays from run to run: MAGNETAR_CACHE_DIR, or `magnetar` in the user's
    cache."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar"


def program(name: str) -> Path | None:
    """A program on the PATH or where Debian keeps those of the administrator."""
    places = (os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")
    found = shutil.which(name, path=os.pathsep.join(places))
    return Path(found) if found else None


def docker_program() -> Path | None:
    """Docker's command line."""
    return program("docker")


def dockerd_program() -> Path | None:
    """Docker's daemon."""
    return program("dockerd")


def compose_command() -> list[str] | None:
    """How compose is called here: version 2, a part of `docker`, or 1.29, a program of its own."""
    docker = docker_program()
    if docker and _succeeds([str(docker), "compose", "version"]):
        return [str(docker), "compose"]
    found = program("docker-compose")
    return [str(found)] if found else None


def prometheus_program() -> Path | None:
    """The Prometheus server."""
    return program("prometheus")


def promtool_program() -> Path | None:
    """The tool that checks rules and tests them on sample series."""
    return program("promtool")


def helm_program() -> Path | None:
    """helm, of version 3: the one that was built here, or the one on the PATH."""
    return HELM.built or program("helm")


def compose_go_program() -> Path | None:
    """The tool that reads docker-compose.yml as Compose v2 does."""
    return COMPOSE_GO.built


def _succeeds(command: list[str]) -> bool:
    return run(command, _ASK_SECONDS_MAX).why_failed is None


def missing_packages() -> list[Package]:
    """Those whose program is not there."""
    return [package for package in PACKAGES if program(package.program) is None]


def why_not_installed() -> str | None:
    """The reason for which packages cannot be installed here; None where they can."""
    if program("apt-get") is None:
        return "this is neither Debian nor Ubuntu (there is no apt-get)"
    if os.geteuid() != 0:
        return "only root may install packages"
    return None


@contextlib.contextmanager
def nothing_starts() -> Iterator[None]:
    """Packages that bring servers do not start them meanwhile: they ask policy-rc.d, which says no."""
    if _POLICY.exists():  # the administrator's own; it knows better
        yield
        return
    _POLICY.write_text(_NOTHING_STARTS)
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time in what has this name, of all that share the cache."""
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(packages: list[Package]) -> str | None:
    """Install them; returns why that failed, or None."""
    names = sorted({package.name for package in packages})
    print(f"deploy setup: packages {', '.join(names)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    give_up_at = time.monotonic() + INSTALL_SECONDS_MAX

    def why_not(*arguments: str) -> str | None:
        command = ["apt-get", "--yes", "--quiet=2", *_APT_OPTIONS, *arguments]
        return run(command, max(give_up_at - time.monotonic(), 1.0), environment=environment).why_failed

    # Fetched first, which may be broken off at any time.
    if why_not("install", "--download-only", *names):
        # What is listed may be older than what the archive has by now, or there is no list yet.
        outdated = why_not("update", "-o", "APT::Update::Error-Mode=any")
        known = [name for name in names if _succeeds(["apt-cache", "show", name])]
        if not known:
            return outdated or f"the archive has none of {', '.join(names)}"
        names = known  # the others are not in every release
        if why := why_not("install", "--download-only", *names):
            return why
    with nothing_starts(), uninterrupted():
        return why_not("install", "--no-download", *names)


_APT_OPTIONS: Final = (
    "--no-install-recommends",
    *("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::https::Timeout=20"),
    *("-o", "DPkg::Lock::Timeout=60"),
)


def build(wanted: GoProgram) -> str | None:
    """Build it into the cache; returns why that failed, or None. A few minutes the first time."""
    go = program("go")
    if go is None:
        return "there is no Go to build it with"
    print(f"deploy setup: {wanted.name} {wanted.version}, built with Go", flush=True)
    flags = f"-s -w {' '.join(f'-X {each}' for each in wanted.linked)}".strip()
    environment = {
        **os.environ, "GOBIN": str(wanted.directory), "GOFLAGS": "-trimpath", "CGO_ENABLED": "0"
    }  # fmt: skip
    fetch = [str(go), "mod", "download", f"{wanted.module}@{wanted.version}"]
    install = [
        str(go), "install", "-ldflags", flags, f"{wanted.module}/{wanted.package}@{wanted.version}"
    ]  # fmt: skip
    return (
        run(fetch, MODULE_SECONDS_MAX, environment=environment).why_failed
        or run(install, BUILD_SECONDS_MAX, environment=environment).why_failed
    )


def set_up() -> dict[str, str]:
    """Install and build what is missing. Returns, for each thing that is still missing, why and what for."""
    left: dict[str, str] = {}
    with locked("packages"):
        wanted = missing_packages()
        why = None if not wanted else why_not_installed() or install(wanted)
        for package in missing_packages():
            left[package.name] = (
                f"{why or 'it was installed, and its program is not there'}: {package.without}"
            )
    for each, there in ((COMPOSE_GO, compose_go_program), (HELM, helm_program)):
        with locked(each.name):  # Builds take minutes; package installs must not wait for them.
            if there() is None and (failed := build(each)):
                left[each.name] = f"{failed}: {each.without}"
    return left


def main() -> None:
    started = time.monotonic()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        left = set_up()
    except KeyboardInterrupt:
        sys.exit("deploy setup: interrupted; what is missing is made by the next call")
    for name, why in left.items():
        print(f"deploy setup: NO {name}: {why}", flush=True)
    print(f"deploy setup: done in {time.monotonic() - started:.0f} s", flush=True)
    if "--require" in sys.argv[1:] and left:
        sys.exit(1)


if __name__ == "__main__":
    main()
