"""The scripts of the chart, against servers and a command that answer as etcd, Kubernetes and ours do."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

import pytest
from magnetar.bookie.config import BookieConfig
from magnetar.common.config.loader import describe, load
from magnetar.testing.free_ports import free_ports

from tests.certificates import Authority
from tests.deploy.json_server import Answer, serving
from tools.chart.values_file import CHART

SECONDS_MAX: Final = 60.0
NODE: Final = "node-1"
TOKEN: Final = "a-token"


def command(name: str, *arguments: str) -> list[str]:
    """As the chart has it: isolated from everything but the standard library."""
    return [sys.executable, "-I", "-S", str(CHART / "files" / name), *arguments]


# -- etcd


def test_the_wait_ends_when_one_member_of_etcd_is_healthy() -> None:
    dead = free_ports(1)[0]
    with serving(lambda _: (200, {"health": "true", "reason": ""})) as port:
        done = subprocess.run(
            command("wait_for_etcd.py", f"127.0.0.1:{dead},127.0.0.1:{port}"),
            capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"etcd answers at 127.0.0.1:{port}" in done.stdout


class Leaderless:
    """etcd without a leader for the first answers: it says that it is not healthy."""

    def __init__(self, answers: float) -> None:
        self.left = answers
        self.asked = threading.Event()

    def __call__(self, _: BaseHTTPRequestHandler) -> tuple[int, Any]:
        self.asked.set()
        self.left -= 1
        return (
            (503, {"health": "false", "reason": "RAFT NO LEADER"})
            if self.left >= 0
            else (200, {"health": "true"})
        )


def test_the_wait_goes_on_while_etcd_has_no_leader() -> None:
    etcd = Leaderless(2)
    with serving(etcd) as port:
        done = subprocess.run(
            command("wait_for_etcd.py", f"127.0.0.1:{port}"), check=False, timeout=SECONDS_MAX
        )
    assert done.returncode == 0
    assert etcd.left == -1, "it asked twice in vain, and no more once it was answered"


def test_the_wait_ends_at_once_when_its_pod_is_deleted() -> None:
    etcd = Leaderless(float("inf"))
    with serving(etcd) as port, subprocess.Popen(command("wait_for_etcd.py", f"127.0.0.1:{port}")) as waiting:
        assert etcd.asked.wait(SECONDS_MAX)
        waiting.terminate()
        assert waiting.wait(SECONDS_MAX) == 143


# -- the node's zone


@dataclass(frozen=True, slots=True)
class ApiServer:
    """One on loopback, and what Kubernetes mounts into pods to reach it."""

    context: ssl.SSLContext
    account: Path

    def ask(self, answer: Answer, file: Path) -> subprocess.CompletedProcess[str]:
        """Run the script against it."""
        with serving(answer, self.context) as port:
            environment = {
                **os.environ,
                "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": str(port),
                "SERVICE_ACCOUNT_DIRECTORY": str(self.account),
                "NODE_NAME": NODE,
            }
            return subprocess.run(
                command("rack_of_node.py", str(file)),
                env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
            )  # fmt: skip


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> ApiServer:
    directory = tmp_path_factory.mktemp("api-server")
    authority = Authority(directory)
    pair = authority.issue("api-server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    account = directory / "account"
    account.mkdir()
    (account / "token").write_text(TOKEN)
    (account / "ca.crt").write_bytes(authority.certificate.read_bytes())
    return ApiServer(context, account)


def node_with(labels: Mapping[str, str]) -> Answer:
    """What is allowed to who has the token, and to ask for this node only."""

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, Any]:
        if request.headers["Authorization"] != f"Bearer {TOKEN}":
            return 401, {"message": "Unauthorized"}
        if request.path != f"/api/v1/nodes/{NODE}":
            return 403, {"message": f"nodes is forbidden: {request.path}"}
        return 200, {"metadata": {"name": NODE, "labels": dict(labels)}}

    return answer


@pytest.mark.parametrize(
    ("labels", "rack"),
    [
        ({"topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": "eu-a"}, "/eu/eu-a"),
        ({"topology.kubernetes.io/zone": "a"}, "/default-region/a"),
        ({"kubernetes.io/hostname": "x"}, f"/default-region/{NODE}"),
        ({}, f"/default-region/{NODE}"),
    ],
)
def test_a_bookie_s_rack_is_the_zone_of_its_node(
    api_server: ApiServer, tmp_path: Path, labels: Mapping[str, str], rack: str
) -> None:
    """As the bookie reads it, from the file that it is given last."""
    file = tmp_path / "rack.conf"
    done = api_server.ask(node_with(labels), file)
    assert done.returncode == 0, done.stderr
    bookie = {
        "clusterName": "one",
        "metadataServiceUri": "etcd:127.0.0.1:2379",
        "magnetarBookieRack": "/else/where",
    }
    overridden = tmp_path / "bookie.conf"
    overridden.write_text("".join(f"{key}={value}\n" for key, value in bookie.items()))
    assert rack in describe_rack(overridden, file)


def describe_rack(*files: Path) -> list[str]:
    return [
        value for key, value, _ in describe(load(BookieConfig, files=files)) if key == "magnetarBookieRack"
    ]


def test_a_bookie_does_not_start_with_a_rack_that_was_guessed(api_server: ApiServer, tmp_path: Path) -> None:
    file = tmp_path / "rack.conf"
    done = api_server.ask(lambda _: (403, {"message": "nodes is forbidden"}), file)
    assert done.returncode == 1
    assert "the API server answered 403" in done.stderr
    assert "bookie.rackFrom=node" in done.stderr
    assert not file.exists()


def test_a_server_that_is_not_the_api_server_gets_no_token(
    api_server: ApiServer, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asked = threading.Event()

    def answer(_: BaseHTTPRequestHandler) -> tuple[int, Any]:
        asked.set()
        return 200, {"metadata": {"labels": {}}}

    pair = Authority(tmp_path_factory.mktemp("somebody"), "somebody").issue("somebody")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    done = ApiServer(context, api_server.account).ask(answer, tmp_path / "rack.conf")
    assert done.returncode == 1
    assert "certificate verify failed" in done.stderr
    assert not asked.is_set()


# -- bookies that are to be taken away


def check(
    tmp_path: Path, bookies: Sequence[tuple[str, str]] | None, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run the script beside a command line that answers with these ids and states; None: as without etcd."""
    told = json.dumps([{"id": bookie, "state": state} for bookie, state in bookies or ()])
    program = tmp_path / "magnetar"
    program.write_text(f"#!/bin/sh\necho '{told}'\nexit {3 if bookies is None else 0}\n")
    program.chmod(0o755)
    return subprocess.run(
        command("leaving_bookies.py", "m-bookie", *arguments),
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
    )  # fmt: skip


STAY: Final = [("m-bookie-0", "up"), ("m-bookie-1", "down"), ("m-bookie-2", "read-only")]


@pytest.mark.parametrize(
    "more", [[], [("m-bookie-3", "decommissioned")], [("other-bookie-7", "up"), ("m", "up")]]
)
def test_bookies_go_that_have_nothing(tmp_path: Path, more: list[tuple[str, str]]) -> None:
    done = check(tmp_path, [*STAY, *more], "3")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("state", ["up", "down", "read-only", "decommissioning"])
def test_bookies_stay_that_may_have_the_only_copies(tmp_path: Path, state: str) -> None:
    done = check(tmp_path, [*STAY, ("m-bookie-10", state), ("m-bookie-9", "up")], "3")
    assert done.returncode == 1
    assert f"m-bookie-9 (up), m-bookie-10 ({state})" in done.stderr
    assert "magnetar admin bookies decommission m-bookie-10\n" in done.stderr


def test_a_rollback_goes_on_without_metadata_and_a_bookie_does_not_go_without(tmp_path: Path) -> None:
    rollback, fewer = check(tmp_path, None, "3"), check(tmp_path, None, "3", "--must-know")
    assert (rollback.returncode, fewer.returncode) == (0, 1)
    assert "metadata does not say" in rollback.stdout
    assert "metadata does not say" in fewer.stderr
