"""What the tests of a real cluster are made of, as far as it can be looked at without one."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.chaos.chaos import Gaps, Outcome
from tests.kubernetes.images import images_of
from tests.kubernetes.kube_cluster import kube_cluster, why_no_cluster
from tests.kubernetes.pods_under_load import RESULT, Plan, PodFault, Report, read_plan, read_report
from tests.kubernetes.port_forward import forwarded
from tests.kubernetes.record import Record, table
from tests.kubernetes.tiers import NODE_SECONDS, PART_TIERS, REQUIRED_VARIABLE, TIERS, what_ran, why_no_time
from tests.time_left import END_VARIABLE

ROOT = Path(__file__).resolve().parents[2]


KUBECTL = """#!/bin/sh
# Stands for `kubectl port-forward`: carries one connection and ends, as when its pod is replaced.
exec {python} - "$@" <<'END'
import socket, sys
here, there = map(int, sys.argv[-1].split(":"))
with socket.create_server(("127.0.0.1", here)) as server:
    connection, _ = server.accept()
    with connection:
        connection.sendall(b"to %d" % there)
END
"""


def test_a_forwarded_port_comes_back_when_its_pod_was_replaced(tmp_path: Path) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(python=sys.executable))
    kubectl.chmod(0o755)
    with forwarded([str(kubectl), "service/front"], os.environ, [6650]) as (port,):
        for _ in range(3):
            assert answer_of(port) == b"to 6650"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port)).close()


def answer_of(port: int) -> bytes:
    """What the port says, once something listens there."""
    for _ in range(500):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                if said := connection.recv(100):
                    return said
        except (ConnectionRefusedError, ConnectionResetError):  # one that has just ended
            time.sleep(0.02)
    raise AssertionError(f"nothing listens at port {port}")


def test_without_a_cluster_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_no_cluster() == "there is no kubectl on the PATH"
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\necho 'connection refused' >&2; exit 1\n")
    kubectl.chmod(0o755)
    assert "no kind on the PATH" in why_no_cluster()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert why_no_cluster() == "the cluster of KUBECONFIG: connection refused"


def test_images_are_loaded_by_the_command_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubectl, load = tmp_path / "kubectl", tmp_path / "load"
    calls = tmp_path / "calls"
    for each in (kubectl, load):
        each.write_text(f'#!/bin/sh\necho "{each.name} $*" >> {calls}\n')
        each.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("KUBERNETES_LOAD", "load --into here")
    with kube_cluster() as cluster:
        assert cluster.loads_images
        cluster.load_images(Path("/a/images.tar"))
    said = calls.read_text().splitlines()
    assert said[0].endswith(f"create namespace {cluster.namespace}")
    assert said[-2:] == [
        "load --into here /a/images.tar",
        f"kubectl --namespace {cluster.namespace} delete namespace {cluster.namespace} --wait=false",
    ]


def test_plans_and_reports_come_through_a_pipe_as_they_were() -> None:
    faults = (PodFault("killed", "broker", crash=True), PodFault("upgraded", command=("helm", "upgrade")))
    plan = Plan("r", "n", "pulsar://a:6650", "http://a:8080", "/d", 7, 3, 1, faults)
    assert read_plan(json.dumps(asdict(plan))) == plan
    outcome = Outcome(struck=[Gaps("deleted", "broker-0", publish=[0.1, 0.2, 4.0], moved=3)])
    outcome.counts["confirmed"] = 5
    report = Report.of(outcome, [12.5])
    assert (report.faults[0].publish_p50_s, report.faults[0].publish_max_s) == (0.2, 4.0)
    assert read_report(RESULT + json.dumps(asdict(report))) == report


def test_images_are_found_in_rendered_objects() -> None:
    text = 'containers:\n  - name: one\n    image: "a/b:1"\n  - image: c/d:2\n    imagePullPolicy: x\n'
    assert images_of(text) == {"a/b:1", "c/d:2"}


def test_a_record_has_each_step_with_its_command_and_its_time() -> None:
    record = Record()
    record.fact("Kubernetes", "v1")
    record.note("helm install", 4.25, ["helm", "install", "a b"], "deployed  \n")
    record.note("waited", 1.0)
    record.section("Pods", table(("name", "of"), [("a|b", "c")]))
    page = record.page()
    assert "| helm install | 4.2 s |\n| waited | 1.0 s |" in page
    assert "$ helm install 'a b'\ndeployed\n```" in page
    assert "| a\\|b | c |" in page
    assert page.index("## Steps") < page.index("## Pods") < page.index("## Commands")


def test_a_release_is_tried_when_it_was_asked_for_or_when_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(REQUIRED_VARIABLE, raising=False)
    monkeypatch.delenv(END_VARIABLE, raising=False)
    assert "make kubernetes" in why_no_time()
    monkeypatch.setenv(END_VARIABLE, str(time.time() + NODE_SECONDS / 2))
    assert "left" in why_no_time()
    monkeypatch.setenv(END_VARIABLE, str(time.time() + NODE_SECONDS * 2))
    assert why_no_time() == ""
    monkeypatch.setenv(END_VARIABLE, "0")
    monkeypatch.setenv(REQUIRED_VARIABLE, "1")
    assert why_no_time() == ""


def test_a_tier_that_was_skipped_did_not_run() -> None:
    first, second = TIERS
    why = SimpleNamespace(nodeid=f"{second}::test_other", longrepr=("file", 1, "Skipped: no root"))
    stats = {"passed": [SimpleNamespace(nodeid=f"{first}::test_one")], "skipped": [why, why]}
    assert what_ran(stats) == {
        TIERS[first]: "ran: 1 passed",
        TIERS[second]: "DID NOT RUN: 2 skipped: no root",
    }
    chosen = {**stats, "deselected": [SimpleNamespace(nodeid=f"{first}::test_two")]}
    assert what_ran(chosen)[TIERS[first]] == "ran IN PART: 1 passed, 1 deselected"
    assert set(what_ran({}).values()) == {"DID NOT RUN"}
    (tier,) = PART_TIERS["secure"].values()
    assert what_ran(stats, "secure") == {tier: "DID NOT RUN"}


def test_each_tier_has_its_file() -> None:
    paths = {*TIERS, *(path for tiers in PART_TIERS.values() for path in tiers)}
    assert [path for path in paths if not (ROOT / path).exists()] == []
