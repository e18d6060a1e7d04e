"""What the tests on a real node are made of, as far as it can be looked at without one."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import tarfile
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from tests.chaos.chaos import Gaps, Outcome
from tests.kubernetes import traces
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.image_archive import write_image
from tests.kubernetes.images import images_of
from tests.kubernetes.node_place import NodePlace
from tests.kubernetes.pods_under_load import RESULT, Plan, PodFault, Report, read_plan, read_report
from tests.kubernetes.programs import PROGRAM_NAMES, SOURCES, version
from tests.kubernetes.record import Record, table
from tests.kubernetes.tiers import NODE_SECONDS, REQUIRED_VARIABLE, TIERS, what_ran, why_no_time
from tests.kubernetes.worker import Worker
from tests.time_left import END_VARIABLE

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_of_kubernetes_is_of_one_version() -> None:
    """It replaces its staging modules by folders of its own: one that is forgotten here is of any version."""
    text = (SOURCES / "go.mod").read_text()
    minor = version().removeprefix("v1.")
    replaced = dict(re.findall(r"^\t(k8s\.io/[\w-]+) => \1 (\S+)$", text, re.MULTILINE))
    assert set(replaced.values()) == {f"v0.{minor}"}
    unpinned = set(re.findall(r"^\t(k8s\.io/[\w-]+) v0\.0\.0(?: // indirect)?$", text, re.MULTILINE))
    assert unpinned - replaced.keys() == set()
    assert len(replaced) == 31


def test_the_binary_knows_every_program_that_is_linked_to_it() -> None:
    named = re.findall(r'^\t"([\w-]+)": +', (SOURCES / "main.go").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(PROGRAM_NAMES)


def test_every_configuration_of_a_node_is_filled_in(tmp_path: Path) -> None:
    plane = ControlPlane(NodePlace(tmp_path), tmp_path / "programs")
    Worker(plane).write_files("somewhere")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 7
    texts = [path.read_text() for path in written]
    texts.append(plane.configuration("kubeconfig.yaml", authority="a", certificate="b", key="c"))
    texts.append(plane.configuration("volume.yaml", number=1, capacity="1Gi"))
    texts.append(plane.configuration("dns-service.yaml", dns_address="10.0.0.1", node_address="10.0.0.2"))
    assert [text for text in texts if "$" in text] == []
    assert json.loads((tmp_path / "cni/pod-network.conflist").read_text())["plugins"][0]["type"] == "bridge"


def test_a_node_leaves_nothing_of_its_containers_and_takes_nothing_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, node = tmp_path / "machine", tmp_path / "node"
    shared = {
        "SHIM_SOCKETS": machine / "run/s",
        "RUNC_STATE": machine / "run/runc/k8s.io",
        "CNI_RESULTS": machine / "cni/results",
        "CONTAINER_LOGS": machine / "logs",
    }
    for name, path in shared.items():
        path.mkdir(parents=True)
        monkeypatch.setattr(traces, name, path)
    dead = machine / "kubelet/device-plugins/kubelet.sock"
    dead.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(dead))
        listening.listen()
        assert not traces.nobody_listens(dead)
    monkeypatch.setattr(traces, "KUBELET_SOCKET", dead)
    for owner, container in ((node, "ours"), (tmp_path / "other", "theirs")):
        bundle = owner / traces.BUNDLES / container
        bundle.mkdir(parents=True)
        (bundle / "address").write_text(f"unix://{shared['SHIM_SOCKETS']}/{container}")
        (shared["SHIM_SOCKETS"] / container).touch()
        (shared["RUNC_STATE"] / container).mkdir()
        sandbox = {"sandbox": f"{owner}/run/containerd/netns/cni-1"}
        (shared["CNI_RESULTS"] / f"pods-{container}-eth0").write_text(json.dumps(sandbox))
        (shared["CONTAINER_LOGS"] / f"{container}.log").symlink_to(owner / "pod-logs/0.log")
    traces.forget(node)
    assert [path for path in machine.rglob("*") if "ours" in path.name] == []
    assert len([path for path in machine.rglob("*") if "theirs" in path.name]) == 4
    assert not (machine / "kubelet").exists()
    traces.forget(tmp_path / "other")
    assert [*machine.iterdir()] == []


def test_an_image_archive_names_everything_by_its_digest(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF")
    write_image(tmp_path / "pause.tar", "somewhere/pause:1", program, "x86_64")
    with tarfile.open(tmp_path / "pause.tar") as archive:
        content = {member.name: (archive.extractfile(member) or _nothing()).read() for member in archive}
    (manifest,) = json.loads(content["manifest.json"])
    assert manifest["RepoTags"] == ["somewhere/pause:1"]
    assert manifest["Config"] == f"{hashlib.sha256(content[manifest['Config']]).hexdigest()}.json"
    config = json.loads(content[manifest["Config"]])
    (layer,) = manifest["Layers"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content[layer]).hexdigest()}"]
    assert (config["architecture"], config["config"]["Entrypoint"]) == ("amd64", ["/pause"])


def _nothing() -> NoReturn:
    raise AssertionError("an archive has files only")


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


def test_a_whole_node_is_tried_when_it_was_asked_for_or_when_there_is_time(
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


def test_each_tier_has_its_file() -> None:
    assert [path for path in TIERS if not (ROOT / path).exists()] == []
