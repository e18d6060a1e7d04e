"""A standalone in a container, for testcontainers: `with MagnetarContainer() as magnetar:`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from magnetar.testing.free_ports import free_ports
from magnetar.testing.standalone_process import DEFAULTS, READY, Setting, setting_text
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

START_TIMEOUT_S: Final = 60
"""Default limit of a start after the image was pulled, in seconds."""

DATA_DIR: Final = "/data/standalone"


def default_image() -> str:
    """Return the image of this version that has `magnetar standalone`.

    MAGNETAR_REGISTRY, `registry.example.org/`, and MAGNETAR_VERSION change it as they change those of
    docker-compose.yml.
    """
    tag = os.environ.get("MAGNETAR_VERSION") or version("magnetar-testing")
    return f"{os.environ.get('MAGNETAR_REGISTRY', '')}magnetar/tools:{tag}"


class MagnetarContainer(DockerContainer):
    """A container with a standalone, ready for clients once `start` returns; settings by their names in
    Pulsar.

    The standalone listens on the same ports in the container as on the host: clients connect to the
    addresses that lookups return, and these have the standalone's own ports. `host` is where the tests
    reach the daemon's ports, by default what testcontainers knows of the daemon.
    """

    def __init__(
        self,
        image: str | None = None,
        settings: Mapping[str, Setting] | None = None,
        *,
        host: str | None = None,
        start_timeout_s: int = START_TIMEOUT_S,
        **options: Any,
    ) -> None:
        """`options` are those of DockerContainer. Raises OSError when no port is free here."""
        super().__init__(image or default_image(), **options)
        self.broker_port, self.http_port = free_ports(2)
        self.host = host or self.get_docker_client().host()
        self.settings = {key: setting_text(value) for key, value in (settings or {}).items()}
        """Settings of the start, as texts; may be changed before it."""
        self.waiting_for(LogMessageWaitStrategy(f"^{READY}").with_startup_timeout(start_timeout_s))

    @property
    def service_url(self) -> str:
        """URL for clients, `pulsar://HOST:PORT`."""
        return f"pulsar://{self.host}:{self.broker_port}"

    @property
    def admin_url(self) -> str:
        """URL of the admin API and of the metrics, `http://HOST:PORT`."""
        return f"http://{self.host}:{self.http_port}"

    def _configure(self) -> None:
        settings = {
            **DEFAULTS,
            "bindAddress": "0.0.0.0",
            "advertisedAddress": self.host,
            "brokerServicePort": str(self.broker_port),
            "webServicePort": str(self.http_port),
            **self.settings,
        }
        chosen = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        self.with_command(["standalone", "--data-dir", DATA_DIR, *chosen])
        for port in (self.broker_port, self.http_port):
            self.with_bind_ports(port, port)
