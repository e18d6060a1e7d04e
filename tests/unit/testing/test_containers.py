"""The container for testcontainers: its image, command and ports. No daemon is asked."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

containers = pytest.importorskip(
    "magnetar.testing.containers", reason="testcontainers is not installed: make setup-tests"
)


class Daemon:
    """The daemon as testcontainers knows it before it starts anything."""

    def host(self) -> str:
        return "docker.example.org"


@pytest.fixture(autouse=True)
def no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testcontainers.core.container.DockerClient", Daemon)
    for variable in ("MAGNETAR_REGISTRY", "MAGNETAR_VERSION"):
        monkeypatch.delenv(variable, raising=False)


def chosen(container: Any) -> dict[str, str]:
    """The settings in the command of a container, by key."""
    container._configure()
    command = container._command
    assert command[:3] == ["standalone", "--data-dir", "/data/standalone"]
    assert command[3::2] == ["--set"] * len(command[4::2])
    return dict(setting.split("=", 1) for setting in command[4::2])


def test_the_image_is_that_of_this_version_with_the_registry_of_the_compose_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert containers.default_image() == f"magnetar/tools:{version('magnetar-testing')}"
    monkeypatch.setenv("MAGNETAR_REGISTRY", "registry.example.org/")
    monkeypatch.setenv("MAGNETAR_VERSION", "9.9.9")
    assert containers.default_image() == "registry.example.org/magnetar/tools:9.9.9"


def test_lookups_return_the_address_at_which_the_test_reaches_the_daemon() -> None:
    container = containers.MagnetarContainer()
    settings = chosen(container)
    port, http_port = container.broker_port, container.http_port
    assert port != http_port
    assert container.ports == {str(port): port, str(http_port): http_port}
    assert settings["brokerServicePort"] == str(port)
    assert settings["webServicePort"] == str(http_port)
    assert settings["bindAddress"] == "0.0.0.0"
    assert settings["advertisedAddress"] == "docker.example.org"
    assert container.service_url == f"pulsar://docker.example.org:{port}"
    assert container.admin_url == f"http://docker.example.org:{http_port}"


def test_settings_and_the_host_are_the_caller_s_choice() -> None:
    container = containers.MagnetarContainer(
        "mine:1", {"brokerDeduplicationEnabled": True, "journalSyncData": True}, host="10.0.0.7"
    )
    settings = chosen(container)
    assert container.image == "mine:1"
    assert settings["brokerDeduplicationEnabled"] == settings["journalSyncData"] == "true"
    assert settings["advertisedAddress"] == "10.0.0.7"
    assert container.service_url.startswith("pulsar://10.0.0.7:")
