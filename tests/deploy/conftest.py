"""What tests of deployment share: a Docker daemon for all of them, and the images built from this tree."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.deploy.chart import VALUE_SETS, Rendered, render
from tools.deploy_setup import helm_program
from tools.images.build import ensure
from tools.images.docker import Docker, DockerUnavailable
from tools.images.stand_ins import NoStandIn, provide
from tools.images.wheels import NotFetched

HERE: Final = Path(__file__).parent
SERVICES: Final = ("bookie", "broker", "discovery", "console", "tools")
"""What tests run in each run; the image with Spark is large, and those who need it ask for it."""
ETCD_IMAGE: Final = "quay.io/coreos/etcd:v3.5.21"
FIRST_TIME_SECONDS_MAX: Final = 1800
"""What a test that uses Docker may take: the first builds all images, on a bare machine their base too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and "docker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(FIRST_TIME_SECONDS_MAX))


@pytest.fixture(scope="session")
def docker() -> Docker:
    """The daemon that answers; DOCKER_HOST may name it."""
    try:
        return Docker()
    except DockerUnavailable as error:
        pytest.skip(f"no test with containers runs: {error}")


@pytest.fixture(scope="session")
def images(docker: Docker) -> dict[str, str]:
    """Names with tags of the images of the services and the tools, by target; up to date with this tree."""
    try:
        return ensure(docker, SERVICES)
    except (NoStandIn, NotFetched) as error:
        pytest.skip(f"no test with images runs: {error}")


@pytest.fixture(scope="session")
def etcd_image(docker: Docker) -> str:
    """etcd's official image, or what stands in for it."""
    try:
        provide(docker, ETCD_IMAGE)
    except NoStandIn as error:
        pytest.skip(f"no test with a cluster in containers runs: {error}")
    return ETCD_IMAGE


@pytest.fixture(scope="session")
def helm_is_there() -> None:
    """For tests that render the chart."""
    if helm_program() is None:
        pytest.skip("the chart is not rendered: there is no helm, make deploy-setup builds it")


@pytest.fixture(params=VALUE_SETS)
def rendered(request: pytest.FixtureRequest, helm_is_there: None) -> Rendered:
    """The chart with each of several sets of values."""
    values, small = VALUE_SETS[request.param]
    return render(values, small=small)
