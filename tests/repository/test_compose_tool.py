"""`make up` and `make down` without Docker: whose images are built, whose settings hold, what is said."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.test_images import NoRegistry
from tools import compose, docker_ready
from tools.compose import DEFAULTS, FILE, ROOT, SECURE_FILE, Compose, ComposeFailed, have_images
from tools.images.docker import DockerUnavailable
from tools.images.stand_ins import NoStandIn
from tools.images.targets import image_name, version


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The targets that are built from now on."""
    found: list[str] = []
    monkeypatch.setattr(compose, "ensure", lambda _, targets: found.extend(targets))
    return found


def test_images_of_another_version_that_are_not_here_are_neither_built_nor_pulled(built: list[str]) -> None:
    docker = NoRegistry()
    images = [image_name("bookie"), "magnetar/broker:0.0.9", "quay.io/coreos/etcd:v3.5.21"]
    with pytest.raises(ComposeFailed) as failed:
        have_images(docker, images)  # type: ignore[arg-type]
    assert str(failed.value).startswith(
        f"magnetar/broker:0.0.9 is not here, and this tree builds {version()}"
    )
    assert "MAGNETAR_VERSION out of .env" in str(failed.value)
    assert (built, docker.pulled) == ([], [])


def test_images_of_another_version_that_are_here_are_used_and_named(
    built: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    docker = NoRegistry(**{"magnetar/broker:0.0.9": ""})
    have_images(docker, ["magnetar/broker:0.0.9"])  # type: ignore[arg-type]
    assert (built, docker.pulled) == ([], [])
    assert "magnetar/broker:0.0.9, as MAGNETAR_VERSION says" in capsys.readouterr().out


def test_images_of_this_tree_are_built_and_those_of_a_registry_of_ones_own_pulled(built: list[str]) -> None:
    docker = NoRegistry()
    with pytest.raises(NoStandIn, match=r"r\.example\.com/magnetar/broker:.* cannot be pulled"):
        have_images(docker, [image_name("bookie"), f"r.example.com/{image_name('broker')}"])  # type: ignore[arg-type]
    assert built == ["bookie"]
    assert docker.pulled == [f"r.example.com/{image_name('broker')}"]


def test_make_up_builds_the_image_of_the_commands_too(
    built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documentation has docker compose run --rm tools; Compose 2 shows chosen profiles only."""

    def run(self: Compose, *arguments: str, **_: object) -> str:
        assert arguments[0] in ("config", "up", "port")
        services: dict[str, object] = {"broker": {"image": image_name("broker")}}
        if "tools" in self.profiles:
            services["tools"] = {"image": image_name("tools"), "profiles": ["tools"]}
        return json.dumps({"services": services})

    monkeypatch.setattr(Compose, "run", run)
    monkeypatch.setattr(Compose, "wait_until_healthy", lambda self: None)
    monkeypatch.setattr(Compose, "containers", lambda self: {})
    compose.up(Compose(NoRegistry(), ("docker-compose",)))  # type: ignore[arg-type]
    assert built == ["broker", "tools"]


def test_everything_that_is_missing_of_docker_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> None:
        raise DockerUnavailable("no Docker daemon answers at its usual place")

    monkeypatch.setattr(docker_ready, "Docker", unavailable)
    monkeypatch.setattr(docker_ready, "compose_command", lambda: None)
    with pytest.raises(SystemExit) as ended:
        docker_ready.main()
    assert "no Docker daemon answers" in str(ended.value)
    assert "neither `docker compose` nor docker-compose is installed" in str(ended.value)


def test_what_make_up_needs_is_checked_before_anything_is_installed() -> None:
    targets = re.search(r"^up: (.*?) ##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets is not None
    assert targets[1].split()[0] == "docker-ready"
    line = "import sys; sys.modules['yaml'] = sys.modules['packaging'] = None; import tools.docker_ready"
    done = subprocess.run([sys.executable, "-S", "-c", line], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_user_s_project_has_his_settings_and_that_of_a_test_has_none_of_them() -> None:
    docker = NoRegistry()
    mine = Compose(docker, ("docker-compose",), profiles=("spark",))  # type: ignore[arg-type]
    assert mine.command == ["docker-compose", "--profile", "spark"], "it finds .env and an override by itself"
    test = Compose(docker, ("docker-compose",), "magnetar-test")  # type: ignore[arg-type]
    assert test.command[1:] == [
        "--project-name", "magnetar-test", "--file", str(FILE), "--env-file", str(DEFAULTS)
    ]  # fmt: skip
    assert DEFAULTS.is_file()


def test_a_secure_project_reads_the_second_file_over_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker, override = NoRegistry(), tmp_path / "override.yml"
    monkeypatch.setattr(compose, "OVERRIDE", override)
    mine = Compose(docker, ("docker-compose",), secure=True)  # type: ignore[arg-type]
    both = ["docker-compose", "--file", str(FILE), "--file", str(SECURE_FILE)]
    assert mine.command == both
    override.touch()
    assert mine.command == [*both[:3], "--file", str(override), *both[3:]], (
        "compose does not look for it then"
    )


def test_a_container_that_is_to_end_is_well_once_it_ended_with_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = {"certs": "exited 0", "etcd": "running healthy"}
    monkeypatch.setattr(Compose, "states", lambda _: states)
    secure = Compose(NoRegistry(), ("docker-compose",), secure=True)  # type: ignore[arg-type]
    secure.wait_until_healthy(0.0)
    for service, state in (("certs", "exited 1"), ("etcd", "exited 0"), ("certs", "created ")):
        monkeypatch.setitem(states, service, state)
        with pytest.raises(ComposeFailed, match=state):
            secure.wait_until_healthy(0.0)
        monkeypatch.setitem(states, service, "running")


@pytest.mark.parametrize("what", ["up", "down"])
def test_missing_docker_is_reported_in_one_line(what: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/nobody"}
    done = subprocess.run(
        [sys.executable, "-m", "tools.compose", what],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("compose: there is no docker")
    assert done.stderr.count("\n") == 1
