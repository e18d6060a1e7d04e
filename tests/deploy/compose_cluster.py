"""The cluster of docker-compose.yml for tests: containers of a project of its own, on ports of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pytest
from magnetar.testing.free_ports import free_ports
from testcontainers.compose import DockerCompose

from tools.compose import ROOT, Compose, ComposeFailed, have_images
from tools.deploy_setup import compose_command
from tools.images.docker import Docker, DockerFailed, DockerUnavailable
from tools.images.stand_ins import NoStandIn
from tools.images.targets import image_name
from tools.images.wheels import NotFetched, NoWheels

SERVICES: Final = (
    "etcd",
    "bookie-1",
    "bookie-2",
    "bookie-3",
    "broker-1",
    "broker-2",
    "discovery",
    "console",
    "prometheus",
)


class Containers(DockerCompose):
    """testcontainers' life cycle over whichever compose there is: by itself it calls version 2 alone.

    Its reaper is not started by this class, and is switched off besides.
    """

    def __init__(self, compose: Compose) -> None:
        super().__init__(context=str(ROOT), wait=False)
        self._compose = compose

    @cached_property
    def compose_command_property(self) -> list[str]:
        """What every call of compose begins with."""
        return self._compose.command


@dataclass
class ComposeCluster:
    """A running cluster. `compose` and `docker` do to it what a test wants."""

    compose: Compose
    containers: Containers
    service_url: str
    http_url: str
    prometheus_url: str
    healthy_after_s: float = 0.0
    """From the first call of compose until every container was healthy."""

    @property
    def docker(self) -> Docker:
        return self.compose.docker

    def start(self) -> None:
        """Start what does not run and wait until everything is healthy."""
        began = time.monotonic()
        try:
            self.containers.start()
        except subprocess.CalledProcessError as error:
            raise ComposeFailed(error.stderr.decode(errors="replace")) from error
        self.compose.wait_until_healthy()
        self.healthy_after_s = time.monotonic() - began

    def kill(self, service: str) -> None:
        """SIGKILL to its process; as it was asked for by hand, Docker does not start it again."""
        self.docker.run("kill", self.compose.containers()[service])

    def run_tools(self, *arguments: str) -> str:
        """What `magnetar arguments` prints in a container beside the others."""
        return self.compose.run("run", "--rm", "-T", "tools", *arguments)


@contextlib.contextmanager
def compose_cluster(name: str, *, secure: bool = False) -> Iterator[ComposeCluster]:
    """The cluster, up and healthy; in the end its containers and volumes are removed.

    With `secure` its addresses are those with TLS.
    Skips where there is no Docker, and says why; fails for everything else.
    """
    program = compose_command()
    if program is None:
        pytest.skip("neither docker compose nor docker-compose is there (make deploy-setup)")
    try:
        with pytest.MonkeyPatch.context() as patch:
            service, http, prometheus, service_tls, https = free_ports(5)
            settings = {
                "MAGNETAR_PORT": str(service),
                "MAGNETAR_HTTP_PORT": str(http),
                "PROMETHEUS_PORT": str(prometheus),
                "MAGNETAR_TLS_PORT": str(service_tls),
                "MAGNETAR_HTTPS_PORT": str(https),
            }
            compose = Compose(Docker(), tuple(program), name, settings, secure=secure)
            have_images(compose.docker, [*compose.images(), image_name("tools")])
            for key, value in compose.environment.items():  # testcontainers hands its own on
                if os.environ.get(key) != value:
                    patch.setenv(key, value)
            patch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
            cluster = ComposeCluster(
                compose,
                Containers(compose),
                f"pulsar+ssl://localhost:{service_tls}" if secure else f"pulsar://127.0.0.1:{service}",
                f"https://localhost:{https}" if secure else f"http://127.0.0.1:{http}",
                f"http://127.0.0.1:{prometheus}",
            )
            compose.down(volumes=True)  # what an interrupted run has left
            try:
                cluster.start()
                yield cluster
            except BaseException:
                print(compose.ends_of_logs())
                raise
            finally:
                cluster.containers.stop()
    except DockerUnavailable as error:
        pytest.skip(f"no Docker here: {error}")
    except (NoStandIn, NotFetched) as error:
        pytest.skip(f"images cannot be had here: {error}")
    except (DockerFailed, NoWheels) as error:  # a tree whose wheels cannot be built is broken
        pytest.fail(str(error))
