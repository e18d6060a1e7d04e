"""The daemon of tests: whoever comes second shares it, and does not end it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tools.deploy_setup import cache_directory
from tools.docker_daemon import docker_daemon
from tools.images.docker import Docker
from tools.images.stand_ins import PYTHON_IMAGE, NoStandIn, provide


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


@pytest.mark.full
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
