"""The chart, tier 0: linted, rendered for several sets of values, and checked by Kubernetes' schemas.

Tiers 1 and 2, on a real API server and a real node, are in tests/kubernetes.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from tests.deploy.chart import (
    EVERYTHING,
    NAMESPACE,
    RELEASE,
    SMALL,
    VALUE_SETS,
    Rendered,
    arguments_of,
    helm,
    refusal,
    render,
)
from tools.chart.values_file import CHART

KUBERNETES: Final = ("1.25", "1.34")
"""The oldest that the chart says it is for, and the newest it was run on."""
SERVED_BY_OTHERS: Final = ("monitoring.coreos.com/v1", "cert-manager.io/v1")

pytestmark = pytest.mark.usefixtures("helm_is_there")


@pytest.mark.parametrize("name", VALUE_SETS)
def test_helm_lints_it(name: str) -> None:
    values, small = VALUE_SETS[name]
    done = helm("lint", "--strict", str(CHART), "--namespace", NAMESPACE, *arguments_of(values, small=small))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kubernetes", KUBERNETES)
@pytest.mark.parametrize("name", VALUE_SETS)
def test_kubernetes_knows_every_field_of_every_object(name: str, kubernetes: str) -> None:
    values, small = VALUE_SETS[name]
    objects = render(values, small=small, kubernetes=kubernetes).objects
    known = [one for one in objects if one["apiVersion"] not in SERVED_BY_OTHERS]
    assert len(known) > 10
    for one in known:
        kubernetes_validate.validate(one, kubernetes, strict=True)


def test_schemas_refuse_a_field_that_kubernetes_does_not_know() -> None:
    """Else the test above would show nothing."""
    wrong = json.loads(json.dumps(render().workload("bookie")))
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 25
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)


def test_no_two_objects_have_the_same_name(rendered: Rendered) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in rendered.objects]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("release", ["m", "magnetar", "r" * 53])
def test_names_and_labels_fit_whatever_the_release_is_called(release: str) -> None:
    for one in render(EVERYTHING, release=release).objects:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", one["metadata"]["name"])
        # Kubernetes appends numbers, hashes and times to the names of what makes pods.
        assert len(one["metadata"]["name"]) <= (63 if one["kind"] not in ("StatefulSet", "CronJob") else 52)
        for value in one["metadata"]["labels"].values():
            assert len(str(value)) <= 63


def notes(directory: Path, *arguments: str) -> str:
    """What an install says at its end. helm wants a cluster for it, so here it is rendered as an object."""
    shutil.copytree(CHART, directory)
    shutil.move(directory / "templates/NOTES.txt", directory / "NOTES.txt")
    wrapped = 'kind: Notes\napiVersion: test/v1\ntext: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}\n'
    (directory / "templates/notes.yaml").write_text(wrapped)
    show = ("--show-only", "templates/notes.yaml")
    done = helm("template", RELEASE, str(directory), "--namespace", NAMESPACE, *show, *arguments)
    assert done.returncode == 0, done.stderr
    return str(yaml.safe_load(done.stdout)["text"])


def test_notes_say_where_clients_go_and_what_is_amiss(tmp_path: Path) -> None:
    small = notes(tmp_path / "small", "--values", str(SMALL))
    assert f"pulsar://magnetar-discovery.{NAMESPACE}.svc.cluster.local:6650" in small
    assert "etcd has one member" in small
    assert "as many bookies as a ledger needs" in small
    assert "every pod of the Kubernetes cluster" not in small
    assert "clients outside of Kubernetes" not in small
    opened = notes(tmp_path / "opened", *arguments_of({"discovery.service.type": "LoadBalancer"}))
    assert "authentication" in opened
    assert "clients outside of Kubernetes" in opened
    assert "etcd has one member" not in opened


# -- what is refused


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"bookie.replicas": 2}, "each is spread over managedLedgerDefaultEnsembleSize=3 bookies"),
        (
            {"bookie.replicas": 4, "broker.config": {"managedLedgerDefaultEnsembleSize": 5}},
            "bookie.replicas=4: no ledger could be made",
        ),
        ({"broker.config": {"managedLedgerDefaultWriteQuorum": 4}}, "each may be at most the one before"),
        (
            {"bookie.podDisruptionBudget.maxUnavailable": 2},
            "entries that go to 3 bookies and are confirmed by 2",
        ),
        ({"etcd.enabled": False}, "externalEtcd.endpoints has to say where etcd is"),
        ({"externalEtcd.endpoints": ["a:2379"]}, "set etcd.enabled=false"),
        (
            {"metrics.podMonitor.enabled": True, "metrics.serviceMonitor.enabled": True},
            "every sample would be there twice",
        ),
        ({"discovery.service.externalTrafficPolicy": "Local"}, "is for discovery.service.type NodePort and"),
        ({"offload.location": "file:///cold"}, "offload.volume.existingClaim has to name a claim"),
        (
            {"offload.location": "file:///elsewhere", "offload.volume.existingClaim": "cold"},
            "is not on the volume, which is mounted at /cold",
        ),
        ({"backup.enabled": True}, "backup.existingClaim has to name the claim"),
        ({"broker.config": {"managedLedgerDefaultEnsembelSize": 3}}, "managedLedgerDefaultEnsembelSize"),
        ({"broker.config": {"maxMessageSize": 0}}, "maxMessageSize"),
        ({"broker.config": {"webServicePort": 8081}}, "webServicePort"),
        ({"bookie.config": {"ledgerDirectories": "/tmp"}}, "ledgerDirectories"),
        ({"image.tag": "latest"}, "tag"),
        ({"etcd.replicas": 2}, "replicas"),
        ({"etcd.image.tag": "v3.5.1"}, "tag"),
        ({"bookie.storage.size": "large"}, "size"),
        ({"bookie.rackFrom": "host"}, "rackFrom"),
        ({"bokie.replicas": 3}, "bokie"),
    ],
)
def test_values_that_cannot_work_are_refused_with_the_reason(values: Mapping[str, Any], reason: str) -> None:
    assert reason in refusal(values)


def test_one_bookie_is_enough_when_configured() -> None:
    quorums = {f"managedLedgerDefault{name}": 1 for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
    assert (
        render({"bookie.replicas": 1, "broker.config": quorums}).workload("bookie")["spec"]["replicas"] == 1
    )
