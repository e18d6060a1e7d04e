"""The daemon of tests: whoever comes second shares it, and does not end it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.deploy_setup import cache_directory
from tools.docker_daemon import docker_daemon
from tools.images.docker import Docker


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
