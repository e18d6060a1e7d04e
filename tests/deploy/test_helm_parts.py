"""The chart: jobs, the test of a release, and what watches it."""

from __future__ import annotations

import json
import re
import subprocess
from fnmatch import fnmatch

import pytest
import yaml

from tests.deploy.chart import (
    COMPONENT,
    EVERYTHING,
    labels_of,
    named,
    render,
    selects,
)
from tools.chart.values_file import CHART

pytestmark = pytest.mark.usefixtures("helm_is_there")

# -- jobs and tests


def test_offload_asks_any_broker_and_runs_alone() -> None:
    chart = render(EVERYTHING)
    job = chart.only("CronJob", "offload")["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    assert job["jobTemplate"]["spec"]["backoffLimit"] == 0
    arguments = chart.container("offload")["args"]
    assert arguments[:2] == ["offload", "run"]
    (service,) = (each.partition("=")[2] for each in arguments if each.startswith("--service="))
    host, _, port = service.partition(":")
    (target,) = (
        one for one in chart.of("Service", "broker") if one["metadata"]["name"] == host.partition(".")[0]
    )
    assert target["spec"].get("clusterIP") != "None", "one that is ready"
    assert int(port) in [each["port"] for each in target["spec"]["ports"]]
    assert "--master=local[2]" in arguments
    assert arguments[-1] == "--json"
    for component in ("offload", "broker"):
        assert {"secretRef": {"name": "object-store"}} in chart.container(component)["envFrom"]
        assert named(chart.container(component)["volumeMounts"])["offload"]["mountPath"] == "/cold"
        volume = named(chart.pod(component)["volumes"])["offload"]
        assert volume["persistentVolumeClaim"] == {"claimName": "cold"}
    assert "magnetarOffloadLocation=file:///cold/eu" in chart.settings("broker").splitlines()
    assert not render().of("CronJob")
    assert "magnetarOffloadLocation" not in render().settings("broker")


def test_copies_of_metadata_go_to_a_claim_and_old_ones_only_after_a_new_one() -> None:
    container = render(EVERYTHING).container("backup")
    (script,) = container["args"]
    steps = [line.split()[:4] for line in script.splitlines()]
    assert steps[1] == ["magnetar", "admin", "metadata", "backup"]
    assert steps[2] == ["magnetar", "admin", "metadata", "verify"]
    assert steps[3][:2] == ["find", "/backup"]
    (pattern,) = re.findall(r"-name '(\S+)'", script)
    assert fnmatch("eu-20261122T140000Z.gz", pattern)
    assert not fnmatch("eu-west-20261122T140000Z.gz", pattern), "another cluster's, on the same claim"
    assert container["command"] == ["/bin/sh", "-euc"], "the first that fails is the last"
    assert named(container["volumeMounts"])["backup"]["mountPath"] == "/backup"


def test_scripts_of_the_chart_are_scripts() -> None:
    for container in (render(EVERYTHING).container("backup"), render().container("test")):
        subprocess.run(["sh", "-n"], input=container["args"][0], text=True, check=True, timeout=30)
    scripts = render().only("ConfigMap", "scripts")["data"]
    assert len(scripts) == 2
    for name, text in scripts.items():
        assert text == (CHART / "files" / name).read_text()


def test_helm_test_is_a_hook_that_finds_the_cluster() -> None:
    pod = render().only("Pod", "test")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    told = {entry["name"]: entry["value"] for entry in render().container("test")["env"]}
    service = render().only("Service", "discovery")["metadata"]["name"]
    assert told["MAGNETAR_SERVICE_URL"] == f"pulsar://{service}:6650"
    assert told["MAGNETAR_ADMIN_URL"] == f"http://{service}:8080"
    assert pod["spec"]["restartPolicy"] == "Never"


# -- what watches it


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_samples_get_the_labels_that_alerts_go_by(kind: str) -> None:
    chart = render({f"metrics.{kind[0].lower()}{kind[1:]}.enabled": True, "clusterName": "eu"})
    monitors = chart.of(kind)
    assert len(monitors) == 4
    for monitor in monitors:
        component = monitor["metadata"]["labels"][COMPONENT]
        (endpoint,) = monitor["spec"]["podMetricsEndpoints" if kind == "PodMonitor" else "endpoints"]
        assert (endpoint["path"], endpoint["honorLabels"]) == ("/metrics", True)
        set_to = {each["targetLabel"]: each.get("replacement") for each in endpoint["relabelings"]}
        assert set_to == {"job": component, "cluster": "eu", "instance": None}
        if kind == "PodMonitor":
            assert selects(monitor["spec"]["selector"], labels_of(chart.workload(component)))
            ports = named(chart.container(component)["ports"])
        else:
            (service,) = (
                one
                for one in chart.of("Service")
                if selects(monitor["spec"]["selector"], one["metadata"]["labels"])
            )
            ports = named(service["spec"]["ports"])
        assert endpoint["port"] in ports
    assert not render().of(kind)


def test_rules_and_dashboards_are_the_files() -> None:
    chart = render(EVERYTHING)
    rules = yaml.safe_load((CHART / "rules/magnetar.yaml").read_text())
    assert chart.only("PrometheusRule")["spec"] == rules
    assert chart.only("PrometheusRule")["metadata"]["labels"]["release"] == "prometheus"
    boards: dict[str, str] = {}
    for one in chart.of("ConfigMap", "dashboards"):
        boards |= one["data"]
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert len(json.dumps(one)) < 250_000, "what kubectl apply can note of an object"
    there = {f"magnetar-{path.name}": path for path in (CHART / "dashboards").glob("*.json")}
    assert boards.keys() == there.keys()
    for name, path in there.items():
        assert json.loads(boards[name]) == json.loads(path.read_text())
    assert len(there) == 6
