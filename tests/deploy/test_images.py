"""The images: what is in them, who they run as, and that a cluster of them serves, says so, and stops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.deploy.containers import Container, Containers, containers
from tests.integration.harness import eventually
from tools.images.build import prune
from tools.images.docker import Docker, DockerFailed
from tools.images.stand_ins import PYTHON_IMAGE
from tools.images.targets import version

pytestmark = pytest.mark.full

BOOKIE_MB_MAX = 60
"""Above the base."""
ETCD_SECONDS_MAX = 120.0
STOP_SECONDS = 60
"""Granted to each; all but a broker take a second, a broker as long as it takes to close topics."""
MESSAGES = 200

NEVER = {"pip", "setuptools", "wheel", "uv", "pytest", "mypy", "ruff"}
WEB = {"aiohttp", "yarl", "werkzeug", "flask"}
BUILDERS = ("gcc", "cc", "c++", "clang", "make", "ld", "rustc", "go", "pip", "pip3", "uv")


@dataclass(frozen=True, slots=True)
class Cluster:
    """One of each."""

    network: Containers
    bookie: Container
    broker: Container
    discovery: Container
    console: Container
    tools_image: str

    @property
    def services(self) -> tuple[Container, ...]:
        return (self.bookie, self.broker, self.discovery, self.console)

    def tools(self, *command: str) -> str:
        """What a command of `magnetar` prints, in a container beside them."""
        environment = {
            "MAGNETAR_SERVICE_URL": "pulsar://discovery:6650",
            "MAGNETAR_ADMIN_URL": "http://broker:8080",
        }
        return self.network.run(self.tools_image, *command, environment=environment)


@pytest.fixture(scope="module")
def cluster(docker: Docker, images: dict[str, str], etcd_image: str) -> Iterator[Cluster]:
    one_copy = {f"MAGNETAR_MANAGED_LEDGER_DEFAULT_{what}": "1" for what in ("ENSEMBLE_SIZE", "WRITE_QUORUM")}
    one_copy["MAGNETAR_MANAGED_LEDGER_DEFAULT_ACK_QUORUM"] = "1"
    named = {"MAGNETAR_CLUSTER_NAME": "images"}
    with containers(docker) as network:
        etcd = network.start(
            etcd_image, "etcd", "etcd", "--data-dir", "/etcd-data", "--listen-client-urls", "http://0.0.0.0:2379",
            "--advertise-client-urls", "http://etcd:2379", "--log-level", "warn", volume="/etcd-data",
        )  # fmt: skip
        eventually(lambda: answers(etcd), "etcd answers", ETCD_SECONDS_MAX)
        bookie = network.start(
            images["bookie"],
            "bookie",
            environment={
                **named,
                "MAGNETAR_METADATA_SERVICE_URI": "etcd:etcd:2379",
                "MAGNETAR_ADVERTISED_ADDRESS": "bookie",
            },
        )
        store = {**named, "MAGNETAR_METADATA_STORE_URL": "etcd:etcd:2379"}
        bookie.wait_healthy()
        broker = network.start(
            images["broker"],
            "broker",
            environment={**store, **one_copy, "MAGNETAR_ADVERTISED_ADDRESS": "broker"},
        )
        discovery = network.start(images["discovery"], "discovery", environment=store)
        console = network.start(
            images["console"],
            "console",
            environment={
                "MAGNETAR_WEB_SERVICE_URL": "http://broker:8080",
                "MAGNETAR_BROKER_SERVICE_URL": "pulsar://broker:6650",
            },
        )
        for service in (broker, discovery, console):
            service.wait_healthy()
        yield Cluster(network, bookie, broker, discovery, console, images["tools"])


def answers(etcd: Container) -> bool:
    """Whether etcd does; fails once it has ended."""
    assert etcd.state()["Running"], etcd.logs()
    try:
        etcd.execute("etcdctl", "--endpoints", "http://127.0.0.1:2379", "endpoint", "health")
    except DockerFailed:
        return False
    return True


def inside(docker: Docker, image: str, program: str) -> str:
    """What a Python program prints in a container of an image."""
    return docker.run("run", "--rm", "--network", "none", "--entrypoint", "python3", image, "-c", program)


def distributions(docker: Docker, image: str) -> set[str]:
    """Python packages that are installed in an image, for any interpreter in it."""
    program = (
        "import json, os, re\n"
        "found = []\n"
        "for path, names, _ in os.walk('/'):\n"
        "    if path == '/':\n"
        "        names[:] = sorted({*names} - {'dev', 'proc', 'sys'})\n"
        "    found += [name for name in names if name.endswith(('.dist-info', '.egg-info'))]\n"
        "print(json.dumps([re.split('[-.]', name)[0].lower() for name in found]))\n"
    )
    return set(json.loads(inside(docker, image, program)))


def test_a_cluster_of_them_carries_messages_on_read_only_roots(cluster: Cluster) -> None:
    topic = "persistent://public/default/images"
    produced = cluster.tools("produce", topic, "--num-produce", str(MESSAGES), "--messages", "hello")
    assert str(MESSAGES) in produced
    consumed = cluster.tools(
        "consume", topic, "--subscription-name", "all", "--subscription-position", "Earliest",
        "--num-messages", str(MESSAGES),
    )  # fmt: skip
    assert consumed.count("hello") == MESSAGES


def test_the_console_shows_what_the_broker_has(cluster: Cluster) -> None:
    program = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8090/tenants').read().decode())"
    assert ">public<" in cluster.console.execute("python3", "-c", program)


def test_services_have_no_rights_and_nothing_to_write_to(cluster: Cluster) -> None:
    for service in cluster.services:
        assert service.execute("id", "-u", "-n").split() == ["magnetar"]
        assert service.execute("id", "-u").split() == ["10001"]
        status = service.execute("cat", "/proc/1/status")
        rights = dict(line.split(":\t", 1) for line in status.splitlines() if line.startswith("Cap"))
        assert {int(mask, 16) for mask in rights.values()} == {0}
        assert service.execute("cat", "/proc/1/cmdline").split("\0")[1] == "/opt/magnetar/bin/magnetar"
        for place in ("/opt/magnetar/x", "/magnetar/x", "/etc/x"):
            with pytest.raises(DockerFailed, match="Read-only file system"):
                service.execute("touch", place)


def test_the_health_check_says_what_is_wrong(cluster: Cluster) -> None:
    """It is the service's own page that decides: without one, and with a page that is not there."""
    check = ("python3", "-I", "-S", "/opt/magnetar/health.py")
    assert cluster.bookie.execute(*check) == ""
    with pytest.raises(DockerFailed, match="refused"):
        cluster.bookie.docker.run(
            "exec", "--env", "HEALTH_URL=http://127.0.0.1:9/readyz", cluster.bookie.name, *check
        )
    with pytest.raises(DockerFailed, match="404"):
        cluster.bookie.docker.run(
            "exec", "--env", "HEALTH_URL=http://127.0.0.1:8000/nothing", cluster.bookie.name, *check
        )


def test_sigterm_ends_each_of_them_in_good_order(cluster: Cluster) -> None:
    """The last test of the cluster: afterwards there is none."""
    for service in (cluster.console, cluster.discovery, cluster.broker, cluster.bookie):
        code, seconds = service.stop(STOP_SECONDS)
        assert code == 0, service.logs()
        assert seconds < STOP_SECONDS
        assert "stopped" in service.logs()


def test_a_bookie_is_small_and_has_only_what_a_bookie_runs(docker: Docker, images: dict[str, str]) -> None:
    above = docker.size(images["bookie"]) - docker.size(PYTHON_IMAGE)
    assert above <= BOOKIE_MB_MAX * 1_000_000
    there = distributions(docker, images["bookie"])
    assert there >= {"magnetar_cli", "magnetar_standalone", "magnetar_bookie", "grpcio", "uvloop"}
    assert (
        there & (WEB | {"magnetar_broker", "magnetar_discovery", "rich", "pyarrow", "cramjam", "pyroaring"})
        == set()
    )


def test_no_image_has_a_compiler_an_installer_or_a_test_tool(docker: Docker, images: dict[str, str]) -> None:
    program = f"import json, shutil; print(json.dumps([n for n in {BUILDERS!r} if shutil.which(n)]))"
    for image in images.values():
        assert distributions(docker, image) & NEVER == set(), image
        assert json.loads(inside(docker, image, program)) == [], image


def test_images_say_what_they_are(docker: Docker, images: dict[str, str]) -> None:
    for target, image in images.items():
        assert image == f"magnetar/{target}:{version()}"
        found = docker.inspect(image)
        assert found is not None
        settings = found["Config"]
        assert settings["User"] == "10001:10001"
        assert settings["Labels"]["org.opencontainers.image.version"] == version()
        assert settings["Entrypoint"] == (["magnetar"] if target == "tools" else ["magnetar", target])
        assert ("Healthcheck" in settings) == (target != "tools")


def test_an_image_of_one_service_says_where_the_others_are(docker: Docker, images: dict[str, str]) -> None:
    for command, missing in (("broker", "magnetar.broker"), ("discovery", "magnetar.discovery")):
        with pytest.raises(DockerFailed, match=rf"{missing} is not installed here: .*magnetar/tools"):
            docker.run(
                "run", "--rm", "--network", "none", "--entrypoint", "magnetar", images["bookie"], command
            )
    helped = docker.run("run", "--rm", "--network", "none", images["bookie"], "--help", merged=True)
    assert "metadataServiceUri" in helped
    shown = docker.run("run", "--rm", "--network", "none", images["bookie"], "--print-config")
    assert "bindAddress\t0.0.0.0\tenvironment MAGNETAR_BIND_ADDRESS" in shown


def test_only_images_of_another_version_are_pruned(docker: Docker, images: dict[str, str]) -> None:
    old = "magnetar/tools:0.0.1"
    labels = {
        "magnetar.inputs": "old",
        "magnetar.test": "pruned",
        "org.opencontainers.image.version": "0.0.1",
    }
    changes = [part for key, value in labels.items() for part in ("--change", f"LABEL {key}={value}")]
    container = docker.run("create", images["tools"])
    docker.run("commit", *changes, container, old)
    docker.run("rm", container)
    mine = "magnetar-test/another:1"
    docker.run("tag", PYTHON_IMAGE, mine)
    assert docker.inspect(old) is not None
    prune(docker, "label=magnetar.test")  # nothing of the user's
    assert docker.inspect(old) is None
    assert docker.inspect(mine) is not None
    assert [image for image in images.values() if docker.inspect(image) is None] == []
    docker.run("image", "rm", mine)
