"""The daemon of tests: shared, ended with its last user, and nothing of it is left on the machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.harness import eventually
from tools.deploy_setup import cache_directory, program
from tools.docker_daemon import ROOT, docker_daemon, why_none_of_our_own
from tools.docker_traces import Machine
from tools.images.docker import Docker
from tools.images.stand_ins import PYTHON_IMAGE, NoStandIn, provide

pytestmark = pytest.mark.full


def test_a_daemon_of_our_own_is_shared_and_ends_with_its_last_user(
    docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not docker.daemon.ours:
        pytest.skip("a daemon that is not ours answers here")
    monkeypatch.delenv("DOCKER_HOST")
    with docker_daemon() as again:
        assert again == docker.daemon
    assert docker.run("version", "--format", "{{.Server.Version}}")


def test_a_daemon_of_our_own_keeps_images_in_the_cache_and_listens_nowhere_else(docker: Docker) -> None:
    if not docker.daemon.ours:
        pytest.skip("a daemon that is not ours answers here")
    assert docker.run("info", "--format", "{{.Driver}}") == "overlay2"
    assert docker.run("info", "--format", "{{.DockerRootDir}}") == str(cache_directory() / "docker")
    assert docker.daemon.host.startswith("unix:///")
    assert Path(docker.daemon.host.removeprefix("unix://")).is_socket()


def test_a_daemon_that_was_killed_starts_again_without_the_containers_of_that_time(
    docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not docker.daemon.ours:
        pytest.skip("a daemon that is not ours answers here")
    try:
        provide(docker, PYTHON_IMAGE)
    except NoStandIn as error:
        pytest.skip(f"there is nothing to run: {error}")
    docker.run("network", "create", "magnetar-left-behind")
    docker.run(
        "run", "--detach", "--restart", "unless-stopped", "--network", "magnetar-left-behind", PYTHON_IMAGE,
        "python3", "-c", "import time; time.sleep(600)",
    )  # fmt: skip
    socket = Path(docker.daemon.host.removeprefix("unix://"))
    os.kill(int(socket.with_name("docker.pid").read_text()), signal.SIGKILL)
    monkeypatch.delenv("DOCKER_HOST")
    with docker_daemon() as again:
        assert again == docker.daemon
    assert docker.run("ps", "--all", "--quiet") == ""
    assert "magnetar-left-behind" not in docker.run("network", "ls", "--format", "{{.Name}}")


USES_A_DAEMON = """
import subprocess, sys, time
from tools.docker_daemon import docker_daemon
from tools.images.docker import Docker

with docker_daemon() as daemon:
    docker = Docker(daemon)
    docker.run("import", sys.argv[1], "sleeps")
    docker.run("network", "create", "other")
    published = ("--network", "other", "--publish", "127.0.0.1:8080:80")
    docker.run("run", "--detach", "--stop-timeout", "1", *published, "sleeps", "/sleep", "600")
    print("started", flush=True)
    sys.stdin.readline()
"""
"""In a network namespace, where nobody else's daemon is."""


@pytest.fixture
def namespace() -> Iterator[str]:
    """The name of a network namespace of its own."""
    missing = [name for name in ("ip", "nsenter", "pgrep") if program(name) is None]
    if why := why_none_of_our_own() or ("" if not missing else f"there is no {missing[0]}"):
        pytest.skip(f"no daemon of our own can be tried: {why}")
    name = f"magnetar-docker-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", "-netns", name, "link", "set", "lo", "up"], check=True)
    yield name
    subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.fixture
def place(docker: Docker) -> Iterator[Path]:
    """A directory on the file system of the cache, where overlays can be, with a short name."""
    if not docker.daemon.ours:
        pytest.skip("a daemon that is not ours answers here")
    found = Path(tempfile.mkdtemp(prefix="d-", dir=cache_directory()))
    yield found
    shutil.rmtree(found)


def traces(namespace: str, place: Path) -> dict[str, str]:
    """What a daemon has changed in the namespace, which of its processes run, and what it has mounted."""
    found = {}
    for name, command in {
        "processes": ["netns", "pids", namespace],
        "rules": ["netns", "exec", namespace, "iptables-save"],
        "links": ["-netns", namespace, "-brief", "link"],
        "forwarding": ["netns", "exec", namespace, "cat", "/proc/sys/net/ipv4/ip_forward"],
    }.items():
        done = subprocess.run(["ip", *command], capture_output=True, text=True, check=True)
        lines = (line.partition(" [")[0] for line in done.stdout.splitlines())
        # Tables that were looked into are listed from then on: what counts is what they hold.
        empty = (
            "#",
            "*",
            "COMMIT",
            ":FORWARD ACCEPT",
            ":INPUT ",
            ":OUTPUT ",
            ":PREROUTING ",
            ":POSTROUTING ",
        )
        found[name] = "\n".join(line for line in lines if not line.startswith(empty))
    containers = subprocess.run(
        ["pgrep", "--full", "^/sleep 600"], capture_output=True, text=True, check=False
    )
    found["containers"] = containers.stdout
    found["mounts"] = "\n".join(mount for mount in Machine.now().mounts if mount.startswith(f"{place}/"))
    return found


def test_nothing_of_a_daemon_is_left_when_all_who_used_it_were_killed(namespace: str, place: Path) -> None:
    sleeps = place / "root"
    sleeps.mkdir()
    for needed in needed_by("sleep"):
        target = sleeps / needed.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(needed, target)
    shutil.copy(str(program("sleep")), sleeps)
    archive = place / "root.tar"
    subprocess.run(["tar", "--create", "--file", str(archive), "--directory", str(sleeps), "."], check=True)
    inside = ["nsenter", f"--net=/run/netns/{namespace}"]  # in which ip would have no cgroups
    before = traces(namespace, place)
    assert before["processes"] == before["containers"] == ""

    environment = {**os.environ, "TMPDIR": str(place), "MAGNETAR_CACHE_DIR": str(place / "cache")}
    environment.pop("DOCKER_HOST", None)
    with subprocess.Popen(
        [*inside, sys.executable, "-c", USES_A_DAEMON, str(archive)],
        env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as user:  # fmt: skip
        assert user.stdout is not None
        assert user.stdout.readline() == "started\n"
        meanwhile = traces(namespace, place)
        assert "docker0" in meanwhile["links"]
        assert ":FORWARD DROP" not in meanwhile["rules"], "what others forward is let through meanwhile"
        assert meanwhile["containers"]
        assert meanwhile["mounts"]
        user.kill()
    with contextlib.suppress(AssertionError):  # what is different says more
        eventually(lambda: traces(namespace, place) == before, "all of it is gone", 120.0)
    assert traces(namespace, place) == before


def needed_by(name: str) -> list[Path]:
    """The libraries of a program, and what loads them."""
    said = subprocess.run(["ldd", str(program(name))], capture_output=True, text=True, check=True).stdout
    return [Path(word) for word in said.split() if word.startswith("/")]
