"""What the tests of images, compose, chart and dashboards need beside .venv: `make deploy-setup`.

Docker, docker-compose, Prometheus and debootstrap are packages of Debian and Ubuntu, installed by apt-get
where this is such a machine and root asks; nothing that they bring is started. helm is an ordinary Go program
and is built, pinned, into the cache. What cannot be had here is said, with what it is for: a tier of tests
that does not run is never mistaken for one that passed. Each `..._program` gives the program, or None.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

HELM_VERSION: Final = "v3.19.2"
HELM_MODULE: Final = "helm.sh/helm/v3/cmd/helm"
KUBERNETES_MINOR: Final = 34
"""Of the Kubernetes 1 that `helm template` and `helm lint` take for granted; 1.20 unless it is linked in."""

CACHE_VARIABLE: Final = "MAGNETAR_CACHE_DIR"
INSTALL_SECONDS_MAX: Final = 900.0
"""For what hangs; apt-get itself gives up a mirror that does not answer."""
HELM_SECONDS_MAX: Final = 1200.0
"""On two cores that lint at the same time, the first build takes a third of it."""
_POLICY: Final = Path("/usr/sbin/policy-rc.d")
_NOTHING_STARTS: Final = "#!/bin/sh\nexit 101\n"


class Package(NamedTuple):
    """A package of Debian, the program that shows it is there, and what cannot be done without it."""

    name: str
    program: str
    without: str


PACKAGES: Final = (
    Package("docker.io", "dockerd", "images are not built, and no container runs"),
    Package("iptables", "iptables", "a Docker daemon of our own cannot publish ports"),
    Package("docker-compose", "docker-compose", "docker-compose.yml is not tried"),
    Package("debootstrap", "debootstrap", "there is no stand-in for a base image that cannot be pulled"),
    Package("etcd-server", "etcd", "there is no stand-in for etcd's image"),
    Package("etcd-client", "etcdctl", "there is no stand-in for etcd's image"),
    Package("prometheus", "prometheus", "queries and alerts are not tried on a Prometheus"),
    Package("containerd", "containerd", "no Kubernetes node is started"),
    Package("runc", "runc", "no Kubernetes node is started"),
    Package("containernetworking-plugins", "/usr/lib/cni/bridge", "no Kubernetes node is started"),
)


def cache_directory() -> Path:
    """Where what is built for tests stays from run to run: MAGNETAR_CACHE_DIR, or `magnetar` in the user's
    cache."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar"


def program(name: str, *, ours: bool = False) -> Path | None:
    """A program on the PATH or where Debian keeps those of the administrator; `ours`: in our cache, first."""
    places = [os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]
    if ours:
        places.insert(0, str(cache_directory() / "bin"))
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
    """What checks rules, and tries them on made-up series."""
    return program("promtool")


def helm_program() -> Path | None:
    """helm, of version 3: the one that was built here, or the one on the PATH."""
    return program("helm", ours=True)


def _succeeds(command: list[str]) -> bool:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


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
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    names = sorted({package.name for package in packages})
    print(f"deploy setup: packages {', '.join(names)}", flush=True)
    command = ["apt-get", "install", "--yes", "--quiet=2", "--no-install-recommends", *names]
    with nothing_starts():
        # What is listed may be older than what the archive still has: the second try has a fresh list.
        for before in ([], ["apt-get", "update", "--quiet=2"]):
            if before:
                _why_failed(before, quiet, INSTALL_SECONDS_MAX)
            why = _why_failed(command, quiet, INSTALL_SECONDS_MAX)
            if why is None or why.startswith("apt-get took longer"):
                break
    return why


def build_helm() -> str | None:
    """Build helm into the cache; returns why that failed, or None. A few minutes the first time."""
    go = program("go")
    if go is None:
        return "there is no Go to build it with"
    print(f"deploy setup: helm {HELM_VERSION}, built with Go", flush=True)
    linked = " ".join(
        f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
        for package in ("chartutil", "lint/rules")
        for part, number in (("Major", 1), ("Minor", KUBERNETES_MINOR))
    )
    environment = {
        **os.environ, "GOBIN": str(cache_directory() / "bin"), "GOFLAGS": "-trimpath", "CGO_ENABLED": "0"
    }  # fmt: skip
    command = [str(go), "install", "-ldflags", f"-s -w {linked}", f"{HELM_MODULE}@{HELM_VERSION}"]
    return _why_failed(command, environment, HELM_SECONDS_MAX)


def _why_failed(command: list[str], environment: dict[str, str], seconds_max: float) -> str | None:
    """Run a command that may want a network; the last line that it said if it failed, None if not."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
            timeout=seconds_max, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{name} took longer than {seconds_max:g} s"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"{name} ended with {done.returncode}"])[-1]


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
    with locked("helm"):  # minutes, which nobody who wants packages should wait for
        if helm_program() is None and (failed := build_helm()):
            left["helm"] = f"{failed}: the chart is neither linted nor rendered"
    return left


def main() -> None:
    started = time.monotonic()
    left = set_up()
    for name, why in left.items():
        print(f"deploy setup: NO {name}: {why}", flush=True)
    print(f"deploy setup: done in {time.monotonic() - started:.0f} s", flush=True)
    if "--require" in sys.argv[1:] and left:
        sys.exit(1)


if __name__ == "__main__":
    main()
